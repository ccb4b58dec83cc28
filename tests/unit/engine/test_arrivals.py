"""Since when messages wait whose timestamps cannot be right: since the node took them."""

from __future__ import annotations

import pytest
from tests.unit.engine.conftest import Bench
from tests.unit.engine.share_bench import Shares
from tests.unit.engine.test_latency import append, shown, view_of

from headrace.engine.age import published_ms, waiting_ms
from headrace.engine.arrivals import NOTES_MAX, OFF_MS_MAX, STEP_MS, Arrivals

YEAR_1, YEAR_9999 = -62_135_596_800_000, 253_402_300_799_999
NOW_MS = 1_700_000_000_000
ABSURD = [YEAR_1, YEAR_9999, -1, 0, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("absurd_ms", ABSURD)
def test_a_message_of_an_absurd_time_has_waited_since_it_was_taken(
    bench: Bench, absurd_ms: int
) -> None:
    bench.make()
    bench.skip(10_000)
    append(bench, absurd_ms)
    bench.skip(40)
    receipts = bench.receipts()
    view = view_of(bench)
    assert (shown(view.to_lease), view.to_lease.sum_ms) == ({50: 1}, 40)
    bench.skip(700)
    bench.node.ack(bench.group, receipts)
    assert (shown(view.to_ack), view.to_ack.sum_ms) == ({1000: 1}, 740)


def test_one_absurd_time_among_others_does_not_spoil_the_quantiles(bench: Bench) -> None:
    bench.make()
    for _ in range(20):
        now_ms = bench.clock.now_ms()
        append(bench, now_ms, YEAR_1, now_ms, YEAR_9999, now_ms - 1)
        bench.skip(40)
        bench.lease(100)
    told = bench.node.queue_statistics(bench.group).to_lease
    assert told.count == 100
    assert told.p99_ms is not None
    assert told.p99_ms <= STEP_MS + 50


@pytest.mark.parametrize("behind_ms", [0, 1, OFF_MS_MAX])
def test_a_time_that_is_a_little_off_is_believed(bench: Bench, behind_ms: int) -> None:
    bench.make()
    append(bench, bench.clock.now_ms() - behind_ms)
    bench.skip(40)
    bench.lease()
    assert view_of(bench).to_lease.sum_ms == behind_ms + 40


def test_a_backlog_is_as_old_as_it_says(bench: Bench) -> None:
    bench.make()
    began_ms = bench.clock.now_ms()
    for _ in range(3 * NOTES_MAX):
        bench.publish(b"x")
        bench.skip(STEP_MS)
    bench.skip(24 * 3_600_000)
    now_ms = bench.clock.now_ms()
    leased = bench.lease(1_000)
    assert len(leased) == 3 * NOTES_MAX
    assert view_of(bench).to_lease.sum_ms == sum(now_ms - each.created_at_ms for each in leased)
    assert leased[0].created_at_ms == began_ms


@pytest.mark.parametrize("absurd_ms", [YEAR_1, YEAR_9999])
def test_from_before_a_restart_an_absurd_time_is_that_of_the_start(
    bench: Bench, absurd_ms: int
) -> None:
    bench.make()
    published_at_ms = bench.clock.now_ms()
    bench.publish(b"good")
    append(bench, absurd_ms)
    bench.skip(5_000)
    bench.reopen()
    bench.skip(40)
    bench.lease()
    waited_ms = bench.clock.now_ms() - published_at_ms
    assert view_of(bench).to_lease.sum_ms == waited_ms + 40


@pytest.mark.parametrize("absurd_ms", [YEAR_1, YEAR_9999])
def test_a_share_group_counts_from_the_same_time(bench: Bench, absurd_ms: int) -> None:
    bench.make()
    append(bench, absurd_ms)
    bench.skip(40)
    assert Shares(bench).acquire() == [(0, 1, 1)]
    view = view_of(bench)
    assert (shown(view.to_lease), view.to_lease.sum_ms) == ({50: 1}, 40)


@pytest.mark.parametrize("absurd_ms", [YEAR_1, YEAR_9999])
def test_ages_are_told_from_the_same_time(bench: Bench, absurd_ms: int) -> None:
    bench.make()
    bench.skip(10_000)
    taken_ms = bench.clock.now_ms()
    append(bench, absurd_ms)
    bench.skip(40)
    partition = bench.partition()
    assert published_ms(partition, 0) == waiting_ms(partition, 0) == taken_ms
    assert bench.node.queue_statistics(bench.group).oldest_ms == taken_ms


# The notes themselves.


def test_notes_are_bounded_and_the_latest_are_the_finest() -> None:
    arrivals = Arrivals(0, NOW_MS)
    count = 20 * NOTES_MAX
    for number in range(count):
        arrivals.note(number, NOW_MS + number * STEP_MS, NOW_MS + number * STEP_MS)
    assert arrivals.count <= NOTES_MAX
    off = [NOW_MS + place * STEP_MS - arrivals.believed(place, -1) for place in range(count)]
    assert min(off) == 0
    assert max(off[-NOTES_MAX // 4 :]) <= STEP_MS * 2
    assert off[-1] == 0


def test_a_truncated_log_forgets_when_its_end_came() -> None:
    arrivals = Arrivals(0, NOW_MS)
    for number in range(10):
        arrivals.note(number, YEAR_1, NOW_MS + number)
    arrivals.note(4, YEAR_1, NOW_MS + 100)
    assert arrivals.believed(3, YEAR_1) == NOW_MS + 3
    assert arrivals.believed(4, YEAR_1) == arrivals.believed(9, YEAR_1) == NOW_MS + 100
    # Also below where it was when the process began.
    cut = Arrivals(10, NOW_MS)
    cut.note(4, YEAR_1, NOW_MS + 100)
    assert (cut.believed(3, YEAR_1), cut.believed(4, YEAR_1)) == (NOW_MS, NOW_MS + 100)


def test_a_clock_that_was_set_back_is_no_trouble() -> None:
    arrivals = Arrivals(0, NOW_MS)
    arrivals.note(0, NOW_MS, NOW_MS)
    arrivals.note(1, NOW_MS - 3_600_000, NOW_MS - 3_600_000)
    assert arrivals.believed(1, NOW_MS - 3_600_000) == NOW_MS - 3_600_000
    assert arrivals.believed(0, NOW_MS) == NOW_MS
    assert arrivals.believed(1, YEAR_1) == NOW_MS - 3_600_000
