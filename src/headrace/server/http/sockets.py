"""WebSockets: a queue and a tail for a browser, with flow control by credit.

A connection has one consumer id, made here unless the client comes back with its
own (`/ws?consumer=...`). When it is closed, everything that it leased goes back at once,
at no attempt. When it breaks, that is kept for a grace (`orphans.py`): who comes back with
its id says in `dequeue` what it has in hand, and keeps that. A tail goes on from where that
consumer last committed. Whoever comes with the id of a connection that is still open
takes over from it: a client knows that its connection is dead long before a node does.

A subscription that is stopped first sends what is ready now, as far as there is credit;
the answer to `stop` comes after its last message.

Requests of one connection are carried out one after the other, so a client that
sends faster than the disk takes is slowed down by TCP and nothing piles up here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from msgspec import UNSET
from starlette.websockets import WebSocket, WebSocketDisconnect

from headrace.calls import Face
from headrace.core import limits
from headrace.core.errors import (
    HeadraceError,
    InvalidArgument,
    LimitExceeded,
)
from headrace.core.values import check_name
from headrace.engine.grant import SOCKET
from headrace.server.aftermath import Aftermath
from headrace.server.http.forms import Form, form_of
from headrace.server.http.members import Members
from headrace.server.http.protocol import ACCOUNT
from headrace.server.http.route import context_of
from headrace.server.http.shown import milliseconds_in, shown_places
from headrace.server.leasing import open_leasing
from headrace.server.loop_calls import Calls, Watch
from headrace.server.orphans import Orphans, receipts_in_hand
from headrace.server.publishing import publish_all
from headrace.server.settling import settle
from headrace.server.shares import Metered
from headrace.server.tailing import Tail
from headrace.server.waiting import Stop
from headrace.wire.http import frames
from headrace.wire.http.bodies import Settled

logger = logging.getLogger("headrace.http")

# Messages that go out between two looks at what else there is to do.
AT_ONCE = 100
# What the end of a connection is called that nobody has closed: it broke, or did not answer
# a ping.
BROKEN = (1006, 1011)

# Waits for up to so many messages, or until it is told to stop.
Take = Callable[[int], Awaitable[list[Any]]]


class Sockets:
    """The consumers that are connected, each once."""

    def __init__(self, calls: Calls, members: Members, aftermath: Aftermath) -> None:
        self._calls = calls
        self._members = members
        self._aftermath = aftermath
        self._orphans = Orphans(calls, SOCKET)
        self._connected: dict[str, _Socket] = {}

    async def serve(self, websocket: WebSocket) -> None:
        await websocket.accept()
        consumer = websocket.query_params.get("consumer")
        if consumer is None:
            consumer = self._members.new_id("ws")
        try:
            check_name("consumer", consumer)
        except HeadraceError as error:
            await websocket.close(1008, str(error)[:120])
            return
        calls = self._calls.asked_by(context_of(websocket.scope))
        socket = _Socket(websocket, calls, self._aftermath, self._orphans, consumer)
        before = self._connected.get(consumer)
        self._connected[consumer] = socket
        try:
            await socket.run(before)
        finally:
            if self._connected.get(consumer) is socket:
                del self._connected[consumer]
        if socket.is_replaced:
            await websocket.close(1008, "another connection has come with this id")

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._connected)


class _Subscription:
    """Messages for one `dequeue` or `tail`, as far as there is credit."""

    def __init__(
        self,
        credit: int,
        take: Take,
        show: Callable[[Any], Any],
        stop_wait: Stop,
        watch: Watch | None,
    ) -> None:
        """`stop_wait` ends a wait; a tail also has a watch."""
        self.credit = credit
        self.take = take
        self.stop_wait = stop_wait
        self.watch = watch
        # For one message when its turn comes: shown, it is twice as large.
        self.show = show
        self.is_stopping = False
        self.more = asyncio.Event()
        self.task: asyncio.Task[None]

    def add(self, credit: int) -> None:
        self.credit = min(self.credit + credit, limits.SOCKET_CREDIT_MAX)
        self.more.set()

    async def stop(self) -> None:
        """Until its last message is out. What was leased is sent, never dropped."""
        self.is_stopping = True
        self.more.set()
        self.stop_wait.set()
        await asyncio.wait((self.task,))

    async def wait(self) -> list[Any]:
        """The next messages; none when it is stopping, or now and then otherwise."""
        while not self.credit and not self.is_stopping:
            self.more.clear()
            await self.more.wait()
        if not self.credit:
            return []
        found = await self.take(min(self.credit, AT_ONCE))
        self.credit -= len(found)
        return found


class _Socket:
    def __init__(
        self,
        websocket: WebSocket,
        calls: Calls,
        aftermath: Aftermath,
        orphans: Orphans,
        consumer: str,
    ) -> None:
        self._websocket = websocket
        self._orphans = orphans
        self._calls = calls
        self._aftermath = aftermath
        self._run = calls.run
        self._consumer = consumer
        self._subscriptions: dict[frames.Id, _Subscription] = {}
        # What was leased from goes back when the connection ends.
        self._groups: set[str] = set()
        self._tails: dict[frames.Id, str] = {}
        self.is_replaced = False
        # It may come back: nobody has taken leave.
        self._is_broken = True
        self._is_carrying_out = False
        self._serving: asyncio.Future[None] | None = None
        self._ended = asyncio.Event()

    async def run(self, before: _Socket | None) -> None:
        """Until the connection ends or another one takes over; as soon as that which was
        there before has ended."""
        try:
            if before is not None:
                await before.give_way()
            if not self.is_replaced:
                # In a task of its own, whose time nobody else charges to the connection.
                serving = Metered(self._serve(), self._websocket.scope[ACCOUNT])
                self._serving = asyncio.ensure_future(serving)
                await self._serving
        except asyncio.CancelledError:
            if not self.is_replaced:
                # The node stops.
                self._is_broken = False
                raise
        finally:
            await self._close()
            self._ended.set()

    async def give_way(self) -> None:
        """To a connection with the same id. What is being carried out is finished."""
        self.is_replaced = True
        if self._serving is not None and not self._is_carrying_out:
            self._serving.cancel()
        await self._ended.wait()

    async def _serve(self) -> None:
        form = form_of(is_binary=False)
        await form.send(self._websocket, frames.Welcome(consumer=self._consumer))
        while not self.is_replaced and await self._serve_next():
            pass

    async def _serve_next(self) -> bool:
        """Whether more may come. What came and what was made of it is let go of: a client may
        be silent for long after a large message."""
        received = await self._websocket.receive()
        if received["type"] == "websocket.disconnect":
            self._is_broken = received.get("code") in BROKEN
            return False
        binary = received.get("bytes")
        form = form_of(is_binary=binary is not None)
        frame = binary if binary is not None else received["text"]
        try:
            request = form.decode(frame)
        except (InvalidArgument, LimitExceeded) as error:
            await form.send(self._websocket, _refused(form.id_of(frame), error))
            return True
        began, code = perf_counter(), ""
        self._is_carrying_out = True
        try:
            answer = await self._carry_out(request, form)
        except HeadraceError as error:
            answer = _refused(getattr(request, "id", None), error)
            code = error.code
        finally:
            self._is_carrying_out = False
        service = self._calls.service
        endpoint = service.counts.endpoint("websocket", type(request).__name__)
        service.requests.done(endpoint, began, code=code, who={"consumer": self._consumer})
        if answer is not None:
            await form.send(self._websocket, answer)
        return True

    async def _carry_out(self, request: Any, form: Form) -> Any:
        match request:
            case frames.Enqueue():
                messages = [form.outgoing(each) for each in request.messages]
                places = await publish_all(self._calls, request.topic, messages)
                return frames.Done(id=request.id, messages=shown_places(request.topic, places))
            case frames.Dequeue():
                return await self._dequeue(request, form)
            case frames.Tail():
                return await self._tail(request, form)
            case frames.GiveCredit():
                self._find(request.subscription).add(request.credit)
                return None
            case frames.Stop():
                await self._find(request.subscription).stop()
                return frames.Done(id=request.id)
            case frames.Commit():
                return await self._commit(request)
            case frames.Ack():
                return await self._settle(request, Face.ack)
            case frames.Release():
                return await self._settle(request, Face.release)
            case frames.Nack():
                delay_ms = milliseconds_in("delay", request.delay)
                return await self._settle(
                    request, Face.nack, delay_ms=delay_ms, error=request.error
                )
            case frames.Reject():
                return await self._settle(request, Face.reject, reason=request.reason)
            case frames.Extend():
                visibility_ms = milliseconds_in("visibility", request.visibility)
                return await self._settle(request, Face.extend, visibility_ms=visibility_ms)
        raise AssertionError(request)

    async def _settle(self, request: Any, act: Any, **options: Any) -> frames.Done:
        outcomes = await settle(self._calls, act, request.receipts, request.group, options)
        results = [
            Settled(receipt=token, ok=True)
            if error is None
            else Settled(receipt=token, ok=False, code=error.code, detail=str(error))
            for token, error in zip(request.receipts, outcomes, strict=True)
        ]
        return frames.Done(id=request.id, results=results)

    # Subscriptions.

    async def _dequeue(self, request: frames.Dequeue, form: Form) -> frames.Done:
        self._check_room(request.id)
        in_hand = receipts_in_hand(request.in_hand)
        with self._orphans.returning(request.group, self._consumer):
            leasing = await open_leasing(
                self._calls,
                self._aftermath,
                request.group,
                request.topics,
                self._consumer,
                request.settings,
                milliseconds_in("visibility", request.visibility),
                bytes_max=limits.SOCKET_FEED_BYTES_MAX,
                tie=SOCKET,
            )
        if request.group not in self._groups:
            self._groups.add(request.group)
            await self._orphans.come_back(request.group, self._consumer, in_hand)
        lost = await self._orphans.lost(request.group, in_hand)

        stop = Stop()

        async def take(count: int) -> list[Any]:
            return await leasing.find(count, limits.SOCKET_WAIT_MS, stop)

        subscription = _Subscription(request.credit, take, form.delivery, stop, None)
        self._begin(request.id, subscription, form)
        return frames.Done(id=request.id, lost=lost or UNSET)

    async def _tail(self, request: frames.Tail, form: Form) -> frames.Done:
        topic = request.topic
        if request.start not in ("earliest", "latest"):
            raise InvalidArgument(f"start is earliest or latest, not {request.start!r}")
        self._check_room(request.id)
        info = await self._run(Face.topic, topic)
        committed = await self._run(Face.committed, self._consumer, topic)
        positions = {
            each.partition: committed.get(
                each.partition,
                each.start_offset if request.start == "earliest" else each.high_watermark,
            )
            for each in info.partitions
        }

        tail = Tail(self._calls, topic, info.id, positions)

        stop, watch = Stop(), Watch(self._calls.service, [topic])
        stop.on_set(watch.news.set)

        async def take(count: int) -> list[Any]:
            return await self._calls.wait_watching(
                watch, lambda: tail.read(count, limits.SOCKET_FEED_BYTES_MAX),
                limits.SOCKET_WAIT_MS, lambda: stop.is_set,
            )  # fmt: skip

        self._tails[request.id] = topic
        self._begin(request.id, _Subscription(request.credit, take, form.record, stop, watch), form)
        return frames.Done(id=request.id)

    async def _commit(self, request: frames.Commit) -> frames.Done:
        topic = self._tails.get(request.subscription)
        if topic is None:
            raise InvalidArgument(f"{request.subscription!r} is no tail of this connection")
        try:
            positions = {(topic, int(index)): at for index, at in request.positions.items()}
        except ValueError as error:
            raise InvalidArgument("positions are offsets by partition, as in {'0': 17}") from error
        await self._run(Face.commit, self._consumer, positions)
        return frames.Done(id=request.id)

    def _check_room(self, id: frames.Id) -> None:
        if id in self._subscriptions:
            raise InvalidArgument(f"there is a subscription {id!r} already; use another id")
        if len(self._subscriptions) >= limits.SOCKET_SUBSCRIPTIONS_MAX:
            raise LimitExceeded(
                f"a connection has at most {limits.SOCKET_SUBSCRIPTIONS_MAX} subscriptions"
            )

    def _find(self, id: frames.Id) -> _Subscription:
        found = self._subscriptions.get(id)
        if found is None:
            raise InvalidArgument(f"there is no subscription {id!r} on this connection")
        return found

    def _begin(self, id: frames.Id, subscription: _Subscription, form: Form) -> None:
        self._subscriptions[id] = subscription
        subscription.task = asyncio.create_task(self._feed(id, subscription, form))
        subscription.task.add_done_callback(lambda task: self._on_ended(id, task))

    async def _feed(self, id: frames.Id, subscription: _Subscription, form: Form) -> None:
        try:
            while True:
                for message in await subscription.wait():
                    # This waits while the client does not read.
                    shown = subscription.show(message)
                    await form.send(
                        self._websocket, frames.Delivered(subscription=id, message=shown)
                    )
                if subscription.is_stopping:
                    return
        except HeadraceError as error:
            await form.send(self._websocket, _refused(id, error))
        except (WebSocketDisconnect, RuntimeError):
            # The client is gone.
            return
        except Exception:
            # Whoever waits for messages must hear that there will be none.
            logger.exception("a subscription failed")
            await self._websocket.close(1011, "a message could not be sent; see the node's log")

    def _on_ended(self, id: frames.Id, task: asyncio.Task[None]) -> None:
        watch = self._subscriptions.pop(id).watch
        if watch is not None:
            watch.close()
        self._tails.pop(id, None)
        if not task.cancelled():
            # What is wrong by now is that the client is gone.
            task.exception()

    async def _close(self) -> None:
        """Its leases are free for others at once, or when it has not come back; those of a
        node that ends stand."""
        tasks = [each.task for each in self._subscriptions.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._calls.service.closing.done():
            return
        for group in self._groups:
            if self._is_broken or self.is_replaced:
                self._orphans.begin_grace(group, self._consumer)
                continue
            with contextlib.suppress(HeadraceError):
                await self._run(Face.leave, group, self._consumer)


def _refused(id: frames.Id | None, error: HeadraceError) -> frames.Refused:
    return frames.Refused(id=id, code=error.code, detail=str(error), retriable=error.retriable)
