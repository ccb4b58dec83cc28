"""The wall clock, without its steps back.

Lease deadlines and segment ages compare two readings. When the system's clock is
set back, this one stands still until the other has caught up, so that no lease
grows longer and nothing becomes younger.

Rejected: the monotonic clock plus an offset taken at start. It drifts away from
the time that other machines and record timestamps speak of.
"""

from __future__ import annotations

import time


class SystemClock:
    def __init__(self) -> None:
        self._latest_ms = 0

    def now_ms(self) -> int:
        # Two threads that race here can each see their own reading, but neither
        # sees a value below one that it has seen before.
        now = time.time_ns() // 1_000_000
        if now < self._latest_ms:
            return self._latest_ms
        self._latest_ms = now
        return now
