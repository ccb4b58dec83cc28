"""The numbers of a queue group, by state, lane and partition."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.overview_rates import RateWindow
from headrace.core.values import LatencyStatistics, MessageId, Outgoing
from headrace.engine.latency import RECENT_MS
from headrace.engine.rates import SAMPLE_MS, SPAN_MS, Rates


def test_every_state_is_counted_where_it_is(bench: Any) -> None:
    bench.make(topic={"ordering": "key"})
    bench.publish(b"0", b"1", b"2", key=b"a")
    bench.publish(b"3", key=b"b", priority="high")
    bench.publish(b"4", b"5", key=b"c", delay_ms=500)
    bench.publish(b"6", key=b"d", priority="low")
    bench.publish(b"7", key=b"e")
    high = bench.receipts(1)
    bench.node.nack(bench.group, high, delay_ms=100)
    bench.lease(1)
    numbers = bench.node.queue_statistics(bench.group)
    assert (numbers.ready, numbers.waiting, numbers.leased) == (2, 2, 1)
    assert (numbers.retrying, numbers.delayed, numbers.moving) == (1, 2, 0)
    assert numbers.depth == 8
    assert (numbers.delivered, numbers.nacked) == (2, 1)
    by_lane = {lane.lane: lane for lane in numbers.lanes}
    assert (by_lane["high"].retrying, by_lane["high"].delivered) == (1, 1)
    assert (by_lane["normal"].leased, by_lane["normal"].delayed) == (1, 2)
    assert (by_lane["normal"].ready, by_lane["low"].ready) == (1, 1)
    assert by_lane["low"].last_served_ms is None
    assert by_lane["high"].last_served_ms == bench.clock.time_ms
    (part,) = numbers.partitions
    assert (part.start_offset, part.end_offset, part.ready) == (0, 8, 2)


def test_with_order_over_a_partition_only_its_first_message_is_ready(bench: Any) -> None:
    bench.make(topic={"ordering": "partition"}, partitions=2)

    def numbers() -> tuple[int, int, int]:
        found = bench.node.queue_statistics(bench.group)
        [totals] = bench.node.overview().groups
        lanes = sum(lane.ready for lane in found.lanes)
        assert (lanes, totals.ready, totals.waiting) == (found.ready, found.ready, found.waiting)
        assert sum(part.ready for part in found.partitions) == found.ready
        assert found.depth == totals.lag == 6
        return found.ready, found.waiting, found.leased

    for partition in (0, 1):
        bench.node.publish(bench.topic, [Outgoing(b"x", partition=partition)] * 3)
    assert numbers() == (2, 4, 0)
    [held] = bench.receipts(1)
    assert numbers() == (1, 4, 1)
    # What failed keeps the others back until it is done.
    bench.node.nack(bench.group, [held], delay_ms=1_000)
    assert numbers() == (1, 4, 0)
    assert len(bench.lease(10)) == 1
    assert numbers() == (0, 4, 1)


def test_numbers_are_as_of_now_although_nobody_leased_since(bench: Any) -> None:
    bench.make(group={"visibility_ms": 100})
    bench.publish(b"0")
    bench.publish(b"1", delay_ms=100)
    bench.publish(b"2", ttl_ms=100)
    bench.lease(1)
    bench.skip(100)
    numbers = bench.node.queue_statistics(bench.group)
    assert (numbers.ready, numbers.leased, numbers.delayed) == (2, 0, 0)
    assert (numbers.expired, numbers.lease_expired) == (1, 1)


def test_the_oldest_is_the_first_that_could_be_had(bench: Any) -> None:
    bench.make(partitions=2)
    start_ms = bench.clock.time_ms
    assert bench.node.queue_statistics(bench.group).oldest_ms is None
    for partition in (1, 0):
        bench.node.publish(bench.topic, [Outgoing(b"x", partition=partition)])
        bench.skip(10)
    numbers = bench.node.queue_statistics(bench.group)
    assert numbers.oldest_ms == start_ms
    assert [part.oldest_ms for part in numbers.partitions] == [start_ms + 10, start_ms]
    bench.lease()
    assert bench.node.queue_statistics(bench.group).oldest_ms is None


def test_totals_count_since_the_group_was_made(bench: Any) -> None:
    bench.make()
    bench.publish(b"0", b"1", b"2", b"3")
    bench.publish(b"4", delay_ms=9_000)
    held = bench.receipts(4)
    bench.node.ack(bench.group, held[:1])
    bench.node.nack(bench.group, held[1:2], delay_ms=60_000)
    bench.node.reject(bench.group, held[2:3])
    bench.node.release(bench.group, held[3:])
    bench.node.cancel(MessageId(bench.topic, 0, 4))
    names = ("delivered", "acked", "nacked", "dead_lettered", "cancelled", "lease_expired")
    before = bench.node.queue_statistics(bench.group)
    assert [getattr(before, name) for name in names] == [4, 1, 1, 1, 1, 0]
    bench.reopen()
    after = bench.node.queue_statistics(bench.group)
    assert [getattr(after, name) for name in names] == [4, 1, 1, 1, 1, 0]


def test_a_message_that_was_never_this_groups_has_no_part_in_its_numbers(bench: Any) -> None:
    bench.make()
    bench.publish(b"before")
    bench.node.open_queue("late", [bench.topic], "bob", {"start": "latest"})
    assert bench.node.queue_statistics("late").depth == 0
    bench.publish(b"after")
    assert bench.node.queue_statistics("late").depth == 1
    assert bench.values(group="late") == [b"after"]


def test_rates_look_back_over_ten_seconds() -> None:
    rates = Rates()
    assert rates.per_second(0, [5]) == [0.0]
    rates.sample(0, [0])
    assert rates.per_second(2_000, [10]) == [5.0]
    for second in range(1, 30):
        rates.sample(second * 1_000, [second * 10])
    assert rates.per_second(29_000, [290]) == pytest.approx([10.0])


def test_what_was_handed_out_longer_ago_than_ten_seconds_is_no_rate() -> None:
    rates = Rates()
    rates.sample(0, [0])
    # Too soon after the one before to be kept.
    rates.sample(SAMPLE_MS - 1, [100])
    assert rates.per_second(5_000, [100]) == [20.0]
    assert rates.per_second(SPAN_MS + SAMPLE_MS, [100]) == [0.0]
    assert rates.per_second(SPAN_MS + SAMPLE_MS, [150]) == pytest.approx([5.0], rel=0.05)


@pytest.mark.parametrize("looks_ms", [1_000, 7_000])
def test_a_queue_has_one_rate_however_often_somebody_looks(bench: Any, looks_ms: int) -> None:
    bench.make(partitions=2)
    window = RateWindow()
    for number in range(60):
        for partition in (0, 1):
            bench.node.publish(bench.topic, [Outgoing(b"x", partition=partition)] * 4)
        bench.node.ack(bench.group, bench.receipts(8 if number % 3 else 2))
        bench.skip(500)
        if number * 500 % looks_ms == 0:
            window.add(bench.node.overview())
            numbers = bench.node.queue_statistics(bench.group)
            found = window.groups[bench.group]
            assert found.given == pytest.approx(numbers.rate_out)
            assert found.taken == pytest.approx(numbers.rate_in)
    assert numbers.rate_out == pytest.approx(12, rel=0.1)
    bench.skip(SPAN_MS)
    window.add(bench.node.overview())
    assert window.groups[bench.group].given == 0
    assert bench.node.queue_statistics(bench.group).rate_out == 0


def test_samples_are_few_and_old_ones_go() -> None:
    rates = Rates()
    for now_ms in range(0, 10 * SPAN_MS, 10):
        rates.sample(now_ms, [now_ms])
    assert len(rates._samples) <= SPAN_MS // SAMPLE_MS + 2


def test_latencies_are_those_of_all_partitions_in_the_last_minutes(bench: Any) -> None:
    bench.make(partitions=2)
    none = LatencyStatistics(0, None, None, None)
    numbers = bench.node.queue_statistics(bench.group)
    assert (numbers.to_lease, numbers.to_ack) == (none, none)
    for partition in (0, 1, 1, 1):
        bench.node.publish(bench.topic, [Outgoing(b"x", partition=partition)])
    bench.skip(70)
    bench.node.ack(bench.group, bench.receipts(4)[:1])
    numbers = bench.node.queue_statistics(bench.group)
    assert numbers.to_lease == (4, 70, 70, 70)
    assert numbers.to_ack.count == 1
    bench.skip(3 * RECENT_MS)
    assert bench.node.queue_statistics(bench.group).to_lease == none
