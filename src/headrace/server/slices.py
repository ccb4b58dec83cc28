"""Slices: long work on the loop, in pieces that others do not feel.

    slices = Slices()
    for each in many:
        ...
        await slices.rest()      returns at once until half a millisecond is over

Or as a generator that yields where others may have their turn, for work that is mostly
small: `answer` goes straight through a small one, and through a large one in slices.

    def handle(call, request):
        return answer(len(request.topics), _steps(call, request))

What is done in slices must hold at every rest: others see it, and may change what it
is about.

A request is several turns of the loop, and between two slices there is only one. So
what nobody waits for, and takes many slices, pauses between them: whoever comes
meanwhile is served from end to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing
from typing import Any, TypeVar

from headrace.core.steps import Steps, run_to_end
from headrace.engine.commit import Commit
from headrace.server.shares import shares_of

T = TypeVar("T")

SLICE_SECONDS = 0.0005
# A request about no more than this is answered in one piece.
SMALL = 32


class Slices:
    def __init__(self, pause_seconds: float = 0) -> None:
        self._loop = asyncio.get_running_loop()
        self._line = shares_of(self._loop).slices
        self._pause_seconds = pause_seconds
        self._end = self._loop.time() + SLICE_SECONDS

    async def rest(self) -> None:
        if self._loop.time() >= self._end:
            if self._pause_seconds:
                await asyncio.sleep(self._pause_seconds)
            await self._line.turn(SLICE_SECONDS)
            self._end = self._loop.time() + SLICE_SECONDS


def answer(size: int, steps: Steps[T]) -> T | Coroutine[Any, Any, T]:
    """What the steps make: at once where their number is small."""
    return run_to_end(steps) if size <= SMALL else in_slices(steps)


async def in_slices(
    steps: Steps[T], wait_for: Callable[[Commit], Awaitable[None]] | None = None
) -> T:
    """`wait_for` is called with the commits that the steps want to be safe in between."""
    slices = Slices()
    # Whoever goes away meanwhile leaves nothing half done.
    with closing(steps):
        while True:
            try:
                begun = next(steps)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            if wait_for is not None and isinstance(begun, Commit):
                await wait_for(begun)
            await slices.rest()
