"""Answers that stay small: leases and listings are cut by their size in bytes.

A count says little about size: a thousand messages may be a hundred kilobytes or a
gigabyte. So a door takes them in steps, and stops when it has enough:

    first step up to 64, by the size of what lies in the log, then as many as should fit
    by the size of those before

A client that leases again and again has told how large its messages are: `Sizes`.
Whoever wanted more asks again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import Protocol, TypeVar

from headrace.calls import Face
from headrace.core import limits
from headrace.core.errors import HeadraceError
from headrace.core.values import Delivery, Headers, LeaseRequest, Looked
from headrace.engine.grant import NOTHING
from headrace.server.loop_calls import Calls, Message, content_bytes
from headrace.server.slices import Slices

_headers_of = attrgetter("headers")

FIRST_STEP = 64
# Of a listing, of which nobody knows how large its items are.
FIRST_LIST_STEP = 8
# Partitions of a topic that are looked at for the size of its records.
SAMPLED_PARTITIONS = 4
# The messages before say how large the next ones are, but not for sure.
GROWTH = 4
# What a message takes besides its own bytes, about.
MESSAGE_BYTES = 128


class Sizes:
    """What a client's last lease says about how many messages fit."""

    __slots__ = ("_bytes", "_count")

    def __init__(self) -> None:
        self._count = 0
        self._bytes = 0

    def first_step(self, bytes_max: int) -> int:
        if self._count < FIRST_STEP:
            return FIRST_STEP
        return max(1, min(self._count * GROWTH, bytes_max * self._count // (2 * self._bytes)))

    def note(self, count: int, size: int) -> None:
        self._count, self._bytes = count, size


class Sized(Message, Protocol):
    @property
    def headers(self) -> Headers: ...


Item = TypeVar("Item", bound=Sized)
Mark = TypeVar("Mark")


async def lease_bounded(
    calls: Calls,
    wanted: LeaseRequest,
    *,
    is_wanted: Callable[[], bool],
    among: int = 1,
    bytes_max: int = limits.REMOTE_ANSWER_BYTES_MAX,
    sizes: Sizes | None = None,
    tie: int = NOTHING,
) -> list[Delivery]:
    """As `lease`, for at most about as many bytes as one answer has. What is leased
    when nobody wants it any more is given back. Where others wait for the same messages
    it is one step: a part of what is ready, and then it is their turn. It does not
    wait, whatever `wanted` says."""
    group, topics, consumer, count, visibility_ms, _, nonce = wanted
    leased: list[Delivery] = []
    budget = bytes_max
    # What is not a count is refused by the call itself.
    first = FIRST_STEP if sizes is None else sizes.first_step(bytes_max)
    step = min(count, first, _first_fitting(calls, topics, bytes_max))
    while True:
        try:
            found = await calls.run(
                Face.lease, group, topics, consumer, step,
                visibility_ms=visibility_ms, among=among, nonce=nonce, tie=tie,
            )  # fmt: skip
        except HeadraceError:
            # What was leased before must reach whoever asked.
            if leased:
                return leased
            raise
        leased += found
        if not is_wanted():
            await calls.run(Face.release, group, [each.receipt for each in leased])
            return []
        budget -= _size_of(found)
        if among > 1 or len(found) < step or len(leased) >= count or budget <= 0:
            if sizes is not None and leased:
                sizes.note(len(leased), bytes_max - budget)
            return leased
        step = _next_step(len(leased), count, bytes_max, budget)


async def list_bounded(
    look: Callable[[Mark | None, int], Awaitable[Looked[Item, Mark]]],
    after: Mark | None,
    limit: int,
) -> tuple[list[Item], Mark | None]:
    """A page of a listing, and where the next one goes on. `look` is given the same for
    its part, and how many to look at. It is done in slices: looking waits for nothing,
    so others would not have their turn between two steps."""
    items: list[Item] = []
    budget = limits.REMOTE_ANSWER_BYTES_MAX
    items_left, bytes_left = limits.LISTED_ITEMS_MAX, limits.LISTED_BYTES_MAX
    step = min(limit, FIRST_LIST_STEP)
    slices = Slices()
    while True:
        found, after, size_bytes = await look(after, step)
        await slices.rest()
        items += found
        budget -= _size_of(found)
        items_left -= step
        bytes_left -= size_bytes
        if after is None or len(items) >= limit or min(budget, items_left, bytes_left) <= 0:
            return items, after
        fitting = limit
        if items:
            average = max(1, (limits.REMOTE_ANSWER_BYTES_MAX - budget) // len(items))
            fitting = max(1, budget // average)
        step = min(limit - len(items), step * GROWTH, fitting)


def _first_fitting(calls: Calls, topics: Sequence[str], bytes_max: int) -> int:
    """How many records of these topics should fit, going by what was written last."""
    largest = 1
    known = calls.service.broker.topics
    for name in topics:
        topic = known.catalog.topics.get(name)
        if topic is None:
            continue
        for index in range(min(topic.partitions, SAMPLED_PARTITIONS)):
            log = known.partition(topic, index).log
            active = log.segment_list.active
            count = log.end_offset - active.base_offset
            if count:
                largest = max(largest, active.size_bytes // count)
    return max(1, bytes_max // largest)


def _next_step(had: int, wanted: int, bytes_max: int, budget: int) -> int:
    average = max(1, (bytes_max - budget) // had)
    return max(1, min(wanted - had, had * GROWTH, budget // average))


def _size_of(items: Sequence[Sized]) -> int:
    size = MESSAGE_BYTES * len(items) + content_bytes(items)
    # Most have none.
    for headers in filter(None, map(_headers_of, items)):
        size += sum([len(name) + len(value or b"") for name, value in headers])
    return size
