"""The survey: one look over all topics and groups, for everybody who watches.

    look . look . look .          a slice of a millisecond at a time
             |
          Picture                 totals of every topic and every group

Whoever wants to know how the node is doing asks for the picture, which is at most a
second old. It is taken once for all who ask, and in slices, so that ten thousand
partitions and ten open dashboards cost what one look costs, and no request feels it.

Rejected: asking each topic and each queue when a page is loaded. It is exact, and
with ten thousand partitions it stops the loop for everybody, once for each page.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import NamedTuple

from headrace.engine.catalog import DEAD_LETTER_GROUP, Catalog, Group, Topic
from headrace.engine.queue import QueueView
from headrace.engine.window import DELAYED, LEASED, MOVING, READY, RETRYING, SETTLING, WAITING
from headrace.server.service import Service
from headrace.server.slices import Slices

# A picture that is not older than this is new enough for whoever asks.
FRESH_SECONDS = 1.0
# An open transaction keeps readers waiting; after this long somebody should look.
STUCK_MS = 60_000
# Groups in which Spark's exactly-once sinks keep the number of their next batch.
SINK_PREFIX = "__spark."


class TopicTotals(NamedTuple):
    name: str
    partitions: int
    messages: int
    size_bytes: int
    # Everything that was ever published, for rates.
    published: int
    rate_in: float
    # Partitions that stopped because of rot, and those where readers wait for the
    # end of a transaction.
    stopped: int
    undecided: int
    # Of a topic of dead letters: the topic that they are of.
    source: str | None


class GroupTotals(NamedTuple):
    name: str
    kind: str
    topics: tuple[str, ...]
    members: int
    # Messages that are not done, or not read.
    lag: int
    ready: int
    leased: int
    delayed: int
    retrying: int
    seen: int
    delivered: int
    failed: int
    dead_lettered: int
    rate_in: float
    rate_out: float


class Letters(NamedTuple):
    """Dead letters of a topic that nobody has redriven or purged."""

    topic: str
    waiting: int


class Stuck(NamedTuple):
    """A transaction that is open for long."""

    name: str
    started_at_ms: int


class Picture(NamedTuple):
    at_ms: int
    topics: Mapping[str, TopicTotals]
    groups: Mapping[str, GroupTotals]
    letters: tuple[Letters, ...]
    stuck: tuple[Stuck, ...]
    open_transactions: int


class Survey:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._loop = service.loop
        self._catalog: Catalog | None = None
        self._picture: Picture | None = None
        self._taken_at = 0.0
        self._looking: asyncio.Task[Picture] | None = None

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking

    async def look(self) -> Picture:
        """The picture, taken anew where topics or groups have come or gone since, or
        it is not fresh any more."""
        is_fresh = self._loop.time() - self._taken_at < FRESH_SECONDS
        same = self._catalog is self._service.broker.topics.catalog
        if self._picture is not None and is_fresh and same:
            return self._picture
        if self._looking is None or self._looking.done():
            self._looking = self._loop.create_task(self._take())
        # Who goes away must not take the others' look along.
        return await asyncio.shield(self._looking)

    # Taking the picture.

    async def _take(self) -> Picture:
        broker = self._service.broker
        before = self._picture
        catalog = broker.topics.catalog
        now_ms = self._service.clock.now_ms()
        seconds = 0.0 if before is None else (now_ms - before.at_ms) / 1000
        slices = Slices()
        topics: dict[str, TopicTotals] = {}
        for topic in list(catalog.topics.values()):
            found = await self._topic(topic, slices)
            if found is not None:
                topics[topic.name] = _with_rate(found, before, seconds)
        groups: dict[str, GroupTotals] = {}
        for group in list(catalog.groups.values()):
            if not group.is_internal:
                groups[group.name] = _with_rates(await self._queue(group, slices), before, seconds)
        for name in sorted(broker.cursors.groups()):
            if name.startswith(SINK_PREFIX):
                # Its offsets are numbers of batches, and lag would mean nothing.
                continue
            groups[name] = _with_rates(await self._stream(name, slices), before, seconds)
        stuck, opened = self._transactions(now_ms)
        self._picture = Picture(
            now_ms, topics, groups, await self._letters(catalog, slices), stuck, opened
        )
        self._catalog = catalog
        self._taken_at = self._loop.time()
        return self._picture

    async def _topic(self, topic: Topic, slices: Slices) -> TopicTotals | None:
        messages = size = published = stopped = undecided = 0
        catalog = self._service.broker.topics.catalog
        if topic.id not in catalog.topics_by_id:
            return None
        for partition in list(self._service.broker.topics.partitions(topic)):
            await slices.rest()
            end = partition.high_watermark
            messages += end - partition.log.start_offset
            published += end
            size += partition.log.size_bytes
            stopped += partition.stopped is not None
            undecided += partition.last_stable_offset < end
        source = None if topic.source_id is None else catalog.topics_by_id.get(topic.source_id)
        return TopicTotals(
            topic.name, topic.partitions, messages, size, published, 0.0, stopped, undecided,
            None if source is None else source.name,
        )  # fmt: skip

    async def _queue(self, group: Group, slices: Slices) -> GroupTotals:
        broker = self._service.broker
        counts = dict.fromkeys((READY, WAITING, LEASED, SETTLING, RETRYING, DELAYED, MOVING), 0)
        seen = delivered = failed = dead = 0
        for _, view in broker.groups.views(group):
            await slices.rest()
            for state in counts:
                counts[state] += view.window.count_in(state)
            seen += sum(view.seen_in)
            delivered += sum(view.delivered_in)
            failed += _failures(view)
            dead += view.totals["dead_lettered"]
        by_id = broker.topics.catalog.topics_by_id
        names = sorted(by_id[each].name for each in group.topics if each in by_id)
        return GroupTotals(
            group.name, "queue", tuple(names), len(self._service.members_of(group.name)),
            sum(counts.values()), counts[READY] + counts[WAITING],
            counts[LEASED] + counts[SETTLING], counts[DELAYED], counts[RETRYING],
            seen, delivered, failed, dead, 0.0, 0.0,
        )  # fmt: skip

    async def _stream(self, name: str, slices: Slices) -> GroupTotals:
        broker = self._service.broker
        lag = read = seen = 0
        for (topic_id, index), cursor in broker.cursors.of(name).items():
            await slices.rest()
            partition = broker.topics.find(topic_id, index)
            if partition is not None:
                end = partition.high_watermark
                lag += max(0, end - max(cursor.offset, partition.log.start_offset))
                read += cursor.offset
                seen += end
        members = len(self._service.members_of(name))
        return GroupTotals(
            name, "stream", broker.cursors.topics_of(name), members, lag, 0, 0, 0, 0,
            seen, read, 0, 0, 0.0, 0.0,
        )  # fmt: skip

    async def _letters(self, catalog: Catalog, slices: Slices) -> tuple[Letters, ...]:
        broker = self._service.broker
        keeper = catalog.groups.get(DEAD_LETTER_GROUP)
        counted: dict[str, int] = {}
        for partition, view in [] if keeper is None else broker.groups.views(keeper):
            await slices.rest()
            source = catalog.topics_by_id.get(partition.topic.source_id or b"")
            if source is not None:
                count = view.window.count_in(READY)
                counted[source.name] = counted.get(source.name, 0) + count
        return tuple(Letters(name, count) for name, count in sorted(counted.items()) if count)

    def _transactions(self, now_ms: int) -> tuple[tuple[Stuck, ...], int]:
        table = self._service.broker.transactions
        names = table.unfinished_names()
        found = [(name, table.find(name)) for name in names]
        stuck = [
            Stuck(name, each.started_at_ms)
            for name, each in found
            if each is not None and now_ms - each.started_at_ms >= STUCK_MS
        ]
        return tuple(sorted(stuck, key=lambda each: each.started_at_ms)), len(names)


def _failures(view: QueueView) -> int:
    totals = view.totals
    return totals["nacked"] + totals["lease_expired"] + totals["dead_lettered"]


def _with_rate(found: TopicTotals, before: Picture | None, seconds: float) -> TopicTotals:
    earlier = None if before is None else before.topics.get(found.name)
    if earlier is None or seconds <= 0:
        return found
    return found._replace(rate_in=max(0, found.published - earlier.published) / seconds)


def _with_rates(found: GroupTotals, before: Picture | None, seconds: float) -> GroupTotals:
    earlier = None if before is None else before.groups.get(found.name)
    if earlier is None or seconds <= 0:
        return found
    return found._replace(
        rate_in=max(0, found.seen - earlier.seen) / seconds,
        rate_out=max(0, found.delivered - earlier.delivered) / seconds,
    )
