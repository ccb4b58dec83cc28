"""The system's two clocks as one: wall time that runs evenly, and says when it was set.

    wall        what people and other machines speak of; somebody may set it
    monotonic   never set; stands still while the machine sleeps

`read` gives wall time that goes at the monotonic clock's rate. Where the system's wall
clock differs by up to a second, this one goes a twentieth faster or slower until they
agree: it never goes back. Where they differ by more, somebody has set the clock, or the
machine has slept: this one is set as well, at once, in either direction, and `stepped_ms`
says by how much. Whoever keeps a deadline that is so-and-so long from now moves it along
(see `engine.clock_steps`): durations never notice that a clock was set, and moments on
the calendar do.

Rejected: standing still until a clock that was set back has caught up. No lease ends and
no delay is over for as long as the clock had been ahead. Rejected: the monotonic clock
plus an offset taken at start. It drifts away from the time that other machines and record
timestamps speak of.
"""

from __future__ import annotations

import threading
import time

from headrace.core.ports import Reading

# Larger differences between the two are a step, smaller ones are made up for.
STEP_MS = 1_000
# A millisecond is made up for in each of these.
SLEW_EVERY_MS = 20
# Readings of two clocks are not taken at the same moment.
AGREED_MS = 2


class SystemClock:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        monotonic_ms = _monotonic_ms()
        # What this clock adds to the monotonic one.
        self._ahead_ms = _wall_ms() - monotonic_ms
        self._slewed_at_ms = monotonic_ms
        self._asleep_ms = _asleep_ms()
        self._stepped_ms = 0
        self._slept_ms = 0
        # The last reading, and the monotonic time at which it was taken.
        self._last = -1, Reading(0)

    def now_ms(self) -> int:
        return self.read().now_ms

    def read(self) -> Reading:
        monotonic_ms = time.monotonic_ns() // 1_000_000
        at_ms, reading = self._last
        if monotonic_ms == at_ms:
            return reading
        off_ms = _wall_ms() - monotonic_ms - self._ahead_ms
        if off_ms > AGREED_MS or off_ms < -AGREED_MS:
            with self._lock:
                self._follow()
        # Two threads that race here can each see their own reading, but neither
        # sees a value below one that it has seen before, but for a step.
        reading = Reading(monotonic_ms + self._ahead_ms, self._stepped_ms, self._slept_ms)
        self._last = monotonic_ms, reading
        return reading

    def _follow(self) -> None:
        monotonic_ms = _monotonic_ms()
        off_ms = _wall_ms() - monotonic_ms - self._ahead_ms
        if -STEP_MS <= off_ms <= STEP_MS:
            if monotonic_ms - self._slewed_at_ms >= SLEW_EVERY_MS:
                self._slewed_at_ms = monotonic_ms
                self._ahead_ms += (off_ms > AGREED_MS) - (off_ms < -AGREED_MS)
            return
        asleep_ms = _asleep_ms()
        self._slept_ms += max(0, min(asleep_ms - self._asleep_ms, off_ms))
        self._asleep_ms = asleep_ms
        self._stepped_ms += off_ms
        self._ahead_ms += off_ms


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _asleep_ms() -> int:
    """How long the machine has slept since it was started, where the system says so."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:
        return 0
    return (time.clock_gettime_ns(clock) - time.monotonic_ns()) // 1_000_000
