"""Large compressed batches, read in small bites: opened once, and every record as it is."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace.core import limits
from headrace.engine import records as module
from headrace.engine.records import KeptBlocks
from headrace.record import BatchParts, Codec, NewRecord, Record, build_batch

COUNT = 60_000


def publish(bench: Any, first: int = 0, count: int = COUNT, **more: Any) -> None:
    made = [NewRecord(None, b"%09d" % number, **more) for number in range(first, first + count)]
    bench.node.publish_batch(bench.topic, 0, build_batch(made, codec=Codec.ZSTD))


def test_a_batch_that_is_leased_in_small_bites_is_opened_once(
    bench: Any, opened: list[int]
) -> None:
    bench.make()
    publish(bench)
    opened.clear()
    values: list[bytes] = []
    while leased := bench.lease(5_000):
        values += [each.value for each in leased]
        bench.node.ack(bench.group, [each.receipt for each in leased])
    assert values == [b"%09d" % number for number in range(COUNT)]
    assert opened == [0]


def test_a_small_bite_of_a_large_batch_decodes_about_what_is_asked_for(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    read = BatchParts.read

    def note(self: BatchParts, *given: int) -> list[Record]:
        found = read(self, *given)
        decoded.append(len(found))
        return found

    bench.make()
    publish(bench)
    monkeypatch.setattr(BatchParts, "read", note)
    assert len(bench.lease(10)) == 10
    assert sum(decoded) < COUNT // 10
    # The next ones were decoded with them.
    assert len(bench.lease(900)) == 900
    assert len(decoded) == 1


def test_a_batch_that_is_read_backwards_is_opened_once(bench: Any, opened: list[int]) -> None:
    bench.make()
    publish(bench)
    opened.clear()
    for offset in range(COUNT - 100, 0, -5_000):
        found, _ = bench.node.read(bench.topic, 0, offset, count_max=100)
        assert found[0].value == b"%09d" % offset
    assert opened == [0]


@pytest.mark.parametrize("headers", [(), (("name", b"value"),) * 20])
def test_records_are_the_same_wherever_one_looks(
    bench: Any, monkeypatch: pytest.MonkeyPatch, headers: Any
) -> None:
    monkeypatch.setattr(limits, "DECODED_BYTES_MAX", 100_000)
    monkeypatch.setattr(module, "KEPT_OPEN_BYTES_MIN", 10_000)
    bench.make()
    counts = [1, 3_000, 10, 2_000, 700]
    for number, count in enumerate(counts):
        publish(bench, sum(counts[:number]), count, headers=headers)
    total = sum(counts)
    randomly = random.Random(4)
    for _ in range(60):
        offset = randomly.randrange(total)
        end = min(total, offset + randomly.randrange(1, 800))
        found = bench.partition().read([offset, end])
        assert [each.offset for each in found] == list(range(offset, end))
        assert {each.value for each in found} == {b"%09d" % each for each in range(offset, end)}


def test_what_is_kept_open_counts_among_what_is_kept(bench: Any) -> None:
    bench.make()
    publish(bench)
    kept = KeptBlocks(bytes_max=2 * 1024 * 1024)
    records = bench.partition().records
    records.share(kept)
    for offset in range(0, COUNT, 10_000):
        bench.node.read(bench.topic, 0, offset, count_max=10)
        assert kept.size_bytes <= 2 * 1024 * 1024
    records.forget()
    assert kept.size_bytes == 0
