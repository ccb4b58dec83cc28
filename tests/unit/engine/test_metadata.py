"""The catalog and its log, cursors, and what else survives a restart."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.core.errors import (
    CorruptLog,
    GroupKindMismatch,
    InvalidArgument,
    UnknownGroup,
    UnknownTopic,
)
from headrace.core.values import Outgoing
from headrace.engine import catalog, metadata
from headrace.engine.catalog import Catalog, CatalogEvent
from headrace.engine.metadata import Metadata
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import attribute_headers

EVENTS: list[CatalogEvent] = [
    catalog.EpochBegan(3),
    catalog.TopicCreated(b"a" * 16, "orders", 3, {"ordering": "key"}, None),
    catalog.TopicCreated(b"b" * 16, "orders.dlq", 3, {}, b"a" * 16),
    catalog.TopicCreated(b"c" * 16, "gone", 1, {}, None),
    catalog.GroupCreated(1, "workers", "queue", {"max_attempts": 5}),
    catalog.GroupCreated(2, "idle", "queue", {}),
    catalog.GroupSubscribed(1, b"a" * 16),
    catalog.GroupSubscribed(1, b"c" * 16),
    catalog.TopicAltered(
        b"a" * 16, 4, {"ordering": "key", "retention": "acked"}, {"preallocate": "true"}
    ),
    catalog.GroupAltered(1, {"max_attempts": 7}),
    catalog.TopicDeleted(b"c" * 16),
    catalog.GroupDeleted(2),
    catalog.ProducersReserved(1_000),
]


def built(events: list[CatalogEvent]) -> Catalog:
    made = Catalog()
    for event in events:
        made = catalog.apply(made, event)
    return made


def test_events_make_the_catalog() -> None:
    made = built(EVENTS)
    assert set(made.topics) == {"orders", "orders.dlq"}
    assert (made.topics["orders"].partitions, made.topics["orders"].settings.retention) == (
        4,
        "acked",
    )
    assert made.dead_letters_of(made.topics["orders"]) == made.topics["orders.dlq"]
    assert set(made.groups) == {"workers"}
    assert made.groups["workers"].settings.max_attempts == 7
    assert made.groups["workers"].topics == {b"a" * 16}, "a deleted topic is left by its groups"
    assert (made.next_group, made.next_producer, made.epoch) == (3, 1_000, 3)


def test_a_snapshot_of_the_catalog_builds_the_same_from_anything() -> None:
    made = built(EVENTS)
    assert built(catalog.snapshot(made)) == made
    other = catalog.TopicCreated(b"z" * 16, "other", 1, {}, None)
    assert built([other, *catalog.snapshot(made)]) == made


def sync(log: Any) -> None:
    ticket = log.begin_sync()
    assert ticket is not None
    for file in ticket.files:
        file.sync()
    log.on_synced(ticket)


def test_an_event_without_configurations_is_one_with_none() -> None:
    """As versions before them wrote it."""
    older = msgspec.msgpack.encode([1, b"d" * 16, "old", 1, {"cleanup": "compact"}, None])
    topic = built([metadata._decode(older)]).topics["old"]
    assert dict(topic.configs) == {}
    assert (topic.settings.cleanup, topic.settings.compression) == ("compact", "producer")


@pytest.mark.parametrize("synced", [True, False])
def test_a_log_that_has_grown_is_replaced_by_a_snapshot(
    monkeypatch: pytest.MonkeyPatch, synced: bool
) -> None:
    disk = MemoryDisk()
    written = Metadata(disk, 0, read_only=False)
    for event in EVENTS:
        written.append([event], 0)
    monkeypatch.setattr(metadata, "SNAPSHOT_BYTES", 100)
    written.append([catalog.EpochBegan(4)], 0)
    assert len(written.log.segments()) == 2, "older segments stay until it is on disk"
    if synced:
        sync(written.log)
        written.on_synced()
        assert len(written.log.segments()) == 1
    assert Metadata(disk, 0, read_only=True).catalog == written.catalog
    written.append([catalog.EpochBegan(5)], 0)
    assert Metadata(disk, 0, read_only=True).catalog.epoch == 5


def test_changes_of_a_large_catalog_do_not_each_bring_a_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once a snapshot alone was larger than what brings one, every change wrote it anew."""
    monkeypatch.setattr(metadata, "SNAPSHOT_BYTES", 1_000)
    taken: list[int] = []

    def counted(of: catalog.Catalog) -> list[catalog.CatalogEvent]:
        taken.append(len(of.topics))
        return catalog.snapshot(of)

    monkeypatch.setattr(metadata, "snapshot", counted)
    disk = MemoryDisk()
    written = Metadata(disk, 0, read_only=False)
    for number in range(500):
        event = catalog.TopicCreated(number.to_bytes(16, "big"), f"t{number}", 1, {}, None)
        written.append([event], 0)
        sync(written.log)
        written.on_synced()
    assert 1 < len(taken) < 12
    assert Metadata(disk, 0, read_only=True).catalog == written.catalog


