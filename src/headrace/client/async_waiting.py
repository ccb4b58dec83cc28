"""Calls and waits for asyncio.

    a call   runs on a private thread, because a disk makes it wait
    a wait   holds no thread: a listener sets an event through the loop

The threads are this handle's own, so neither a busy default pool of the loop nor
a slow disk of another handle holds them up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from itertools import islice
from typing import ParamSpec, TypeVar

from headrace.client.backend import Backend
from headrace.client.spans import are_on
from headrace.client.waiting import (
    AWAY_SECONDS,
    SLEEP_MS_MAX,
    Bell,
    SteeredClock,
    endured,
    left_ms,
    listening,
    on_away,
    over,
)
from headrace.core.errors import Closed, Forked
from headrace.core.ports import Clock, steady_ms

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")
Found = TypeVar("Found")

# As many publishes as this wait for one sync together.
THREADS_MAX = 16
CHUNK_ITEMS = 500
# Turns of the loop in which other tasks may still start something before a
# steered clock skips: a task that was just woken needs two to reach its next call.
SETTLING_TURNS = 10


class Alarm:
    """Calls `ring` on the loop when so much time has passed, by that clock: on one that
    tests move, when they do."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._steered = clock if isinstance(clock, SteeredClock) else None
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_set = False

    def set(self, seconds: float) -> None:
        """Instead of what it was set to before."""
        self.cancel()
        self._is_set = True
        if self._steered is None:
            self._timer = self._loop.call_later(seconds, self._on_time)
        else:
            at_ms = self._steered.now_ms() + round(seconds * 1000)
            self._steered.add_alarm(at_ms, self._on_skipped)

    def cancel(self) -> None:
        self._is_set = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._steered is not None:
            self._steered.remove_alarm(self._on_skipped)

    def _on_skipped(self) -> None:
        """Called by the thread that moves the clock."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._on_time)

    def _on_time(self) -> None:
        if self._is_set:
            self._is_set = False
            self._ring()


class Calls:
    """The threads of one handle, and how many of them are at work."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="headrace-call")
        self._pid = os.getpid()
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(
        self,
        call: Callable[Parameters, Answer],
        *args: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Answer:
        return await self.start(partial(call, *args, **named))

    def start(self, call: Callable[[], Answer]) -> asyncio.Future[Answer]:
        if os.getpid() != self._pid:
            # A fork leaves the threads behind, so the call would never end.
            raise Forked("this handle was opened before the process forked; open another one")
        loop = asyncio.get_running_loop()
        if are_on():
            # The span that is at work here is the parent of what is done there.
            call = partial(copy_context().run, call)
        try:
            future = loop.run_in_executor(self._executor, call)
        except RuntimeError as error:
            # What an executor says after its shutdown.
            raise Closed("this handle is closed; open it again") from error
        self._running += 1
        self._idle.clear()
        future.add_done_callback(self._on_done)
        return future

    def _on_done(self, future: asyncio.Future[Answer]) -> None:
        self._running -= 1
        if not self._running:
            self._idle.set()

    async def wait_idle(self) -> None:
        """Until no call runs and every task that could go on has done so."""
        turns = 0
        while turns < SETTLING_TURNS:
            if self._running:
                await self._idle.wait()
                turns = 0
            await asyncio.sleep(0)
            turns += 1

    async def in_chunks(self, items: Iterator[Found]) -> AsyncIterator[Found]:
        """What a blocking iterator gives, without blocking the loop."""
        while True:
            chunk = await self.run(list, islice(items, CHUNK_ITEMS))
            for each in chunk:
                yield each
            if len(chunk) < CHUNK_ITEMS:
                return

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        self._executor.shutdown(wait=True)


async def wait_for_some(
    calls: Calls,
    backend: Backend,
    bell: Bell,
    attempt: Callable[[], Awaitable[tuple[list[Found], int | None]]],
    wait_ms: int | None,
    topics: Sequence[str],
) -> list[Found]:
    """As `headrace.client.waiting.wait_for_some`; `attempt` also answers when
    time alone may bring something."""
    clock = backend.clock
    end_ms = None if wait_ms is None else steady_ms(clock) + wait_ms
    loop = asyncio.get_running_loop()
    event = asyncio.Event()

    def wake() -> None:
        try:
            loop.call_soon_threadsafe(event.set)
        except RuntimeError:
            # The loop is closed and nobody waits in it; whoever woke us must not
            # suffer for that.
            return

    with listening(backend, bell, wake, topics):
        while True:
            event.clear()
            if bell.rung:
                return []
            try:
                found, due_ms = await attempt()
            except Closed:
                if bell.rung:
                    return []
                raise
            except endured(backend, wait_ms) as error:
                on_away(backend, error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(AWAY_SECONDS):
                        await event.wait()
                continue
            if found or wait_ms == 0 or over(clock, end_ms):
                return found
            await _sleep(calls, clock, event, left_ms(clock, end_ms, due_ms))


async def _sleep(calls: Calls, clock: Clock, event: asyncio.Event, timeout_ms: int | None) -> None:
    if isinstance(clock, SteeredClock):
        if not clock.autoskip or timeout_ms is None:
            await event.wait()
            return
        await calls.wait_idle()
        if not event.is_set():
            clock.skip_to(clock.now_ms() + timeout_ms)
        return
    if timeout_ms is None or timeout_ms > SLEEP_MS_MAX:
        timeout_ms = SLEEP_MS_MAX
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await event.wait()
    except TimeoutError:
        return
