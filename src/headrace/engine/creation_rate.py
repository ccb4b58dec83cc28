"""How fast topics may be made because a client named them.

A burst of them is fine: a test suite or a new deployment names hundreds at once. What
goes on at that speed is a client with a bug, or a hostile one, and each topic is a
folder, files and memory for ever. So there is a store of creations, filled at a rate:

    store   burst seconds of the rate at most; each creation takes one

Topics that are made by their own call do not take from it.
"""

from __future__ import annotations

# The store holds as many as the rate brings in this time.
BURST_SECONDS = 10


class CreationRate:
    def __init__(self, per_second: float | None) -> None:
        """None: no limit, as for a handle in a program of its own."""
        self._per_second = per_second
        self._stored = BURST_SECONDS * per_second if per_second is not None else 0.0
        self._at_ms: int | None = None

    def take(self, now_ms: int) -> bool:
        """Whether one more may be made now."""
        if self._per_second is None:
            return True
        most = max(1.0, BURST_SECONDS * self._per_second)
        passed_ms = 0 if self._at_ms is None else max(0, now_ms - self._at_ms)
        self._at_ms = now_ms
        self._stored = min(most, self._stored + passed_ms * self._per_second / 1000)
        if self._stored < 1:
            return False
        self._stored -= 1
        return True
