"""A node's time, as a client knows it: never behind the node's own clock.

    we ask ------ the node reads its clock ------ we have the answer
       '------------------- trip --------------------'

Between its reading and our having it, no more than the trip can have passed, so the node's
clock now shows at most what it said, the trip and one millisecond (it said whole ones).
That is what we take. So a message of a producer, which is stamped here, is never due
before its delay is over, and a lease is never thought to last longer than it does; both
may be off by a trip to the other side.

Between two answers the monotonic clock counts, with an allowance for one that runs slower
than the node's: setting the wall clock of this machine changes nothing.

Rejected: half of the trip. It is the better guess, and early every second time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.core.ports import Reading

# Clocks of computers differ by less than this part, and are asked for again so often.
DRIFT = 0.0002
ASK_AGAIN_MS = 60_000
# What the node says by the way may have been under way for long, so a clock of ours that is
# ahead is believed; but by more than this the node's clock was set back.
BEHIND_MS_MAX = 60_000
# A node whose time differs by more from what it was has had its clock set.
STEP_MS = 1_000


def steady_ms() -> float:
    """Milliseconds that pass also while a laptop sleeps, where the system can tell."""
    number = getattr(time, "CLOCK_BOOTTIME", None)
    return (time.monotonic() if number is None else time.clock_gettime(number)) * 1000


class NodeClock:
    def __init__(self, steady: Callable[[], float] = steady_ms) -> None:
        self._steady = steady
        # What the node's clock showed at most, and our steady time then. Until a node has
        # told us, our own clock has to do.
        self._known_ms = time.time() * 1000
        self._known_at = steady()
        self._is_known = False
        self._trip_ms = 0.0
        # By how much the node's clock was set, in all.
        self._stepped_ms = 0

    def begin(self) -> float:
        """Before the node is asked: what `on_answer` needs."""
        return self._steady()

    def on_answer(self, node_ms: int, begun: float) -> None:
        now = self._steady()
        self._trip_ms = (now - begun) * (1 + DRIFT)
        self._know(node_ms, now)

    def on_news(self, node_ms: int) -> None:
        """What the node's clock showed some time before now."""
        if not node_ms <= self.now_ms() <= node_ms + BEHIND_MS_MAX:
            self._know(node_ms, self._steady())

    def _know(self, node_ms: int, at: float) -> None:
        before_ms = self.now_ms()
        self._known_ms, self._known_at = node_ms + self._trip_ms + 1, at
        by_ms = self.now_ms() - before_ms
        # A little is the way of an answer, and not a step.
        if self._is_known and abs(by_ms) > STEP_MS + self._trip_ms:
            self._stepped_ms += by_ms
        self._is_known = True

    @property
    def is_old(self) -> bool:
        """Whether the node should be asked again."""
        return self._steady() - self._known_at > ASK_AGAIN_MS

    def now_ms(self) -> int:
        passed = self._steady() - self._known_at
        return int(self._known_ms + passed * (1 + DRIFT)) + 1

    def read(self) -> Reading:
        return Reading(self.now_ms(), self._stepped_ms)
