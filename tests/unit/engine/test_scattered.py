"""Messages that lie between others, as those of several priorities do: a lease decodes its
own, and a batch is opened once for each lane that goes through it."""

from __future__ import annotations

import random
from itertools import cycle, islice
from typing import Any

import pytest

from headrace.core.values import Outgoing
from headrace.engine import records as module
from headrace.engine.records import KeptBlocks
from headrace.engine.runs import runs_of
from headrace.record import Codec, NewRecord, attribute_headers, build_batch, reader

UNLIMITED = {"leases_per_consumer_max": 1_000_000}
LANES = ("critical", "high", "normal", "low", "background")


def publish(bench: Any, count: int, lanes: Any) -> None:
    """One batch; the lanes in turn."""
    made = [
        NewRecord(None, b"%09d" % number, attribute_headers(priority=lane))
        for number, lane in enumerate(islice(cycle(lanes), count))
    ]
    bench.node.publish_batch(bench.topic, 0, build_batch(made, codec=Codec.LZ4))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each look into a batch has decoded."""
    counts: list[int] = []
    read = reader._read_some

    def note(*given: Any, **more: Any) -> Any:
        found = read(*given, **more)
        counts.append(len(found[0]))
        return found

    monkeypatch.setattr(reader, "_read_some", note)
    return counts


def test_a_lease_of_scattered_messages_decodes_those_alone(bench: Any, decoded: list[int]) -> None:
    bench.make(group=UNLIMITED)
    for _ in range(5):
        publish(bench, 1_000, ["critical", *["normal"] * 99])
    decoded.clear()
    assert [each.offset for each in bench.lease(45)] == list(range(0, 4_500, 100))
    assert sum(decoded) == 45
    # The same one by one: the next of the lane lies far behind the last.
    assert [bench.lease(1)[0].offset for _ in range(5)] == list(range(4_500, 5_000, 100))
    assert sum(decoded) == 50


def test_a_look_at_the_oldest_of_each_lane_decodes_no_others(
    bench: Any, decoded: list[int]
) -> None:
    bench.make()
    publish(bench, 1_000, LANES)
    decoded.clear()
    assert [lane.ready for lane in bench.node.queue_statistics(bench.group).lanes] == [200] * 5
    assert sum(decoded) == len(LANES)


def test_every_lane_goes_at_its_own_pace_and_opens_a_batch_once(
    bench: Any, opened: list[int], decoded: list[int]
) -> None:
    bench.make(group=UNLIMITED)
    batches = 40
    for _ in range(batches):
        publish(bench, 100, LANES)
    opened.clear()
    decoded.clear()
    found: list[int] = []
    while leased := bench.lease(10):
        found += [each.offset for each in leased]
        bench.node.ack(bench.group, [each.receipt for each in leased])
    assert sorted(found) == list(range(100 * batches))
    assert len(opened) <= len(LANES) * batches
    # At the end one lane is left alone, and neighbours are wanted again.
    assert sum(decoded) <= 100 * batches * 2


def test_batches_that_follow_one_another_are_read_together(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.make(group=UNLIMITED)
    for number in range(200):
        publish(bench, 1, ["normal" if number % 10 else "critical"])
    assert len(bench.lease(20)) == 20
    log = bench.partition().log
    read, reads = log.read, []

    def note(*given: int) -> Any:
        reads.append(given)
        return read(*given)

    monkeypatch.setattr(log, "read", note)
    assert [each.offset for each in bench.lease(90)] == [o for o in range(100) if o % 10]
    # Nine lie together, between two that are gone.
    assert len(reads) == 10


def test_what_is_kept_of_scattered_batches_is_bounded(bench: Any) -> None:
    bench.make(group=UNLIMITED)
    for _ in range(100):
        publish(bench, 200, ["critical", *["normal"] * 99])
    kept = KeptBlocks(bytes_max=50_000)
    records = bench.partition().records
    records.share(kept)
    for _ in range(20):
        bench.lease(10)
        assert 0 < kept.size_bytes <= 50_000
    records.share(KeptBlocks())
    assert kept.size_bytes == 0
    bench.lease(150)
    assert 0 < len(records._opened) <= module.OPENED_MAX


@pytest.mark.parametrize("compacted", [False, True])
def test_scattered_records_are_those_that_are_read_as_neighbours(
    bench: Any, monkeypatch: pytest.MonkeyPatch, compacted: bool
) -> None:
    monkeypatch.setattr(reader, "_MARKED_BYTES", 500)
    settings = {"cleanup": "compact", "segment_bytes": 1024 * 1024} if compacted else {}
    bench.node.create_topic(bench.topic, partitions=1, settings=settings)
    randomly = random.Random(7)
    for _ in range(90):
        count = randomly.choice([1, 1, 2, 30, 700])
        keys = [b"%d" % randomly.randrange(500) for _ in range(count)]
        bench.node.publish(bench.topic, [Outgoing(b"v" * 200, key) for key in keys])
    if compacted:
        bench.skip(31_000)
        bench.node.publish(bench.topic, [Outgoing(b"v", b"other")])
    partition = bench.partition()
    end = partition.high_watermark
    records = partition.records
    whole = {each.offset: each for each in records.read_some([0, end], end, None)[0]}
    assert (len(whole) < end) == compacted
    for _ in range(200):
        first = randomly.randrange(end)
        wanted = range(first, min(end, first + 1_000))
        runs = runs_of(sorted(randomly.sample(wanted, randomly.randrange(1, len(wanted) + 1))))
        found, gone_over = records.read_some(runs, end, None, is_scattered=True)
        asked = [offset for start, stop in zip(runs[::2], runs[1::2], strict=True)
                 for offset in range(start, stop)]  # fmt: skip
        assert found == [whole[offset] for offset in asked if offset in whole]
        assert gone_over == runs
