"""Pages of delayed messages and of dead letters, for all doors: what was found, and where
the next page goes on. A page ends when it is full, when it is large, or when enough was
looked at; then it may hold nothing, and there is still a next one.
"""

from __future__ import annotations

from headrace.calls import Face
from headrace.core.values import DeadLetter, DelayedMessage, MessageId
from headrace.server.bounded import list_bounded
from headrace.server.loop_calls import Calls

# Due time, partition and offset.
DelayedMark = tuple[int, int, int]


async def delayed_page(
    calls: Calls, topic: str, after: DelayedMark | None, limit: int
) -> tuple[list[DelayedMessage], DelayedMark | None]:
    return await list_bounded(
        lambda mark, count: calls.run(Face.look_at_delayed, topic, mark, count), after, limit
    )


async def letters_page(
    calls: Calls, topic: str, group: str | None, after: MessageId | None, limit: int
) -> tuple[list[DeadLetter], MessageId | None]:
    return await list_bounded(
        lambda mark, count: calls.run(Face.look_at_letters, topic, group, mark, count),
        after,
        limit,
    )
