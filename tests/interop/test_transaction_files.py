"""What is on disk of transactions is Kafka's: markers and aborted transactions as other
readers, and the format's own description, have them.

Kafka's description of an entry of a .txnindex, in org.apache.kafka.storage.internals.log
.AbortedTxn: version int16, producer id int64, first offset int64, last offset int64, last
stable offset int64; current version 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.transactions import Writer

from headrace.node import Node

ENTRY_BYTES = 2 + 4 * 8


def untyped(module: str) -> Any:
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return import_module(module)


batches = untyped("aiokafka.record.default_records")
control = untyped("aiokafka.record.control_record")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Segments with transactions that overlap, span them, and end either way."""
    node = Node.open(tmp_path / "data")
    node.create_topic("orders", partitions=1, settings={"segment_bytes": 1024})
    broker = node._broker
    writer = Writer(broker.topics.partition(broker.topics.named("orders"), 0))
    for number in range(60):
        writer.write(number % 4, b"%d" % number + b"." * 50)
        if number % 5 == 4:
            writer.end(number % 4, commit=number % 2 == 0)
    for producer in range(4):
        writer.end(producer, commit=producer == 0)
    writer.sync()
    node.close()
    [found] = (tmp_path / "data").glob("topics/*/0")
    return found


def read_batches(folder: Path) -> Iterator[Any]:
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        while data:
            size = 12 + int.from_bytes(data[8:12], "big")
            batch = batches.DefaultRecordBatch(bytearray(data[:size]))
            assert batch.validate_crc()
            yield batch
            data = data[size:]


def read_entries(folder: Path) -> list[tuple[str, int, int, int, int]]:
    entries = []
    for path in sorted(folder.glob("*.txnindex")):
        content = path.read_bytes()
        assert content and len(content) % ENTRY_BYTES == 0
        for at in range(0, len(content), ENTRY_BYTES):
            entry = content[at : at + ENTRY_BYTES]
            assert entry[:2] == b"\0\0"
            numbers = [int.from_bytes(entry[2 + 8 * n : 10 + 8 * n], "big") for n in range(4)]
            entries.append((path.stem, numbers[0], numbers[1], numbers[2], numbers[3]))
    return entries


def test_the_index_lists_what_another_reader_finds_aborted(folder: Path) -> None:
    """The list is made once more, from the batches as aiokafka reads them."""
    assert len(list(folder.glob("*.log"))) > 5
    bases = [int(path.stem) for path in sorted(folder.glob("*.log"))]
    open_from: dict[int, int] = {}
    expected = []
    for batch in read_batches(folder):
        assert batch.is_transactional
        if not batch.is_control_batch:
            open_from.setdefault(batch.producer_id, batch.base_offset)
            continue
        [record] = batch
        first = open_from.pop(batch.producer_id)
        if control.ControlRecord.parse(record.key) == control.ABORT_MARKER:
            stable = min(open_from.values(), default=batch.base_offset + 1)
            base = max(base for base in bases if base <= batch.base_offset)
            expected.append((f"{base:020d}", batch.producer_id, first, batch.base_offset, stable))
    assert len(expected) > 6
    assert read_entries(folder) == expected


def test_a_segment_without_aborted_transactions_has_no_index_of_them(folder: Path) -> None:
    named = {stem for stem, *_ in read_entries(folder)}
    assert {path.stem for path in folder.glob("*.txnindex")} == named
    assert len(named) < len(list(folder.glob("*.log")))
