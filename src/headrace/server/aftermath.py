"""What has to be done after a call is over, because the client is gone.

A door cancels the task of a call that nobody waits for. What the call had begun goes
on to its end here, and is undone then; the door waits for all of it when it closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from headrace.core.errors import HeadraceError

T = TypeVar("T")

logger = logging.getLogger("headrace")


class Aftermath:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def keep(self, work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[None]]) -> T:
        """What the work returns; when we are cancelled before it is done, it is
        undone instead."""
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self.begin(_undo(task, undo))
            raise

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)


async def _undo(task: asyncio.Task[T], undo: Callable[[T], Awaitable[None]]) -> None:
    await undo(await task)


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    """There is nobody left to be told of an error that is ours to expect."""
    try:
        with contextlib.suppress(HeadraceError):
            await work
    except Exception:
        logger.exception("what a client left behind could not be put in order")