def test_a_topic_that_many_groups_read_is_taken_from_all_of_them() -> None:
    topic_id, other_id = b"t" * 16, b"o" * 16
    events: list[catalog.CatalogEvent] = [
        catalog.TopicCreated(topic_id, "t", 1, {}, None),
        catalog.TopicCreated(other_id, "o", 1, {}, None),
    ]
    for number in range(1, 4):
        events.append(catalog.GroupCreated(number, f"g{number}", "queue", {}))
        read = [topic_id, other_id][:number]
        events += [catalog.GroupSubscribed(number, each) for each in read]
    left = built([*events, catalog.TopicDeleted(topic_id)])
    assert {name: set(group.topics) for name, group in left.groups.items()} == {
        "g1": set(), "g2": {other_id}, "g3": {other_id},
    }  # fmt: skip
    assert set(left.groups_by_id.values()) == set(left.groups.values())


def test_an_event_of_an_unknown_number_is_not_skipped() -> None:
    with pytest.raises(CorruptLog, match="newer Headrace"):
        metadata._decode(b"\x92\x63\x01")


def test_topics_and_groups_are_there_again_after_a_reopen(bench: Any) -> None:
    bench.make(partitions=2, topic={"ordering": "key"}, group={"max_attempts": 9})
    bench.node.create_topic("brief")
    bench.node.delete_topic("brief")
    topic, group = bench.node.topic(bench.topic), bench.node.group(bench.group)
    bench.reopen()
    assert bench.node.topic(bench.topic) == topic
    assert bench.node.group(bench.group)._replace(consumers=group.consumers) == group
    with pytest.raises(UnknownTopic):
        bench.node.topic("brief")


def test_a_group_that_is_made_again_starts_from_nothing(bench: Any) -> None:
    bench.make()
    bench.publish(b"0")
    bench.node.ack(bench.group, bench.receipts())
    bench.node.delete_group(bench.group)
    with pytest.raises(UnknownGroup):
        bench.lease()
    bench.node.open_queue(bench.group, [bench.topic], "ann")
    assert bench.values() == [b"0"]
    bench.reopen()
    assert bench.values() == [b"0"]
    assert bench.attempts(0) == 2


def test_an_epoch_begins_with_every_opening(bench: Any) -> None:
    bench.make()
    before = bench.partition().epoch
    bench.reopen()
    assert bench.partition().epoch == before + 1


def test_cursors_are_there_again_and_compaction_keeps_the_last(bench: Any) -> None:
    bench.make(partitions=2)
    bench.publish(*[b"x"] * 50)
    for offset in range(40):
        bench.node.commit("readers", {(bench.topic, 0): min(offset, 20)})
    bench.node.commit("done", {(bench.topic, 0): 7})
    bench.node.delete_group("done")
    cursors = bench.partition(topic="__cursors")
    cursors.log.roll(bench.clock.time_ms)
    before = cursors.log.size_bytes
    bench.node.commit("others", {(bench.topic, 1): 0})
    bench.reopen()
    bench.skip(31_000)
    bench.publish(b"now")
    assert bench.partition(topic="__cursors").log.size_bytes < before
    for _ in range(2):
        assert bench.node.committed("readers", bench.topic) == {0: 20}
        assert bench.node.committed("others", bench.topic) == {1: 0}
        assert bench.node.committed("done", bench.topic) == {}
        bench.reopen()


def test_a_queue_group_and_a_stream_group_do_not_share_a_name(bench: Any) -> None:
    bench.make()
    bench.node.join_stream("readers", [bench.topic], "m", "earliest")
    with pytest.raises(GroupKindMismatch):
        bench.node.open_queue("readers", [bench.topic], "ann")


@pytest.mark.parametrize("reopens", [False, True])
def test_a_duplicate_is_found_within_its_window_also_after_a_restart(
    bench: Any, reopens: bool
) -> None:
    bench.make(partitions=3, topic={"dedup": True, "dedup_window_ms": 1_000})
    # The time that it is given has no part in it.
    message = Outgoing(b"once", None, attribute_headers(dedup_id=b"id"), 5)
    (first,) = bench.node.publish(bench.topic, [message])
    assert not first.duplicate
    if reopens:
        bench.reopen()
    bench.skip(999)
    (again,) = bench.node.publish(bench.topic, [message])
    assert again == (first.partition, first.offset, True)
    bench.skip(1)
    (new,) = bench.node.publish(bench.topic, [message])
    assert not new.duplicate
    assert len(bench.values()) == 2


@pytest.mark.parametrize("value", [None, b"", b"x" * 129])
def test_an_id_that_no_topic_takes_is_refused_as_a_header_too(
    bench: Any, value: bytes | None
) -> None:
    bench.make(topic={"dedup": True})
    with pytest.raises(InvalidArgument, match="1 to 128 bytes"):
        bench.node.publish(bench.topic, [Outgoing(b"", headers=(("headrace-dedup-id", value),))])
    # Of several the last one counts.
    twice = attribute_headers(dedup_id=b"a") + attribute_headers(dedup_id=b"b")
    bench.node.publish(bench.topic, [Outgoing(b"", headers=twice)])
    once = Outgoing(b"", headers=attribute_headers(dedup_id=b"b"))
    assert bench.node.publish(bench.topic, [once])[0].duplicate
