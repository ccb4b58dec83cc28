"""A clock that moves when it is told to.

    clock.skip(3600)     an hour passes, and whoever waits looks again
    clock.jump(3600)     somebody sets the clock an hour ahead: no time passes, so no
                         lease ends and no delay is over, but what was to be delivered
                         at a moment within that hour comes
    clock.jump(-3600)    ... or back
    clock.sleep(3600)    the machine sleeps for an hour: delays are over, leases go on

With `autoskip`, which is the default, nobody ever sleeps: where a wait would
block, the clock jumps to the earlier of the next due time and the wait's end.

    now ----- due -------- end of the wait
     '-- jump -->            `receive(wait=...)` returns what became due

What happens at a certain time, such as the extension of a lease that is being worked
on, happens on the way, with the clock at that time:

    skip(60)    now -- 15: extended -- 30: extended -- 45: extended -- 60

A wait without end and with nothing due has nowhere to jump, and blocks until
another thread publishes. With several threads prefer `autoskip=False`: one thread
that waits would make time pass for the leases of all others.

Rejected: patching `time.time`. It reaches code that has nothing to do with the
queue, and misses the waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from operator import itemgetter

from headrace.client.times import Duration, Instant, datetime_of, duration_ms, instant_ms
from headrace.core.errors import InvalidArgument
from headrace.core.ports import Reading

# An instant like any other, the same in every run.
START = datetime(2030, 1, 1, tzinfo=UTC)


class ManualClock:
    def __init__(self, start: Instant = START, *, autoskip: bool = True) -> None:
        self.autoskip = autoskip
        self._reading = Reading(instant_ms("start", start))
        self._lock = threading.Lock()
        self._wakes: list[Callable[[], None]] = []
        self._alarms: list[tuple[int, Callable[[], None]]] = []

    def now_ms(self) -> int:
        return self._reading.now_ms

    def read(self) -> Reading:
        return self._reading

    def now(self) -> datetime:
        return datetime_of(self._reading.now_ms)

    def skip(self, duration: Duration) -> None:
        """Let this much time pass: seconds or a timedelta."""
        self._pass(duration_ms("duration", duration))

    def skip_to(self, instant_ms: int) -> None:
        """Move on to this millisecond; stays where it is when that is past."""
        self._pass(0, instant_ms)

    def jump(self, duration: Duration) -> None:
        """Set the clock by this much, backwards where it is negative. No time passes."""
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
        by_ms = duration_ms("duration", abs(seconds)) * (-1 if seconds < 0 else 1)
        self._set(by_ms, slept_ms=0)

    def sleep(self, duration: Duration) -> None:
        """The machine sleeps for this long: time passes, and nobody could use it."""
        slept_ms = duration_ms("duration", duration)
        self._set(slept_ms, slept_ms=slept_ms)

    def _set(self, by_ms: int, *, slept_ms: int) -> None:
        """Alarms are as far away as they were."""
        with self._lock:
            now_ms, stepped, slept = self._reading
            self._reading = Reading(now_ms + by_ms, stepped + by_ms, slept + slept_ms)
            self._alarms = [(at_ms + by_ms, call) for at_ms, call in self._alarms]
            wakes = list(self._wakes)
        for wake in wakes:
            wake()

    def _pass(self, left_ms: int, until_ms: int | None = None) -> None:
        """Move on by `left_ms`, or to `until_ms`, from one alarm to the next. Threads
        that skip at the same time add up."""
        while True:
            with self._lock:
                now_ms = self._reading.now_ms
                if until_ms is not None:
                    left_ms = max(0, until_ms - now_ms)
                end_ms = now_ms + left_ms
                first = min(self._alarms, key=itemgetter(0), default=None)
                if first is None or first[0] > end_ms:
                    has_moved = now_ms != end_ms or until_ms is None
                    self._reading = self._reading._replace(now_ms=end_ms)
                    wakes = list(self._wakes) if has_moved else []
                    break
                self._alarms.remove(first)
                left_ms -= max(0, first[0] - now_ms)
                self._reading = self._reading._replace(now_ms=max(now_ms, first[0]))
            first[1]()
        for wake in wakes:
            wake()

    def set(self, instant: datetime) -> None:
        """Move on to this moment. Time never goes back: InvalidArgument. A clock that
        somebody sets is `jump`."""
        target_ms, now_ms = instant_ms("instant", instant), self._reading.now_ms
        if target_ms < now_ms:
            raise InvalidArgument(f"the clock shows {self.now()} and cannot go back to {instant}")
        self.skip(timedelta(milliseconds=target_ms - now_ms))

    def add_listener(self, wake: Callable[[], None]) -> None:
        with self._lock:
            self._wakes.append(wake)

    def remove_listener(self, wake: Callable[[], None]) -> None:
        with self._lock:
            self._wakes.remove(wake)

    def add_alarm(self, at_ms: int, ring: Callable[[], None]) -> None:
        """Has `ring` called once, by the thread that moves the clock to that time or
        beyond, with the clock at that time. One that is past rings at the next skip."""
        with self._lock:
            self._alarms.append((at_ms, ring))

    def remove_alarm(self, ring: Callable[[], None]) -> None:
        """Fine when it has rung already."""
        with self._lock:
            self._alarms = [each for each in self._alarms if each[1] != ring]

    def __repr__(self) -> str:
        return f"<ManualClock {self.now().isoformat()}>"
