"""The format number: what an older version cannot read is under a higher one.

A kind of event or a setting that is not in the table below makes a directory that
versions before it refuse, or worse, stop at. Who adds one raises FORMAT in
platform/directory.py, unless the number was never released, and adds a row for it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import msgspec
import pytest

from headrace.core.errors import UnsupportedFormat
from headrace.core.settings import GroupSettings, TopicSettings
from headrace.engine import catalog, cursor, memberships, state
from headrace.node import Node
from headrace.platform import directory
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk

# What each format added to the one before it.
ADDED: dict[int, dict[str, set[Any]]] = {
    1: {
        "state events": {*range(1, 17), *range(20, 26)},
        "catalog events": set(range(1, 12)),
        "topic settings": {
            "durability", "sync_interval_ms", "segment_bytes", "segment_ms", "cleanup",
            "retention", "retention_ms", "retention_bytes", "retention_owed", "tombstone_ms",
            "record_bytes_max", "partitioner", "ordering", "dedup", "dedup_window_ms",
            "dead_letter_expired", "trace_sample",
        },
        "group settings": {
            "start", "visibility_ms", "max_attempts", "backoff_ms", "backoff_factor",
            "backoff_max_ms", "leases_per_consumer_max", "starvation_ms", "isolation",
        },
        # By how many parts they have.
        "keys of __cursors": {3},
    },
    # A message that is redriven in place; what is configured of groups and of the node by
    # Kafka's names.
    2: {
        "state events": {17},
        "catalog events": {12},
        "topic settings": {
            "compaction_lag_min_ms", "compaction_lag_max_ms", "dirty_ratio_min",
            "timestamp_type", "timestamp_after_max_ms", "timestamp_before_max_ms", "compression",
        },
        "group settings": {"leases_per_partition_max"},
    },
    # Who the members of stream groups are.
    3: {"keys of __cursors": {2}},
}  # fmt: skip


def written() -> dict[str, set[Any]]:
    """What this version may write."""
    return {
        "state events": {kind.__struct_config__.tag for kind in get_args(state.Event)},
        "catalog events": {kind.__struct_config__.tag for kind in get_args(catalog.CatalogEvent)},
        "topic settings": {field.name for field in dataclasses.fields(TopicSettings)},
        "group settings": {field.name for field in dataclasses.fields(GroupSettings)},
        "keys of __cursors": {
            len(get_args(decoder.type))
            for decoder in (cursor._key_decoder, memberships._key_decoder)
        },
    }


def test_what_is_written_is_what_the_format_stands_for() -> None:
    """If this fails: raise FORMAT and add a row, or older versions fail in the middle."""
    assert max(ADDED) == directory.FORMAT
    for what, kinds in written().items():
        known = set().union(*(added.get(what, set()) for added in ADDED.values()))
        assert kinds == known, what


def made() -> MemoryDisk:
    disk = MemoryDisk()
    node = Node.open(":memory:", disk=disk)
    node.create_topic("orders")
    node.close()
    return disk


def format_of(disk: MemoryDisk) -> int:
    found: int = msgspec.json.decode(bytes(disk.names["headrace.json"].data))["format"]
    return found


def test_a_directory_of_an_older_format_opens_and_is_kept_from_older_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = made()
    older = directory.FORMAT
    monkeypatch.setattr(directory, "FORMAT", older + 1)
    Node.open(":memory:", disk=disk, read_only=True).close()
    assert format_of(disk) == older
    node = Node.open(":memory:", disk=disk)
    assert [topic.name for topic in node.topics()] == ["orders"]
    node.close()
    assert format_of(disk) == older + 1
    monkeypatch.undo()
    for read_only in (True, False):
        with pytest.raises(UnsupportedFormat, match="upgrade with: pip install -U headrace"):
            Node.open(":memory:", disk=disk, read_only=read_only)


def test_the_identity_stays_when_the_format_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = made()
    before = directory.check_format(disk)
    monkeypatch.setattr(directory, "FORMAT", directory.FORMAT + 1)
    directory.claim(disk, SystemEntropy()).release()
    after = directory.check_format(disk)
    assert (after.directory_id, after.node_id) == (before.directory_id, before.node_id)
