"""Pages of delayed messages and of dead letters, cut by their size, for all doors.

Each is given with whether it was cut: then, or when it is full, there may be more
behind it.
"""

from __future__ import annotations

from headrace.calls import Face
from headrace.core.values import DeadLetter, DelayedMessage, MessageId
from headrace.server.bounded import list_bounded
from headrace.server.loop_calls import Calls


async def delayed_page(
    calls: Calls, topic: str, after: tuple[int, int, int] | None, limit: int
) -> tuple[list[DelayedMessage], bool]:
    return await list_bounded(
        lambda last, count: calls.run(
            Face.delayed,
            topic,
            after=after if last is None else (last.deliver_at_ms, last.partition, last.offset),
            limit=count,
        ),
        limit,
    )


async def letters_page(
    calls: Calls, topic: str, group: str | None, after: MessageId | None, limit: int
) -> tuple[list[DeadLetter], bool]:
    return await list_bounded(
        lambda last, count: calls.run(
            Face.dead_letters,
            topic,
            group=group,
            after=after if last is None else MessageId(last.topic, last.partition, last.offset),
            limit=count,
        ),
        limit,
    )
