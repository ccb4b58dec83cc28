"""The probe: comes round four times a second, and sees how late it is.

Whatever keeps the loop busy keeps the probe waiting as long as it keeps everybody
else. Four times a second costs nothing and finds what lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from headrace.server.metrics.counting import Histogram

PROBE_SECONDS = 0.25


class LoopProbe:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        lag: Histogram,
        on_time: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_time` is called each time that it comes round."""
        self._loop = loop
        self._lag = lag
        self._call = on_time
        self._begin()

    def _begin(self) -> None:
        self._due = perf_counter() + PROBE_SECONDS
        self._timer = self._loop.call_later(PROBE_SECONDS, self._on_time)

    def _on_time(self) -> None:
        # The loop's own clock is coarser than ours, and may be early by a little.
        self._lag.add(max(0.0, perf_counter() - self._due))
        self._call()
        self._begin()

    def close(self) -> None:
        self._timer.cancel()
