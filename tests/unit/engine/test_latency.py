"""How long messages take from publish to lease and to ack, whoever leases them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.conftest import Bench
from tests.unit.engine.share_bench import Shares
from tests.unit.engine.test_held_acks import Acking

from headrace.core.values import Outgoing
from headrace.engine import latency
from headrace.engine.latency import BOUNDS_MS, RECENT_MS, Latency, Since, quantile_ms
from headrace.engine.queue import QueueView
from headrace.engine.runs import offsets_of
from headrace.engine.sharing import ACCEPT
from headrace.record import NewRecord, attribute_headers, build_batch, read_header


def view_of(bench: Bench, index: int = 0) -> QueueView:
    (view,) = bench.partition(index).views.values()
    return view


def shown(latency: Latency) -> dict[int, int]:
    """How many were counted, by the bound that they did not exceed."""
    bounds = (*BOUNDS_MS, -1)
    return {bound: count for bound, count in zip(bounds, latency.counts, strict=False) if count}


def append(bench: Bench, *timestamps_ms: int) -> None:
    """One batch of a client that has its own idea of the time."""
    records = [NewRecord(None, b"x", (), each) for each in timestamps_ms]
    with bench.node._writing() as (now_ms, commit):
        batch = build_batch(records)
        partition = bench.partition()
        partition.append(batch, read_header(batch), now_ms)
        commit.data.append((partition, partition.log.end_offset))


# Leases and acks.


def test_a_message_is_counted_when_it_is_leased_and_when_it_is_acked(bench: Bench) -> None:
    bench.make()
    bench.publish(b"a", b"b")
    bench.skip(40)
    receipts = bench.receipts()
    view = view_of(bench)
    assert (shown(view.to_lease), view.to_lease.sum_ms) == ({50: 2}, 80)
    assert shown(view.to_ack) == {}
    bench.skip(700)
    bench.node.ack(bench.group, receipts[:1])
    assert (shown(view.to_ack), view.to_ack.sum_ms) == ({1000: 1}, 740)


def test_messages_of_one_lease_are_counted_each_for_itself(bench: Bench) -> None:
    bench.make()
    for passed_ms in (4_000, 90, 3, 0):
        bench.publish(b"x")
        bench.skip(passed_ms)
    receipts = bench.receipts()
    view = view_of(bench)
    assert shown(view.to_lease) == {1: 1, 5: 1, 100: 1, 5_000: 1}
    assert view.to_lease.sum_ms == 4_093 + 93 + 3
    bench.node.ack(bench.group, receipts)
    assert shown(view.to_ack) == shown(view.to_lease)
    assert view.to_ack.sum_ms == view.to_lease.sum_ms


def test_acks_one_by_one_and_out_of_order_are_counted_each_for_itself(bench: Bench) -> None:
    bench.make(topic={"ordering": "key"})
    for key in (b"a", b"b", b"a", b"c"):
        bench.publish(b"x", key=key)
        bench.skip(1_000)
    receipts = bench.receipts()
    assert [receipt.offset for receipt in receipts] == [0, 1, 3]
    for receipt in reversed(receipts):
        bench.node.ack(bench.group, [receipt])
    assert view_of(bench).to_ack.sum_ms == 4_000 + 3_000 + 1_000


def test_every_partition_and_group_counts_its_own(bench: Bench) -> None:
    bench.make(partitions=2)
    bench.node.open_queue("others", [bench.topic], "bob")
    for partition in (0, 1, 1):
        bench.node.publish(bench.topic, [Outgoing(b"x", partition=partition)])
    bench.lease()
    counts = [
        [sum(view.to_lease.counts) for view in bench.partition(index).views.values()]
        for index in (0, 1)
    ]
    assert counts == [[1, 0], [2, 0]]


def test_only_the_first_delivery_is_a_wait_for_a_lease(bench: Bench) -> None:
    bench.make(group={"backoff_ms": 1_000})
    bench.publish(b"a", b"b")
    first, second = bench.receipts()
    bench.node.nack(bench.group, [first])
    bench.node.ack(bench.group, [second])
    bench.skip(1_000)
    (again,) = bench.lease()
    assert again.attempt == 2
    bench.node.ack(bench.group, [again.receipt])
    view = view_of(bench)
    assert shown(view.to_lease) == {1: 2}
    assert shown(view.to_ack) == {1: 1, 1_000: 1}


def test_a_message_that_was_given_back_unused_waited_for_its_first_lease_alone(
    bench: Bench,
) -> None:
    bench.make()
    bench.publish(*[b"x"] * 10)
    bench.skip(40)
    for _ in range(3):
        bench.node.release(bench.group, bench.receipts(5))
    bench.skip(4_000)
    assert len(bench.receipts(10)) == 10
    assert shown(view_of(bench).to_lease) == {50: 5, 5_000: 5}


def test_what_is_remembered_of_messages_that_were_given_back_is_bounded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency, "RETURNED_MAX", 20)
    bench.make()
    for _ in range(10):
        bench.publish(*[b"x"] * 10)
        bench.node.release(bench.group, bench.receipts(10))
        assert len(view_of(bench).returned) <= 20 + 10
        bench.node.ack(bench.group, bench.receipts(10))


def test_what_is_not_acked_is_not_counted_as_acked(bench: Bench) -> None:
    bench.make()
    bench.publish(b"a", b"b", b"c")
    first, second, third = bench.receipts()
    bench.node.nack(bench.group, [first])
    bench.node.reject(bench.group, [second])
    bench.node.release(bench.group, [third])
    bench.node.ack(bench.group, [first, second, third])
    assert shown(view_of(bench).to_ack) == {}


def test_a_lease_that_was_extended_knows_since_when(bench: Bench) -> None:
    bench.make()
    bench.publish(b"a")
    bench.skip(10)
    bench.publish(b"b")
    # Two leases with one nonce become one by the extension.
    held = [
        delivery.receipt
        for _ in range(2)
        for delivery in bench.node.lease(bench.group, [bench.topic], "ann", 1, nonce=5)
    ]
    bench.node.extend(bench.group, held, visibility_ms=60_000)
    assert len(view_of(bench).grants) == 1
    bench.skip(30_000)
    bench.node.ack(bench.group, held)
    assert view_of(bench).to_ack.sum_ms == 30_010 + 30_000


def test_counting_begins_anew_with_a_restart(bench: Bench) -> None:
    bench.make()
    bench.publish(b"a")
    bench.receipts()
    bench.skip(3_000)
    bench.crash()
    view = view_of(bench)
    assert shown(view.to_lease) == {}
    (again,) = bench.lease()
    assert again.attempt == 2
    bench.node.ack(bench.group, [again.receipt])
    assert shown(view.to_lease) == {}
    assert shown(view.to_ack) == {5_000: 1}


@pytest.mark.parametrize("commit", [True, False])
def test_an_ack_in_a_transaction_is_counted_when_that_is_committed(
    bench: Bench, commit: bool
) -> None:
    acking = Acking(bench)
    bench.publish(b"a", b"b")
    bench.skip(200)
    assert acking.hold(bench.receipts()) == [None, None]
    acking.writer.sync()
    view = view_of(bench)
    assert shown(view.to_ack) == {}
    bench.skip(100)
    acking.end(commit=commit)
    assert shown(view.to_ack) == ({500: 2} if commit else {})
    assert view.to_ack.sum_ms == (600 if commit else 0)
    assert not view.held_acks.since


# Since when.


def test_a_delayed_message_waits_since_it_was_due(bench: Bench) -> None:
    bench.make()
    bench.publish(b"later", delay_ms=60_000)
    bench.publish(b"then", deliver_at_ms=bench.clock.time_ms + 90_000)
    bench.publish(b"past", deliver_at_ms=1)
    bench.skip(90_000)
    receipts = bench.receipts()
    assert len(receipts) == 3
    view = view_of(bench)
    assert shown(view.to_lease) == {1: 1, 30_000: 1, 300_000: 1}
    assert view.to_lease.sum_ms == 30_000 + 0 + 90_000
    bench.node.ack(bench.group, receipts)
    assert shown(view.to_ack) == shown(view.to_lease)


def test_a_client_whose_clock_is_ahead_has_waited_for_nothing(bench: Bench) -> None:
    bench.make()
    now_ms = bench.clock.time_ms
    append(bench, now_ms + 5_000, now_ms - 400, now_ms)
    receipts = bench.receipts()
    view = view_of(bench)
    assert (shown(view.to_lease), view.to_lease.sum_ms) == ({1: 2, 500: 1}, 400)
    bench.skip(1_000)
    bench.node.ack(bench.group, receipts)
    assert (shown(view.to_ack), view.to_ack.sum_ms) == ({1: 1, 1_000: 1, 2_500: 1}, 2_400)


def test_a_wait_of_days_is_above_every_bound(bench: Bench) -> None:
    bench.make()
    bench.publish(b"x")
    bench.skip(3 * 86_400_000)
    bench.lease()
    assert shown(view_of(bench).to_lease) == {-1: 1}


# Share groups.


@pytest.fixture
def shares(bench: Bench) -> Shares:
    return Shares(bench)


def test_share_consumers_are_counted_by_batch(bench: Bench, shares: Shares) -> None:
    bench.make()
    now_ms = bench.clock.time_ms
    append(bench, now_ms, now_ms + 3)
    bench.skip(2_000)
    append(bench, now_ms + 2_000)
    bench.skip(80)
    assert shares.acquire() == [(0, 3, 1)]
    view = view_of(bench)
    assert (shown(view.to_lease), view.to_lease.sum_ms) == ({100: 1, 2_500: 2}, 2 * 2_080 + 80)
    bench.skip(7_000)
    shares.settle((1, 2, [ACCEPT]))
    assert (shown(view.to_ack), view.to_ack.sum_ms) == ({10_000: 2}, 9_080 + 7_080)
    shares.settle((0, 0, [ACCEPT]))
    assert view.to_ack.sum_ms == 2 * 9_080 + 7_080


def test_share_consumers_wait_for_a_delayed_message_since_it_was_due(
    bench: Bench, shares: Shares
) -> None:
    bench.make()
    bench.publish(b"now", b"now")
    bench.publish(b"later", delay_ms=60_000)
    bench.publish(b"now")
    bench.skip(61_000)
    assert shares.acquire() == [(0, 4, 1)]
    view = view_of(bench)
    assert view.to_lease.sum_ms == 3 * 61_000 + 1_000
    assert shown(view.to_lease) == {1_000: 1, 300_000: 3}
    assert bench.node.delayed_totals() == [(bench.topic, 1, 0, 0)]
    shares.settle((0, 3, [ACCEPT]))
    assert shown(view.to_ack) == shown(view.to_lease)


def test_both_kinds_of_consumers_count_in_one_place(bench: Bench, shares: Shares) -> None:
    bench.make()
    bench.publish(b"a")
    bench.lease()
    bench.publish(b"b")
    shares.acquire()
    assert shown(view_of(bench).to_lease) == {1: 2}


# The numbers.


def test_several_runs_of_messages_are_counted_as_each_of_them_would_be() -> None:
    since = Since([2, 4, 5, 9], [1_000, 400, 990, 0], is_each=True)
    times = {2: 1_000, 4: 400, 5: 990, 9: 0}
    for runs in ([2, 3, 4, 6, 9, 10], [2, 3, 9, 10], [4, 6], [5, 6]):
        together, alone = Latency(), Latency()
        since.count(together, runs, 1_004)
        for offset in offsets_of(runs):
            alone.add(times[offset], 1, 1_004)
        assert (together.counts, together.sum_ms) == (alone.counts, alone.sum_ms)
        assert together.recent_range(1_004) == alone.recent_range(1_004)


def test_a_run_of_messages_is_counted_as_each_of_them_would_be() -> None:
    since = Since([0, 4, 5, 9], [1_000, 400, 1_000, 0])
    times = [1_000] * 4 + [400] + [1_000] * 4 + [0] * 3
    for start in range(12):
        for end in range(start + 1, 13):
            together, alone = Latency(), Latency()
            since.count(together, [start, end], 1_004)
            for time_ms in times[start:end]:
                alone.add(time_ms, 1, 1_004)
            assert (together.counts, together.sum_ms) == (alone.counts, alone.sum_ms)
            assert together.recent_range(1_004) == alone.recent_range(1_004)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 75), (0.95, 98), (0.99, 100), (0.0, 50)])
def test_a_quantile_lies_in_its_bucket_where_its_rank_does(share: float, expected: int) -> None:
    latency = Latency()
    latency.add(0, 200, 70)
    assert quantile_ms(latency.counts, share, 0, 1_000) == expected


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("waited_ms", [0, 2_600, 10 * BOUNDS_MS[-1]])
def test_a_quantile_is_not_beyond_what_any_message_waited(share: float, waited_ms: int) -> None:
    latency = Latency()
    latency.add(0, 100, waited_ms)
    assert quantile_ms(latency.counts, share, *latency.recent_range(waited_ms)) == waited_ms


def test_a_quantile_of_nothing_is_unknown() -> None:
    assert quantile_ms(Latency().counts, 0.5, 0, 0) is None


def test_a_message_that_waited_alone_is_its_groups_quantiles(bench: Bench) -> None:
    bench.make()
    bench.publish(b"a")
    bench.skip(2_600)
    bench.lease()
    found = bench.node.queue_statistics(bench.group)
    assert found.to_lease == (1, 2_600, 2_600, 2_600)
    assert found.to_ack == (0, None, None, None)


def test_a_range_is_of_what_is_recent() -> None:
    latency = Latency()
    latency.add(0, 1, 70)
    assert latency.recent_range(70) == (70, 70)
    later_ms = 70 + RECENT_MS + 1
    times = (later_ms - 3, later_ms - 4)
    latency.add_each(times, later_ms - 5, later_ms - 3, later_ms)
    assert latency.recent_range(later_ms) == (3, 70)
    later_ms += RECENT_MS + 1
    assert latency.recent_range(later_ms) == (3, 4)
    latency.add(later_ms - 9, 1, later_ms)
    assert latency.recent_range(later_ms) == (3, 9)
    later_ms += 2 * RECENT_MS + 1
    latency.add(later_ms - 20, 1, later_ms)
    assert latency.recent_range(later_ms) == (20, 20)


def test_what_is_recent_forgets_what_was_long_ago() -> None:
    latency = Latency()
    assert sum(latency.recent(0)) == 0
    latency.add(0, 3, 10)
    assert sum(latency.recent(RECENT_MS)) == 3
    latency.add(RECENT_MS, 4, RECENT_MS + 10)
    assert sum(latency.recent(RECENT_MS + 10)) == 7
    latency.add(2 * RECENT_MS, 5, 2 * RECENT_MS + 20)
    assert sum(latency.recent(2 * RECENT_MS + 20)) == 9
    assert sum(latency.recent(10 * RECENT_MS)) == 0
    assert sum(latency.counts) == 12


def test_a_clock_that_is_set_back_does_not_stop_what_is_recent() -> None:
    latency = Latency()
    latency.add(10 * RECENT_MS, 3, 10 * RECENT_MS)
    latency.add(0, 2, 5)
    assert sum(latency.recent(5)) == 5
    assert sum(latency.recent(RECENT_MS + 6)) == 5
    assert sum(latency.recent(2 * RECENT_MS + 7)) == 0


def test_a_view_that_nobody_leases_from_has_no_table(bench: Any) -> None:
    bench.make()
    view = view_of(bench)
    assert view.to_lease.counts == [] and view.to_ack.counts == []


def test_messages_with_other_headers_wait_since_they_were_published(bench: Bench) -> None:
    bench.make()
    headers = (("trace", b"1"), *attribute_headers(priority="high"))
    bench.node.publish(bench.topic, [Outgoing(b"x", None, headers)])
    bench.skip(20)
    bench.lease()
    assert shown(view_of(bench).to_lease) == {25: 1}
