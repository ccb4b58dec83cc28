"""The three calls of a transaction as one, on the loop.

Whoever asked may be gone before it is over. It goes on all the same: one that was
begun is ended, one way or the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headrace.calls import Face
from headrace.core.values import Acknowledged, CursorMove, Publication, Published
from headrace.server.loop_calls import Calls


async def transact(
    calls: Calls,
    publications: Sequence[Publication],
    moves: Sequence[CursorMove] = (),
    acks: Sequence[Acknowledged] = (),
) -> list[list[Published]]:
    running = asyncio.ensure_future(_transact(calls, publications, moves, acks))
    return await asyncio.shield(running)


async def _transact(
    calls: Calls,
    publications: Sequence[Publication],
    moves: Sequence[CursorMove],
    acks: Sequence[Acknowledged],
) -> list[list[Published]]:
    begun = await calls.run(Face.begin_transaction, publications, moves, acks)
    try:
        published = await calls.run(Face.write_transaction, begun, moves, acks)
    except BaseException:
        await calls.run(Face.end_transaction, begun, commits=False)
        raise
    await calls.run(Face.end_transaction, begun, commits=True)
    return published
