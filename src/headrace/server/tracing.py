"""Traces on the loop: their steps are made in a thread.

    loop      plan .      . go on .      . answer
    thread          step            step

After each step it rests as long as that took: the interpreter is shared, and whoever
looks for one message must not slow down the others. So many at once, and no more: the
rest wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from headrace.calls import Face
from headrace.core.trace_values import MessageTrace, TracePage, TraceQuery
from headrace.engine.trace_links import Steps
from headrace.server.loop_calls import Calls
from headrace.server.service import Service

Parameters = ParamSpec("Parameters")
T = TypeVar("T")

STEP_BYTES = 64 * 1024
AT_ONCE_MAX = 4

_turns: WeakKeyDictionary[Service, asyncio.Semaphore] = WeakKeyDictionary()


async def trace(calls: Calls, what: str) -> MessageTrace:
    return await _carry_out(calls, Face.trace_steps, what)


async def traces(
    calls: Calls, query: TraceQuery, *, after: str | None = None, limit: int = 100
) -> TracePage:
    return await _carry_out(calls, Face.search_steps, query, after=after, limit=limit)


async def _carry_out(
    calls: Calls,
    call: Callable[Concatenate[Face, Parameters], Steps[T]],
    /,
    *args: Parameters.args,
    **named: Parameters.kwargs,
) -> T:
    service = calls.service
    turns = _turns.setdefault(service, asyncio.Semaphore(AT_ONCE_MAX))
    async with turns:
        steps = await calls.run(call, *args, **named)
        with contextlib.closing(steps):
            done: int | None = None
            while True:
                try:
                    step = steps.send(done)
                except StopIteration as end:
                    result: T = end.value
                    return result
                began = service.loop.time()
                doing = service.loop.run_in_executor(None, step, STEP_BYTES)
                try:
                    done = await asyncio.shield(doing)
                except asyncio.CancelledError:
                    # The step's files must not be closed under it.
                    await asyncio.wait([doing])
                    raise
                await asyncio.sleep(service.loop.time() - began)
