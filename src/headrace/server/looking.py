"""Batches that hold much are looked into in a thread, before the call that appends them.

    loop      is it heavy? .           . append
    thread                   look into

One after the other: each may take tens of megabytes, and the interpreter is shared.
Whoever asks sees to it that what comes behind the batch, and must stay there,
waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from headrace.calls import Face
from headrace.calls.batches import Unlooked
from headrace.core.errors import HeadraceError
from headrace.core.values import PlacedBatch, Published
from headrace.engine.contents import Heavy
from headrace.engine.sealed import Outcome, learn, look_at
from headrace.server.loop_calls import Calls
from headrace.server.service import Service

Outcomes = list[Published | HeadraceError]


async def look_into_heavy(service: Service, heavy: Sequence[Heavy]) -> list[Outcome]:
    if not heavy:
        return []
    looking = service.run_apart(_look, heavy)
    # Its bytes must not be another's while it is looked into.
    try:
        return await asyncio.shield(looking)
    except asyncio.CancelledError:
        await asyncio.wait([looking])
        raise


def _look(heavy: Sequence[Heavy]) -> list[Outcome]:
    return [look_at(each) for each in heavy]


async def publish_batches(calls: Calls, batches: Sequence[PlacedBatch]) -> Outcomes:
    """Of each its place, or why it was refused, once what was appended is safe."""
    try:
        return await calls.run(Face.append_batches, batches)
    except Unlooked as unlooked:
        heavy = unlooked.heavy
    return await (await begin_publishing(calls, batches, heavy))


async def begin_publishing(
    calls: Calls, batches: Sequence[PlacedBatch], heavy: Mapping[int, Heavy]
) -> asyncio.Future[Outcomes]:
    """`publish_batches` when these of them are known to be heavy. When it returns the batches
    are appended, or refused, and a call that is made then comes behind them."""
    known: dict[int, Outcome] = {}
    while True:
        learn(known, heavy, await look_into_heavy(calls.service, list(heavy.values())))
        publishing = asyncio.ensure_future(calls.run(Face.append_batches, batches, known))
        # A task starts with the next turn of the loop; this goes on behind it.
        await asyncio.sleep(0)
        unlooked = publishing.exception() if publishing.done() else None
        if not isinstance(unlooked, Unlooked):
            return publishing
        # What others changed meanwhile made another one heavy.
        heavy = unlooked.heavy
