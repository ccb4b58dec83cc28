"""Answers that stay small: leases and listings are cut by their size in bytes.

A count says little about size: a thousand messages may be a hundred kilobytes or a
gigabyte. So a door takes them in steps, and stops when it has enough:

    first step 64, then as many as should fit by the size of those before

Whoever wanted more asks again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from headrace.calls import Face
from headrace.core import limits
from headrace.core.errors import HeadraceError
from headrace.core.values import Delivery, Headers
from headrace.server.loop_calls import Calls

FIRST_STEP = 64
# The messages before say how large the next ones are, but not for sure.
GROWTH = 4
# What a message takes besides its own bytes, about.
MESSAGE_BYTES = 128


class Sized(Protocol):
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


Item = TypeVar("Item", bound=Sized)


async def lease_bounded(
    calls: Calls,
    group: str,
    topics: Sequence[str],
    consumer: str,
    count: int,
    visibility_ms: int | None,
    *,
    is_wanted: Callable[[], bool],
) -> list[Delivery]:
    """As `lease`, for at most about as many bytes as one answer has. What is leased
    when nobody wants it any more is given back."""
    leased: list[Delivery] = []
    budget = limits.REMOTE_ANSWER_BYTES_MAX
    # What is not a count is refused by the call itself.
    step = min(count, FIRST_STEP)
    while True:
        try:
            found = await calls.run(
                Face.lease, group, topics, consumer, step, visibility_ms=visibility_ms
            )
        except HeadraceError:
            # What was leased before must reach whoever asked.
            if leased:
                return leased
            raise
        leased += found
        if not is_wanted():
            await calls.run(Face.release, group, [each.receipt for each in leased])
            return []
        budget -= sum(map(_size, found))
        if len(found) < step or len(leased) >= count or budget <= 0:
            return leased
        step = _next_step(len(leased), count, budget)


async def list_bounded(
    list_some: Callable[[Item | None, int], Awaitable[list[Item]]], limit: int
) -> tuple[list[Item], bool]:
    """A page of a listing, and whether it was cut because of its size. `list_some` is
    given the item to go on after, and how many."""
    items: list[Item] = []
    budget = limits.REMOTE_ANSWER_BYTES_MAX
    step = min(limit, FIRST_STEP)
    while True:
        found = await list_some(items[-1] if items else None, step)
        items += found
        budget -= sum(map(_size, found))
        if len(found) < step or len(items) >= limit:
            return items, False
        if budget <= 0:
            return items, True
        step = _next_step(len(items), limit, budget)


def _next_step(had: int, wanted: int, budget: int) -> int:
    average = max(1, (limits.REMOTE_ANSWER_BYTES_MAX - budget) // had)
    return max(1, min(wanted - had, had * GROWTH, budget // average))


def _size(item: Sized) -> int:
    size = MESSAGE_BYTES + len(item.value or b"") + len(item.key or b"")
    for name, value in item.headers:
        size += len(name) + len(value or b"")
    return size
