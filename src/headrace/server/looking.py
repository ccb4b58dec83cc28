"""Batches that hold much are looked into in a thread, before the call that appends them.

    loop      is it heavy? .           . append
    thread                   look into

One after the other: each may take tens of megabytes, and the interpreter is shared.
Whoever asks sees to it that what comes behind the batch, and must stay there,
waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headrace.calls.batches import Outcome
from headrace.core.errors import HeadraceError
from headrace.engine.contents import Heavy
from headrace.server.service import Service


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


def without_heavy(found: Sequence[Outcome | Heavy | None]) -> list[Outcome | None] | None:
    """The same, if none of them is heavy."""
    light = [each for each in found if not isinstance(each, Heavy)]
    return light if len(light) == len(found) else None


async def look_into_rest(
    service: Service, found: Sequence[Outcome | Heavy | None]
) -> list[Outcome | None]:
    """The same, with what is in those that are heavy."""
    looked = iter(await look_into_heavy(service, [e for e in found if isinstance(e, Heavy)]))
    return [next(looked) if isinstance(each, Heavy) else each for each in found]


def _look(heavy: Sequence[Heavy]) -> list[Outcome]:
    return [_outcome(each) for each in heavy]


def _outcome(heavy: Heavy) -> Outcome:
    try:
        return heavy.look()
    except HeadraceError as error:
        return error.without_frames()
