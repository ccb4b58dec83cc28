"""A session: one connection of a client of ours, and what it holds.

    queue, group, consumer      the leases of this consumer
    stream, group, member       the partitions of this member

When the connection breaks, partitions are given back at once, and leases after a grace:
a consumer that comes back over another connection before, with its id, keeps them, and
its receipts are good. Otherwise the deliveries count: whoever is gone without a word may
be gone because of what it was given. A client that ends properly has said so before;
then they do not count, and go back at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from headrace.calls import Face
from headrace.calls.batches import Unlooked
from headrace.core import limits
from headrace.core.errors import Closed, HeadraceError, InvalidArgument, LimitExceeded
from headrace.core.name_lists import distinct_topics
from headrace.core.overview_values import NodeFigures
from headrace.core.request_context import RequestContext
from headrace.core.settings import OffsetReset
from headrace.core.steps import Steps
from headrace.core.trace_values import MessageTrace, TracePage, TraceQuery
from headrace.core.values import (
    Acknowledged,
    CursorMove,
    Delivery,
    LeaseRequest,
    MessageId,
    PlacedBatch,
    Publication,
    Published,
)
from headrace.engine.contents import Heavy
from headrace.engine.grant import CLIENT
from headrace.engine.leasing import check_lease
from headrace.server.bounded import Sizes, lease_bounded
from headrace.server.glance import Glance
from headrace.server.looking import Outcomes, begin_publishing
from headrace.server.loop_calls import Calls, Watch
from headrace.server.orphans import Orphans
from headrace.server.pages import delayed_page, letters_page
from headrace.server.scanning import scan_ahead
from headrace.server.service import Service
from headrace.server.times import offset_at
from headrace.server.tracing import trace, traces
from headrace.server.transacting import transact
from headrace.server.version import VERSION
from headrace.server.waiting import Sought, Stop, count_partitions
from headrace.wire.remote.codec import Request
from headrace.wire.remote.methods import (
    DelayedPage,
    Hello,
    LetterPage,
    News,
    Stored,
    refusal_of,
)


class Owned(NamedTuple):
    kind: Literal["queue", "stream"]
    group: str
    name: str


class Holdings:
    """What all sessions of a node hold together."""

    def __init__(self, service: Service) -> None:
        self.glance = Glance(service)
        # A client that comes back takes over from its old connection.
        self.owners: dict[Owned, Session] = {}
        self.orphans = Orphans(Calls(service), CLIENT)
        self.watched_partitions = 0


class Session:
    def __init__(
        self,
        service: Service,
        polls: set[Callable[[], None]],
        holdings: Holdings,
        context: RequestContext,
        *,
        is_congested: Callable[[], bool] = lambda: False,
    ) -> None:
        """`polls` are waits that the door ends when it closes; `context` is that of the
        connection; `is_congested` says whether answers wait for the client to read them."""
        self._is_congested = is_congested
        self._polls = polls
        self._service = service
        self._calls = Calls(service, context=context)
        self._holdings = holdings
        self._owners = holdings.owners
        self._owned: set[Owned] = set()
        # The consumers that left last: what they ask for behind that, they do not want.
        self._left: dict[Owned, None] = {}
        self._watches: set[Watch] = set()
        # Calls that read for long, and end with the connection.
        self._readers: set[asyncio.Task[Any]] = set()
        # Leases that wait for messages, and what ends them.
        self._waits: dict[Stop, tuple[str, str, int | None]] = {}
        self._sizes = Sizes()
        # Calls that publish when a thread has looked into their batches, and those behind.
        self._order = asyncio.Lock()
        self._looking_first = 0
        self._is_closed = False
        self._special: dict[str, Callable[..., Awaitable[object]]] = {
            "hello": self._hello,
            "watch": self._watch,
            "create_topic": partial(self._in_slices, Face.topic_creation),
            "grow_topic": partial(self._in_slices, Face.topic_growth),
            "redrive": partial(self._in_slices, Face.redriving),
            "open_queue": self._open_queue,
            "lease": self._lease,
            "give_back": self._give_back_unheard,
            "leave": self._leave,
            "join_stream": self._join_stream,
            "leave_stream": self._leave_stream,
            "offset_at": partial(self._reading, self._offset_at),
            "delayed": partial(self._reading, self._delayed),
            "dead_letters": partial(self._reading, self._dead_letters),
            "trace": partial(self._reading, self._trace),
            "traces": partial(self._reading, self._traces),
            "transact": self._transact,
            "overview": holdings.glance.overview,
            "figures": self._figures,
            "publish_batches": self._publish_batches,
        }

    async def carry_out(self, request: Request) -> object:
        if self._is_closed:
            raise Closed("the connection is gone")
        name = request.method.name
        special = self._special.get(name)
        if special is not None:
            return await special(**request.arguments)
        return await self._calls.run(getattr(Face, name), **request.arguments)

    # The protocol's own.

    async def _hello(self, auto_create: bool) -> Hello:
        context = self._calls.context
        self._calls = Calls(self._service, auto_create=auto_create, context=context)
        service = self._service
        return Hello(VERSION, service.cluster_id, service.node_id, service.clock.now_ms())

    async def _watch(self, topics: Sequence[str]) -> News:
        if len(self._watches) >= limits.REMOTE_WATCHES_MAX:
            raise LimitExceeded(
                f"one connection watches at most {limits.REMOTE_WATCHES_MAX} sets of topics"
            )
        topics = distinct_topics(topics)
        # Before a list of them is made.
        count = count_partitions(self._service, topics)
        self._check_watched(count)
        holdings = self._holdings
        with Watch(self._service, topics) as watch:
            holdings.watched_partitions += count
            self._watches.add(watch)
            self._polls.add(watch.news.set)
            try:
                is_news = await watch.wait(limits.REMOTE_WATCH_MS_MAX / 1000)
            finally:
                holdings.watched_partitions -= count
                self._watches.discard(watch)
                self._polls.discard(watch.news.set)
        return News(is_news, self._service.clock.now_ms())

    async def _in_slices(self, call: Callable[..., Steps[Any]], **arguments: Any) -> object:
        return await self._calls.run_in_slices(call, **arguments)

    async def _figures(self) -> NodeFigures | None:
        figures = self._service.figures
        # In a thread: it asks the system, which may take a moment.
        return None if figures is None else await asyncio.to_thread(figures)

    async def _transact(
        self,
        publications: Sequence[Publication],
        moves: Sequence[CursorMove],
        acks: Sequence[Acknowledged],
    ) -> list[list[Published]]:
        return await transact(self._calls, publications, moves, acks)

    async def _publish_batches(self, batches: Sequence[PlacedBatch]) -> list[Stored]:
        outcomes: Outcomes | None = None
        heavy: Mapping[int, Heavy] = {}
        if not self._looking_first:
            try:
                outcomes = await self._calls.run(Face.append_batches, batches)
            except Unlooked as unlooked:
                heavy = unlooked.heavy
        if outcomes is None:
            outcomes = await self._publish_in_order(batches, heavy)
        return [
            Stored(-1, False, refusal_of(each))
            if isinstance(each, HeadraceError)
            else Stored(each.offset, each.duplicate)
            for each in outcomes
        ]

    async def _publish_in_order(
        self, batches: Sequence[PlacedBatch], heavy: Mapping[int, Heavy]
    ) -> Outcomes:
        """One call behind the other: a producer numbers its batches."""
        self._looking_first += 1
        try:
            async with self._order:
                publishing = await begin_publishing(self._calls, batches, heavy)
        finally:
            self._looking_first -= 1
        return await publishing

    # What is held.

    async def _open_queue(
        self, group: str, topics: Sequence[str], consumer: str, settings: dict[str, Any] | None
    ) -> None:
        topics = distinct_topics(topics)
        owned = Owned("queue", group, consumer)
        self._check_room(owned)
        before = self._owners.get(owned)
        if before is not None and before is not self:
            # It has come back, and nobody hears what its old connection still waits for.
            before.stop_waits(group, consumer)
        if before is not None or self._holdings.orphans.is_waited_for(group, consumer):
            # What it holds stays its own, however long the rest takes, or if it fails.
            self._own(owned)
        await scan_ahead(self._calls, topics)
        await self._calls.run_in_slices(Face.queue_opening, group, topics, consumer, settings)
        self._left.pop(owned, None)
        if self._owners.get(owned) in (None, before, self):
            self._own(owned)

    async def _lease(self, **arguments: Any) -> list[Delivery]:
        arguments["topics"] = distinct_topics(arguments["topics"])
        wanted = LeaseRequest(**arguments)
        group, topics, consumer, count, visibility_ms, wait_ms, nonce = wanted
        check_lease(consumer, count, visibility_ms)
        if not 0 <= wait_ms <= limits.REMOTE_WATCH_MS_MAX:
            raise InvalidArgument(f"wait 0 to {limits.REMOTE_WATCH_MS_MAX} ms, not {wait_ms}")
        if nonce is not None and not 0 <= nonce < 2**64:
            raise InvalidArgument("a nonce is a number of 64 bits")
        if Owned("queue", group, consumer) in self._left:
            # Another thread of the client has closed the queue before this was sent.
            return []
        self._own(Owned("queue", group, consumer))
        count_held = 0
        if wait_ms:
            count_held = count_partitions(self._service, topics)
            self._check_wait(count_held)
        sought, stop = Sought(self._service, topics), Stop()

        def is_wanted() -> bool:
            return not self._is_closed and not stop.is_set

        async def look(among: int) -> list[Delivery] | None:
            if not is_wanted() or self._is_congested():
                # Leases would run out while they wait to be sent.
                return None
            return await lease_bounded(
                self._calls, wanted, is_wanted=is_wanted, among=among, sizes=self._sizes,
                tie=CLIENT,
            )  # fmt: skip

        holdings = self._holdings
        holdings.watched_partitions += count_held
        self._waits[stop] = (group, consumer, nonce)
        self._polls.add(stop.set)
        try:
            return await self._service.waiting.find(group, sought, look, wait_ms / 1000, stop)
        finally:
            holdings.watched_partitions -= count_held
            del self._waits[stop]
            self._polls.discard(stop.set)

    def _check_wait(self, partition_count: int) -> None:
        if len(self._waits) >= limits.REMOTE_WATCHES_MAX:
            raise LimitExceeded(
                f"one connection waits for at most {limits.REMOTE_WATCHES_MAX} leases at once"
            )
        self._check_watched(partition_count)

    def _check_watched(self, partition_count: int) -> None:
        watched = self._holdings.watched_partitions + partition_count
        if watched > limits.REMOTE_WATCHED_PARTITIONS_MAX:
            raise LimitExceeded("too many partitions are being watched; look again later")

    async def _give_back_unheard(self, group: str, consumer: str, nonces: Sequence[int]) -> None:
        """Leases whose answers the client never got, or does not want any more."""
        for stop, who in tuple(self._waits.items()):
            if who[:2] == (group, consumer) and who[2] in nonces:
                stop.set()
        held = await self._calls.run(Face.held, group, consumer)
        unheard = [receipt for receipt in held.values() if receipt.nonce in nonces]
        if unheard:
            await self._calls.run(Face.release, group, unheard)

    def stop_waits(self, group: str, consumer: str) -> None:
        """Leases that wait for messages of this consumer get none."""
        for stop, who in tuple(self._waits.items()):
            if who[:2] == (group, consumer):
                stop.set()

    async def _leave(self, group: str, consumer: str) -> None:
        self.stop_waits(group, consumer)
        owned = Owned("queue", group, consumer)
        self._disown(owned)
        self._left[owned] = None
        if len(self._left) > limits.REMOTE_LEFT_MAX:
            del self._left[next(iter(self._left))]
        await self._calls.run(Face.leave, group, consumer)

    async def _join_stream(
        self, group: str, topics: Sequence[str], member: str, reset: OffsetReset
    ) -> None:
        self._own(Owned("stream", group, member))
        await self._calls.run(Face.join_stream, group, topics, member, reset)

    async def _leave_stream(self, group: str, member: str) -> None:
        self._disown(Owned("stream", group, member))
        await self._calls.run(Face.leave_stream, group, member)

    def _check_room(self, owned: Owned) -> None:
        if len(self._owned) >= limits.REMOTE_OWNED_MAX and owned not in self._owned:
            raise LimitExceeded(
                f"one connection stands for at most {limits.REMOTE_OWNED_MAX} consumers; close "
                "some, or connect again for more"
            )

    def _own(self, owned: Owned) -> None:
        if self._is_closed and owned in self._owners:
            # It was opened for a client that is back over another connection by now.
            return
        self._check_room(owned)
        self._owned.add(owned)
        self._owners[owned] = self
        if owned.kind == "queue":
            self._holdings.orphans.end_grace(owned.group, owned.name)
        if self._is_closed:
            self._give_back(owned)

    def _disown(self, owned: Owned) -> None:
        self._owned.discard(owned)
        if self._owners.get(owned) is self:
            del self._owners[owned]

    # Listings.

    async def _reading(self, read: Callable[..., Awaitable[object]], **arguments: Any) -> object:
        task = asyncio.current_task()
        assert task is not None
        self._readers.add(task)
        try:
            return await read(**arguments)
        finally:
            self._readers.discard(task)

    async def _offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        return await offset_at(self._calls, topic, partition, timestamp_ms)

    async def _delayed(
        self, topic: str, after: tuple[int, int, int] | None, limit: int
    ) -> DelayedPage:
        return DelayedPage(*await delayed_page(self._calls, topic, after, limit))

    async def _dead_letters(
        self, topic: str, group: str | None, after: MessageId | None, limit: int
    ) -> LetterPage:
        return LetterPage(*await letters_page(self._calls, topic, group, after, limit))

    # Traces.

    async def _trace(self, what: str) -> MessageTrace:
        return await trace(self._calls, what)

    async def _traces(self, query: TraceQuery, after: str | None, limit: int) -> TracePage:
        return await traces(self._calls, query, after=after, limit=limit)

    # The end.

    def close(self) -> None:
        """The connection is gone."""
        self._is_closed = True
        for watch in tuple(self._watches):
            watch.news.set()
        for stop in tuple(self._waits):
            stop.set()
        for reader in tuple(self._readers):
            reader.cancel()
        for owned in tuple(self._owned):
            self._give_back(owned)

    def _give_back(self, owned: Owned) -> None:
        is_ours = self._owners.get(owned) is self
        self._disown(owned)
        if not is_ours or self._service.closing.done():
            return
        if owned.kind == "queue":
            self._holdings.orphans.begin_grace(owned.group, owned.name)
            return
        # A group that is gone, or a disk that is, leaves nothing to give back.
        with contextlib.suppress(HeadraceError, OSError):
            self._calls.run_nowait(Face.leave_stream, owned.group, owned.name)
