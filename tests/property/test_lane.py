"""The lane schedule against a twin that serves message by message."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.lane import LANE_COUNT, WEIGHTS, LaneSchedule

STARVATION_MS = 100
LANES = range(LANE_COUNT)


class OneByOne:
    """The twin: asks anew for every message, and never looks ahead."""

    def __init__(self) -> None:
        self.quantum = list(WEIGHTS)
        self.served_ms = [-(10**9)] * LANE_COUNT
        self.ready_since_ms: list[int | None] = [None] * LANE_COUNT

    def serve(self, ready: list[int], count: int, now_ms: int) -> list[int]:
        left = list(ready)
        for lane in LANES:
            if not left[lane]:
                self.ready_since_ms[lane] = None
            elif self.ready_since_ms[lane] is None:
                self.ready_since_ms[lane] = now_ms
        served: list[int] = []
        while len(served) < count and any(left):
            lane = self.choose(left, now_ms)
            self.quantum[lane] = max(0, self.quantum[lane] - 1)
            self.served_ms[lane] = now_ms
            left[lane] -= 1
            if not left[lane]:
                self.ready_since_ms[lane] = None
            served.append(lane)
        return served

    def choose(self, left: list[int], now_ms: int) -> int:
        starving = []
        for lane in LANES:
            since_ms = self.ready_since_ms[lane]
            if left[lane] and since_ms is not None:
                start_ms = max(self.served_ms[lane], since_ms)
                if now_ms - start_ms >= STARVATION_MS:
                    starving.append((start_ms, lane))
        if starving:
            return min(starving)[1]
        if not any(self.quantum[lane] for lane in LANES if left[lane]):
            self.quantum = list(WEIGHTS)
        return next(lane for lane in LANES if left[lane] and self.quantum[lane])


any_lanes = st.lists(
    st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 400)),
    min_size=LANE_COUNT,
    max_size=LANE_COUNT,
)
one_lane = st.builds(
    lambda full, count: [count if lane == full else 0 for lane in LANES],
    st.sampled_from(LANES),
    st.integers(1, 400),
)
ready_counts = st.one_of(any_lanes, one_lane)
calls = st.tuples(ready_counts, st.integers(0, 350), st.integers(0, 130))


@given(st.lists(calls, max_size=25))
def test_the_schedule_serves_as_one_who_asks_for_every_message(
    history: list[tuple[list[int], int, int]],
) -> None:
    schedule, twin = LaneSchedule(STARVATION_MS), OneByOne()
    now_ms = 0
    for ready, count, passed_ms in history:
        now_ms += passed_ms
        plan = schedule.plan(ready, count, now_ms)
        served = twin.serve(ready, count, now_ms)
        assert plan == [(lane, len(list(group))) for lane, group in groupby(served)]
        assert schedule.encode()[:LANE_COUNT] == twin.quantum


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=30),
    st.sets(st.sampled_from(LANES), min_size=1),
)
def test_lanes_that_stay_full_share_by_weight_whatever_the_sizes_of_the_calls(
    sizes: list[int], full: set[int]
) -> None:
    schedule = LaneSchedule(STARVATION_MS)
    ready = [10**9 if lane in full else 0 for lane in LANES]
    delivered = [0] * LANE_COUNT
    for size in sizes:
        for lane, count in schedule.plan(ready, size, 0):
            delivered[lane] += count
    assert sum(delivered) == sum(sizes)
    weight = sum(WEIGHTS[lane] for lane in full)
    for lane in full:
        # Whole rounds are exact, so only the one that is open can be uneven.
        rounds = sum(sizes) // weight
        assert rounds * WEIGHTS[lane] <= delivered[lane] <= (rounds + 1) * WEIGHTS[lane]


@given(
    st.lists(st.tuples(any_lanes, st.integers(1, 40)), min_size=1, max_size=60),
    st.sampled_from(LANES),
)
def test_a_lane_with_messages_waits_for_less_than_two_hundred_of_others(
    history: list[tuple[list[int], int]], waiting: int
) -> None:
    schedule = LaneSchedule(STARVATION_MS)
    passed_by = 0
    for ready, count in history:
        ready = [1_000 if lane == waiting else each for lane, each in enumerate(ready)]
        for lane, taken in schedule.plan(ready, count, 0):
            passed_by = 0 if lane == waiting else passed_by + taken
            assert passed_by < 2 * sum(WEIGHTS)


@given(st.lists(st.tuples(any_lanes, st.integers(0, 60)), min_size=1, max_size=60))
def test_a_lane_that_waited_its_time_is_served_by_the_next_call_that_has_room(
    history: list[tuple[list[int], int]],
) -> None:
    schedule = LaneSchedule(STARVATION_MS)
    now_ms = 0
    since_ms: list[int | None] = [None] * LANE_COUNT
    for ready, passed_ms in history:
        now_ms += passed_ms
        for lane in LANES:
            if not ready[lane]:
                since_ms[lane] = None
            elif since_ms[lane] is None:
                since_ms[lane] = now_ms
        waited = {
            lane
            for lane, since in enumerate(since_ms)
            if since is not None and now_ms - since >= STARVATION_MS
        }
        served = Counter[int]()
        for lane, taken in schedule.plan(ready, LANE_COUNT, now_ms):
            served[lane] += taken
        assert waited <= set(served)
        for lane, taken in served.items():
            # Its wait begins again, or ends.
            since_ms[lane] = None if taken == ready[lane] else now_ms
