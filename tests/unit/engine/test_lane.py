"""The lane schedule: shares, urgency and patience."""

from __future__ import annotations

import random

import pytest

from headrace.core.errors import InvalidArgument
from headrace.engine.lane import LANE_COUNT, WEIGHTS, LaneSchedule

STARVATION_MS = 30_000
CRITICAL, HIGH, NORMAL, LOW, BACKGROUND = range(LANE_COUNT)
MILLION = 1_000_000


def test_the_weights_are_percentages() -> None:
    assert len(WEIGHTS) == LANE_COUNT
    assert sum(WEIGHTS) == 100


def test_a_round_serves_every_lane_by_its_weight_from_critical_down() -> None:
    schedule = LaneSchedule(STARVATION_MS)
    assert schedule.plan([MILLION] * LANE_COUNT, 100, 0) == list(enumerate(WEIGHTS))


@pytest.mark.parametrize("call_size", [1, 7, 100, 1000])
def test_shares_of_a_saturated_queue_follow_the_weights(call_size: int) -> None:
    schedule = LaneSchedule(STARVATION_MS)
    delivered = [0] * LANE_COUNT
    while sum(delivered) < 10_000:
        for lane, count in schedule.plan([MILLION] * LANE_COUNT, call_size, 0):
            delivered[lane] += count
    for lane in range(LANE_COUNT):
        share = 100 * delivered[lane] / sum(delivered)
        assert abs(share - WEIGHTS[lane]) <= 2


def test_a_critical_message_behind_a_million_normal_ones_is_first_in_the_next_call() -> None:
    schedule = LaneSchedule(STARVATION_MS)
    assert schedule.plan([0, 0, MILLION, 0, 0], 137, 0) == [(NORMAL, 137)]
    assert schedule.plan([1, 0, MILLION, 0, 0], 3, 0) == [(CRITICAL, 1), (NORMAL, 2)]


def test_an_empty_lane_saves_up_no_more_than_one_round() -> None:
    schedule = LaneSchedule(STARVATION_MS)
    schedule.plan([0, 0, MILLION, 0, 0], 100_000, 0)
    plan = schedule.plan([MILLION, 0, MILLION, 0, 0], 60, 0)
    assert plan[0] == (CRITICAL, WEIGHTS[CRITICAL])
    assert plan[1][0] == NORMAL


def test_deficits_last_from_call_to_call() -> None:
    schedule = LaneSchedule(STARVATION_MS)
    ready = [MILLION, MILLION, 0, 0, 0]
    assert schedule.plan(ready, 49, 0) == [(CRITICAL, 49)]
    assert schedule.plan(ready, 2, 0) == [(CRITICAL, 1), (HIGH, 1)]
    assert schedule.plan(ready, 25, 0) == [(HIGH, 24), (CRITICAL, 1)]


def test_a_single_lane_is_planned_in_one_piece_and_its_rounds_are_paid() -> None:
    schedule = LaneSchedule(STARVATION_MS)
    assert schedule.plan([0, 0, 0, 0, MILLION], 10_000, 0) == [(BACKGROUND, 10_000)]
    # 10,000 is 3,333 whole rounds of three and one message of the next.
    assert schedule.plan([0, 0, 0, 1, MILLION], 4, 0) == [(LOW, 1), (BACKGROUND, 3)]
    assert schedule.encode()[:LANE_COUNT] == [50, 25, 15, 7, 2]


def test_rounds_that_one_lane_goes_through_alone_are_new_for_all_lanes() -> None:
    schedule = LaneSchedule(STARVATION_MS)
    schedule.plan([50, 25, 0, 0, 0], 75, 0)
    assert schedule.encode()[:LANE_COUNT] == [0, 0, 15, 7, 3]
    schedule.plan([0, 0, MILLION, 0, 0], 20, 0)
    assert schedule.encode()[:LANE_COUNT] == [50, 25, 10, 7, 3]


def test_a_plan_is_short_only_when_all_lanes_together_are() -> None:
    schedule = LaneSchedule(STARVATION_MS)
    assert schedule.plan([0] * LANE_COUNT, 10, 0) == []
    assert schedule.plan([1, 0, 2, 0, 1], 10, 0) == [(CRITICAL, 1), (NORMAL, 2), (BACKGROUND, 1)]
    assert schedule.plan([5] * LANE_COUNT, 0, 0) == []


def test_a_lane_that_waited_too_long_earns_one_message_ahead_of_all_others() -> None:
    schedule = LaneSchedule(STARVATION_MS)
    ready = [MILLION, 0, 0, 0, 10]
    assert schedule.plan(ready, 1, 0) == [(CRITICAL, 1)]
    assert schedule.plan(ready, 1, STARVATION_MS - 1) == [(CRITICAL, 1)]
    assert schedule.plan(ready, 2, STARVATION_MS) == [(BACKGROUND, 1), (CRITICAL, 1)]
    # The wait begins again.
    assert schedule.plan(ready, 2, 2 * STARVATION_MS - 1) == [(CRITICAL, 2)]
    assert schedule.plan(ready, 2, 2 * STARVATION_MS) == [(BACKGROUND, 1), (CRITICAL, 1)]


