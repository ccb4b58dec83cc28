"""Sweeps: every connection is looked at once in a while, a few of them in each turn.

    step      step      step      ...      the last step: the sweep is over, and what it found
    20 ms     20 ms     20 ms              of all of them together is judged

A node may have ten thousand connections, and looking at all of them at once would stop it for
tenths of a second: again and again, whoever they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from math import ceil
from typing import Generic, TypeVar

T = TypeVar("T")

STEP_SECONDS = 0.02
LOOKED_AT_MIN = 16


class Sweeper(Generic[T]):
    def __init__(
        self,
        seconds: float,
        those: Callable[[], Iterable[T]],
        look: Callable[[T], None],
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`look` at each of `those` within so many seconds; then `on_end`."""
        self._seconds = seconds
        self._those = those
        self._look = look
        self._on_end = on_end
        self._left: list[T] = []
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._seconds, self._begin, loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def run(self) -> None:
        """A whole sweep at once."""
        for each in list(self._those()):
            self._look(each)
        self._on_end()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._left = list(self._those())
        count = max(LOOKED_AT_MIN, ceil(len(self._left) * STEP_SECONDS / self._seconds))
        self._step(loop, loop.time() + self._seconds, count)

    def _step(self, loop: asyncio.AbstractEventLoop, until: float, count: int) -> None:
        some, self._left = self._left[-count:], self._left[:-count]
        # Should one of them fail, the others are looked at all the same.
        if self._left:
            self._timer = loop.call_later(STEP_SECONDS, self._step, loop, until, count)
        else:
            self._timer = loop.call_at(until, self._begin, loop)
        for each in some:
            self._look(each)
        if not self._left:
            self._on_end()
