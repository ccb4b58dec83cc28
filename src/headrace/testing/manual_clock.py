"""A clock that moves when it is told to.

    clock.skip(3600)     an hour passes, and whoever waits looks again

With `autoskip`, which is the default, nobody ever sleeps: where a wait would
block, the clock jumps to the earlier of the next due time and the wait's end.

    now ----- due -------- end of the wait
     '-- jump -->            `receive(wait=...)` returns what became due

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

from headrace.client.times import Duration, Instant, datetime_of, duration_ms, instant_ms
from headrace.core.errors import InvalidArgument

# An instant like any other, the same in every run.
START = datetime(2030, 1, 1, tzinfo=UTC)


class ManualClock:
    def __init__(self, start: Instant = START, *, autoskip: bool = True) -> None:
        self.autoskip = autoskip
        self._now_ms = instant_ms("start", start)
        self._lock = threading.Lock()
        self._wakes: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        return self._now_ms

    def now(self) -> datetime:
        return datetime_of(self._now_ms)

    def skip(self, duration: Duration) -> None:
        """Let this much time pass: seconds or a timedelta."""
        skipped_ms = duration_ms("duration", duration)
        with self._lock:
            self._now_ms += skipped_ms
            wakes = list(self._wakes)
        for wake in wakes:
            wake()

    def skip_to(self, instant_ms: int) -> None:
        """Move on to this millisecond; stays where it is when that is past."""
        with self._lock:
            if instant_ms <= self._now_ms:
                return
            self._now_ms = instant_ms
            wakes = list(self._wakes)
        for wake in wakes:
            wake()

    def set(self, instant: datetime) -> None:
        """Move on to this moment. Time never goes back: InvalidArgument."""
        target_ms = instant_ms("instant", instant)
        if target_ms < self._now_ms:
            raise InvalidArgument(f"the clock shows {self.now()} and cannot go back to {instant}")
        self.skip(timedelta(milliseconds=target_ms - self._now_ms))

    def add_listener(self, wake: Callable[[], None]) -> None:
        with self._lock:
            self._wakes.append(wake)

    def remove_listener(self, wake: Callable[[], None]) -> None:
        with self._lock:
            self._wakes.remove(wake)

    def __repr__(self) -> str:
        return f"<ManualClock {self.now().isoformat()}>"