def test_a_lane_waits_from_when_it_was_first_seen_with_messages() -> None:
    schedule = LaneSchedule(STARVATION_MS)
    schedule.plan([9, 0, 0, 0, 0], 1, 0)
    late_ms = 10 * STARVATION_MS
    assert schedule.plan([9, 0, 0, 0, 1], 1, late_ms) == [(CRITICAL, 1)]
    assert schedule.plan([0, 0, 0, 0, 0], 1, late_ms + 5) == []
    # Empty in between, so the wait starts over.
    assert schedule.plan([9, 0, 0, 0, 1], 1, late_ms + 6) == [(CRITICAL, 1)]
    assert schedule.plan([9, 0, 0, 0, 1], 1, late_ms + STARVATION_MS) == [(CRITICAL, 1)]
    assert schedule.plan([9, 0, 0, 0, 1], 1, late_ms + STARVATION_MS + 6) == [(BACKGROUND, 1)]


def test_the_longest_wait_is_served_first() -> None:
    schedule = LaneSchedule(STARVATION_MS)
    schedule.plan([9, 0, 0, 0, 9], 1, 0)
    schedule.plan([9, 0, 9, 0, 9], 1, 10)
    assert schedule.plan([9, 0, 9, 0, 9], 1, 100) == [(CRITICAL, 1)]
    now_ms = STARVATION_MS + 20
    assert schedule.plan([9, 0, 9, 0, 9], 1, now_ms) == [(BACKGROUND, 1)]
    assert schedule.plan([9, 0, 9, 0, 9], 1, now_ms) == [(NORMAL, 1)]


def test_what_was_not_found_is_given_back() -> None:
    schedule = LaneSchedule(STARVATION_MS)
    ready = [MILLION, MILLION, 0, 0, 0]
    assert schedule.plan(ready, 50, 0) == [(CRITICAL, 50)]
    schedule.on_unserved(CRITICAL, 20)
    assert schedule.plan(ready, 21, 0) == [(CRITICAL, 20), (HIGH, 1)]


def test_giving_back_never_exceeds_one_round() -> None:
    schedule = LaneSchedule(STARVATION_MS)
    schedule.plan([0, 0, 0, 0, MILLION], 1000, 0)
    schedule.on_unserved(BACKGROUND, 1000)
    assert schedule.encode()[:LANE_COUNT] == list(WEIGHTS)


def test_a_lane_of_which_nothing_was_found_was_not_served() -> None:
    schedule = LaneSchedule(STARVATION_MS)
    schedule.plan([0, 0, 5, 0, 0], 1, 100)
    assert schedule.last_served_ms == [None, None, 100, None, None]
    schedule.plan([0, 0, 4, 0, 0], 4, 200)
    schedule.on_unserved(NORMAL, 3)
    assert schedule.last_served_ms[NORMAL] == 200
    schedule.on_unserved(NORMAL, 1)
    assert schedule.last_served_ms[NORMAL] == 100
    # Giving back nothing, or more than was planned, takes back nothing further.
    schedule.on_unserved(NORMAL, 0)
    schedule.on_unserved(NORMAL, 7)
    assert schedule.last_served_ms[NORMAL] == 100


def test_a_schedule_that_was_stored_goes_on_where_it_was() -> None:
    schedule = LaneSchedule(STARVATION_MS)
    schedule.plan([MILLION] * LANE_COUNT, 60, 5)
    again = LaneSchedule.decode(schedule.encode(), STARVATION_MS)
    assert again.last_served_ms == schedule.last_served_ms
    ready = [MILLION] * LANE_COUNT
    assert again.plan(ready, 333, 6) == schedule.plan(ready, 333, 6)


def test_misuse_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        LaneSchedule(0)
    with pytest.raises(InvalidArgument):
        LaneSchedule(STARVATION_MS).plan([1, 2, 3], 1, 0)
    with pytest.raises(InvalidArgument):
        LaneSchedule.decode([1, 2, 3], STARVATION_MS)


def test_a_plan_that_is_cut_short_is_as_if_no_more_had_been_asked_for() -> None:
    randomly = random.Random(3)
    for _ in range(300):
        schedules = [LaneSchedule(500) for _ in range(2)]
        now_ms = 1_000
        for _ in range(6):
            now_ms += randomly.randrange(400)
            ready = [randomly.choice([0, 3, 40, 1_000]) for _ in range(LANE_COUNT)]
            count = randomly.randrange(1, 300)
            served = randomly.randrange(count + 1)
            cut, expected = schedules
            cut.plan(ready, count, now_ms)
            cut.on_cut_short(served, now_ms)
            expected.plan(ready, served, now_ms)
            assert cut.encode() == expected.encode()
            assert cut._starving([1] * LANE_COUNT, now_ms + 300) == expected._starving(
                [1] * LANE_COUNT, now_ms + 300
            )
