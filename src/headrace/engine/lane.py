"""The lane schedule: from which of five lanes the next messages come.

Deficit round robin. In a round each lane may give as many messages as its weight;
lanes are served from critical down; a new round begins when no lane that has
messages has quantum left. Shares of a saturated queue follow the weights whatever
the size of the calls, since what is left of a round lasts from call to call.

    lane      0 critical   1 high   2 normal   3 low   4 background
    weight        50          25       15        7         3
    quantum      [50]        [25]     [ 4]      [7]       [3]      <- mid-round

A lane that is empty keeps its quantum until the round ends, so a critical message
that arrives behind a million normal ones is first in the very next call. It never
keeps more than one round's weight: an hour of silence earns no flood.

A lane with messages that was not served for `starvation_ms`, counted from when it
was last served or from when it was first seen with messages, whichever is later,
earns one message ahead of all others, and then its wait begins again. That message
is paid from the lane's quantum when there is some.

Rejected: strict priority, which starves. Rejected: a weighted draw of chance, whose
shares are right only in the long run and whose history no seed can explain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

from headrace.core.errors import InvalidArgument

LANE_COUNT: Final = 5
WEIGHTS: Final = (50, 25, 15, 7, 3)

_LANES: Final = range(LANE_COUNT)
_NEVER: Final = -1


class LaneSchedule:
    """Decides, and remembers what it decided. It holds no messages."""

    __slots__ = (
        "_last_served_before_ms",
        "_planned",
        "_quantum",
        "_quantum_before",
        "_ready",
        "_ready_since_before_ms",
        "_ready_since_ms",
        "_starvation_ms",
        "last_served_ms",
    )

    def __init__(self, starvation_ms: int) -> None:
        if starvation_ms < 1:
            raise InvalidArgument(f"starvation_ms must be at least 1, not {starvation_ms}")
        self._starvation_ms = starvation_ms
        self._quantum = list(WEIGHTS)
        # When each lane was last planned for; None for never.
        self.last_served_ms: list[int | None] = [None] * LANE_COUNT
        # Since when each lane has been seen with messages; None while empty.
        self._ready_since_ms: list[int | None] = [None] * LANE_COUNT
        # The last plan, as far as it can still be taken back.
        self._planned = [0] * LANE_COUNT
        self._ready: Sequence[int] = self._planned
        self._quantum_before = list(WEIGHTS)
        self._last_served_before_ms: list[int | None] = [None] * LANE_COUNT
        self._ready_since_before_ms: list[int | None] = [None] * LANE_COUNT

    def plan(self, ready: Sequence[int], count: int, now_ms: int) -> list[tuple[int, int]]:
        """From which lanes the next `count` messages come, in order.

        `ready` is how many messages each lane could give. The answer adds up to
        less than `count` only when all lanes together have less. The plan counts
        as served: what is then not found has to be given back by `on_unserved`.
        """
        if len(ready) != LANE_COUNT:
            raise InvalidArgument(f"there are {LANE_COUNT} lanes, not {len(ready)}")
        self._last_served_before_ms = self.last_served_ms.copy()
        self._quantum_before = self._quantum.copy()
        self._ready = ready
        left = list(ready)
        plan: list[tuple[int, int]] = []
        for lane in self._starving(left, now_ms)[: max(count, 0)]:
            plan.append((lane, 1))
            left[lane] -= 1
            count -= 1
            self._quantum[lane] = max(0, self._quantum[lane] - 1)
        self._plan_rounds(left, count, plan)
        self._ready_since_before_ms = self._ready_since_ms.copy()
        self._planned = [0] * LANE_COUNT
        for lane, taken in plan:
            self._planned[lane] += taken
            self.last_served_ms[lane] = now_ms
            if self._planned[lane] >= ready[lane]:
                # Emptied: whoever comes next has not waited since then.
                self._ready_since_ms[lane] = None
        return plan

    def on_unserved(self, lane: int, count: int) -> None:
        """Of the last plan, `count` messages of this lane were not found.

        Their quantum is usable again. When none of the lane's messages were
        found it was not served at all, so its wait goes on where it was.
        """
        if count <= 0:
            return
        self._quantum[lane] = min(WEIGHTS[lane], self._quantum[lane] + count)
        if 0 < self._planned[lane] <= count:
            self.last_served_ms[lane] = self._last_served_before_ms[lane]
        self._ready_since_ms[lane] = self._ready_since_before_ms[lane]
        self._planned[lane] = max(0, self._planned[lane] - count)

    def on_cut_short(self, count: int, now_ms: int) -> None:
        """Of the last plan only the first `count` messages went out: as if no more had
        been asked for."""
        self._quantum = self._quantum_before
        self.last_served_ms = self._last_served_before_ms
        self._ready_since_ms = self._ready_since_before_ms
        self.plan(self._ready, count, now_ms)

    def on_more(self, lane: int, count: int) -> None:
        """So many messages of this lane went out beyond the last plan. They are paid
        from what the lane has left of this round."""
        self._quantum[lane] = max(0, self._quantum[lane] - count)

    def on_clock_set(self, by_ms: int) -> None:
        """The clock was set: nobody has waited for more or less than before."""
        self.last_served_ms = [at and at + by_ms for at in self.last_served_ms]
        self._ready_since_ms = [at and at + by_ms for at in self._ready_since_ms]

    def encode(self) -> list[int]:
        """What a snapshot keeps: five quanta, then five times of last service,
        -1 for never. Since when lanes wait is seen anew."""
        served = [_NEVER if time is None else time for time in self.last_served_ms]
        return [*self._quantum, *served]

    @classmethod
    def decode(cls, values: Sequence[int], starvation_ms: int) -> Self:
        if len(values) != 2 * LANE_COUNT:
            raise InvalidArgument(f"a lane schedule is {2 * LANE_COUNT} values, not {len(values)}")
        schedule = cls(starvation_ms)
        for lane in _LANES:
            # Weights may have changed since the snapshot was written.
            schedule._quantum[lane] = max(0, min(WEIGHTS[lane], values[lane]))
            served = values[LANE_COUNT + lane]
            schedule.last_served_ms[lane] = None if served == _NEVER else served
        return schedule

    def _starving(self, ready: Sequence[int], now_ms: int) -> list[int]:
        """The lanes that earn a message, the longest wait first."""
        waits = []
        for lane in _LANES:
            if ready[lane] <= 0:
                self._ready_since_ms[lane] = None
                continue
            since_ms = self._ready_since_ms[lane]
            if since_ms is None:
                self._ready_since_ms[lane] = since_ms = now_ms
            served_ms = self.last_served_ms[lane]
            if served_ms is not None and served_ms > since_ms:
                since_ms = served_ms
            if now_ms - since_ms >= self._starvation_ms:
                waits.append((since_ms, lane))
        return [lane for _, lane in sorted(waits)] if waits else []

    def _plan_rounds(self, left: list[int], count: int, plan: list[tuple[int, int]]) -> None:
        """Append whole rounds to the plan until the messages or the count end."""
        quantum = self._quantum
        lanes = [lane for lane in _LANES if left[lane] > 0]
        while count > 0 and lanes:
            if len(lanes) == 1:
                taken = min(left[lanes[0]], count)
                self._spend_alone(lanes[0], taken)
                _append(plan, lanes[0], taken)
                return
            for lane in lanes:
                taken = min(left[lane], quantum[lane], count)
                if taken > 0:
                    left[lane] -= taken
                    quantum[lane] -= taken
                    count -= taken
                    _append(plan, lane, taken)
            lanes = [lane for lane in lanes if left[lane] > 0]
            # The round ends only when a message is wanted that no quantum pays
            # for: until then, what an empty lane has left stays usable.
            if count > 0 and lanes:
                quantum[:] = WEIGHTS

    def _spend_alone(self, lane: int, taken: int) -> None:
        """Pay for messages of the only lane that has any, in one step."""
        beyond = taken - self._quantum[lane]
        if beyond <= 0:
            self._quantum[lane] -= taken
            return
        # The lane went through rounds alone, each of them new for all lanes.
        self._quantum[:] = WEIGHTS
        self._quantum[lane] = -beyond % WEIGHTS[lane]


def _append(plan: list[tuple[int, int]], lane: int, count: int) -> None:
    if plan and plan[-1][0] == lane:
        count += plan.pop()[1]
    plan.append((lane, count))
