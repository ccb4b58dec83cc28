"""The Kafka door: listens, and hands each request to the file of its API.

A handler takes the call and the decoded request and gives back a response, an awaitable of one,
or None to send none. It never blocks: what waits for the disk or for data returns a future.

Whatever a peer does, the others do not feel it: what it sends is bounded in size, what is being
received from all is bounded in sum, and a sweep cuts off who stalls within a frame, does not take
its answers, or has been silent for long. A handler that fails is our fault: it is logged, and costs
its own connection only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from headrace.core import limits
from headrace.core.errors import DeadlineExceeded, MalformedMessage
from headrace.core.event_log import log_event
from headrace.core.node_settings import Address, NodeSettings
from headrace.core.request_context import BY_ANYONE, RequestContext
from headrace.engine.broker import Broker
from headrace.engine.commit import Commit
from headrace.server.kafka import api_versions
from headrace.server.kafka.answer_bytes import NOTHING, Encoded, encode, frame_of, is_large
from headrace.server.kafka.answer_errors import name_of
from headrace.server.kafka.client_metrics import ClientMetrics
from headrace.server.kafka.connection import SCRATCH_BYTES, TOO_MUCH, Connection
from headrace.server.kafka.errors import Error
from headrace.server.kafka.group_members import members_of
from headrace.server.kafka.groups import LiveGroups
from headrace.server.kafka.live_settings import LiveSettings
from headrace.server.kafka.parts import PART
from headrace.server.kafka.request_time import wait_and_context
from headrace.server.kafka.rooms import Rooms
from headrace.server.kafka.share_groups import LiveShares
from headrace.server.kafka.slot import Slot
from headrace.server.kafka.transactions import LiveTransactions
from headrace.server.listening import Listening, bind
from headrace.server.metrics.counting import Endpoint
from headrace.server.remote.door import RemoteDoor
from headrace.server.service import Service
from headrace.server.stalls import ROOM_PART, Addresses, Untaken, find_slowest
from headrace.server.sweeping import Sweeper
from headrace.wire.kafka.api import (
    API_VERSIONS,
    APIS,
    Api,
    Message,
    decode_request,
)
from headrace.wire.kafka.frame import decode_request_header
from headrace.wire.kafka.produce_run import PRODUCE
from headrace.wire.kafka.produce_size import writes_to_many
from headrace.wire.remote.methods import API_KEY

SWEEP_SECONDS = 10.0
# How often the answers that nobody takes are summed up.
SUM_SECONDS = 1.0
# How long a stop waits for what is under way: syncs, and answers to go out.
STOP_SECONDS = 5.0
POLITE_SECONDS = 0.3
# A join waits for the other members, and a sync for their leader.
REBALANCING = frozenset((11, 14))
STALLS = {
    "body": "it got nowhere in the middle of a request",
    "answer": "it does not take its answers",
    "memory": "too much waits for clients that do not take their answers",
}
# A larger request is decoded away from the loop.
LARGE_BYTES = 64 * 1024
# A warning that strangers can cause is written once in so many seconds.
WARNING_SECONDS = 5.0


class Call(NamedTuple):
    """One request: who asks, and in which version."""

    door: Door
    connection: Connection
    api: Api
    version: int
    correlation_id: int
    client_id: str
    # When it was read, by perf_counter, and how long it may wait for something.
    began: float = 0.0
    wait_ms: int = 0
    # Who asks, and until when.
    context: RequestContext = BY_ANYONE
    # Whether it was large, and copied: otherwise another request's bytes take the place of
    # its own once its handler has returned.
    has_own_bytes: bool = False

    @property
    def service(self) -> Service:
        return self.door.service

    @property
    def broker(self) -> Broker:
        """The engine, for this request: who asks is in the context."""
        return self.door.service.broker

    def submit(self, commit: Commit) -> asyncio.Future[None] | None:
        """As the service does, for as long as this request has."""
        return self.door.service.submit(commit, self.context.deadline)

    async def finish(self, commit: Commit) -> None:
        await self.door.service.finish(commit, self.context.deadline)


T = TypeVar("T")
Handler = Callable[[Call, Any], Message | Awaitable[Message | None] | None]


class Door:
    def __init__(
        self, service: Service, settings: NodeSettings, handlers: dict[int, Handler]
    ) -> None:
        self.service = service
        self.live = LiveSettings(service, settings)
        self.handlers = handlers
        self.request_bytes_max = settings.request_bytes_max
        self.logger = logging.getLogger("headrace.kafka")
        self.address = Address("", 0)
        self.advertised = Address("", 0)
        self.connections: set[Connection] = set()
        self.groups = LiveGroups(service, self.live, settings.groups_memory_bytes)
        self.held = self.groups.held
        self.fetch_sessions = self.held.fetch_sessions
        self.shares = LiveShares(service, self.groups)
        self.transactions = LiveTransactions(service, settings)
        self.client_metrics = ClientMetrics(service)
        service.client_samples = self.client_metrics.samples
        service.member_lists.append(lambda group: members_of(self.groups, self.shares, group))
        service.group_lists.append(self.groups.streams_with_members)
        for reason in ("body", "answer", "idle", "address", "full", "memory"):
            service.counts.cuts["kafka", reason] += 0
        self._addresses = Addresses(settings.connections_per_address_max)
        self._stall_seconds = settings.stall_timeout_ms / 1000 or float("inf")
        # How many sweeps in a row may find a connection silent.
        self.silent_sweeps_max = _sweeps(settings.connections_max_idle_ms)
        self._sweeps = 0
        self._server: Listening | None = None
        self.tasks: set[asyncio.Future[Any]] = set()
        # Where every connection reads into; see there.
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.rooms = Rooms()
        # Long polls that can be answered at once when the node stops.
        self.polls: set[Callable[[], None]] = set()
        self.remote = RemoteDoor(self)
        self._endpoints: dict[int, Endpoint] = {}
        service.held_bytes.update(self.held.measure())
        service.held_bytes["receiving"] = lambda: self.rooms.bytes
        service.connections["kafka"] = lambda: len(self.connections) - self.remote.session_count
        service.connections["sdk"] = lambda: self.remote.session_count
        self._complained_at, self._not_written = -WARNING_SECONDS, 0
        self._untaken: Untaken[Connection] = Untaken(
            limits.UNTAKEN_BYTES_MAX,
            lambda connection: connection.stall(self._sweeps * SWEEP_SECONDS, float("inf")),
            lambda connection: self._cut(connection, "memory"),
        )
        self.sweeper = Sweeper(
            SWEEP_SECONDS, lambda: self.connections, self._look_at, self._on_sweep
        )
        self.summer = Sweeper(
            SUM_SECONDS, lambda: self.connections, self._untaken.note, self._on_sum
        )
        self.live.follow(self._on_settings)

    @property
    def settings(self) -> NodeSettings:
        """As they hold now."""
        return self.live.current

    def _on_settings(self, settings: NodeSettings) -> None:
        self.service.broker.topics.auto_create_partitions = settings.auto_create_partitions
        self.transactions.timeout_ms_max = settings.transaction_timeout_max_ms
        self._addresses.count_max = settings.connections_per_address_max

    async def open(self) -> None:
        """Listen; OSError when the address is taken."""
        wanted = Address.parse("kafka", self.settings.kafka)
        self._server = Listening(lambda: Connection(self), await bind(wanted))
        port = self._server.sockets[0].getsockname()[1]
        self.address = Address(wanted.host, port)
        self.advertised = self.address
        if self.settings.kafka_advertised:
            self.advertised = Address.parse("kafka_advertised", self.settings.kafka_advertised)
        for each in (self.sweeper, self.summer):
            each.start(self.service.loop)

    # Connections.

    def admit(self, connection: Connection) -> bool:
        is_full = len(self.connections) >= self.settings.connections_max
        if is_full or not self._addresses.admit(connection.peer_host):
            reason = "connections_max is reached" if is_full else "of one address"
            self.complain("too many connections", connection, reason)
            self.service.counts.cuts["kafka", "full" if is_full else "address"] += 1
            return False
        self.connections.add(connection)
        return True

    def on_connection_lost(self, connection: Connection) -> None:
        self._untaken.forget(connection)
        if connection in self.connections:
            self.connections.remove(connection)
            self._addresses.leave(connection.peer_host)
        # Some of them take themselves off the list.
        for closed in tuple(connection.on_closed):
            closed()
        connection.on_closed.clear()

    def complain(self, event: str, connection: Connection, reason: str) -> None:
        """Log what a peer did. Strangers can cause this as often as they like, so
        only the first in a while is written, with how many were not."""
        now = self.service.loop.time()
        if now - self._complained_at < WARNING_SECONDS:
            self._not_written += 1
            return
        log_event(
            self.logger,
            logging.WARNING,
            event,
            peer=connection.peer_host,
            client=connection.client_software,
            reason=reason,
            not_written_before=self._not_written,
        )
        self._complained_at, self._not_written = now, 0

    def _cut(self, connection: Connection, reason: str) -> None:
        self.service.counts.cuts["kafka", reason] += 1
        connection.close(STALLS[reason])

    def _on_sum(self) -> None:
        self._untaken.bound()
        self.bound_receiving(self.service.loop.time())

    def bound_receiving(self, now: float) -> None:
        """Cut off who sends slowest, when little room is left for frames of others."""
        surplus = self.rooms.bytes - int(limits.RECEIVING_BYTES_MAX * ROOM_PART)
        for connection in find_slowest(self.connections, now, surplus):
            self.service.counts.cuts["kafka", "memory"] += 1
            connection.close("it sends slowly, and others need the room that it takes")

    def _look_at(self, connection: Connection) -> None:
        """Cut it off if it has stalled or fallen silent."""
        received = connection.received_bytes
        is_quiet = received == connection.seen_received_bytes
        connection.quiet_sweeps = connection.quiet_sweeps + 1 if is_quiet else 0
        connection.seen_received_bytes = received
        reason = connection.stall(self._sweeps * SWEEP_SECONDS, self._stall_seconds)
        if reason:
            self._cut(connection, reason)
        elif connection.quiet_sweeps >= self.silent_sweeps_max and connection.is_idle:
            self.service.counts.cuts["kafka", "idle"] += 1
            connection.finish()

    def _on_sweep(self) -> None:
        self._sweeps += 1

    # Requests.

    def handle(self, connection: Connection, slot: Slot, frame: memoryview) -> None:
        """MalformedMessage when the frame is not a request that we offer."""
        began = perf_counter()
        header = decode_request_header(frame)
        key, version, correlation_id, client_id, position = header
        api = APIS.get(key)
        handler = self.handlers.get(key)
        if api is None or handler is None or not api.speaks(version):
            if key == API_KEY:
                self.remote.handle(connection, slot, version, correlation_id, frame[position:])
                return
            self._refuse(connection, slot, key, version, correlation_id)
            return
        if len(frame) > LARGE_BYTES and (
            key != PRODUCE or writes_to_many(version, frame, position, PART)
        ):
            call = Call(self, connection, api, version, correlation_id, client_id or "", began)
            self._handle_apart(call, slot, handler, frame, position)
            return
        request = decode_request(key, version, frame, position)
        if key == PRODUCE:
            connection.routes.learn(frame, header, request)
        now = self.service.loop.time()
        timed = wait_and_context(request, connection.context, correlation_id, now)
        call = Call(self, connection, api, version, correlation_id, client_id or "", began, *timed)
        self._dispatch(call, slot, handler, request)

    def _handle_apart(
        self, call: Call, slot: Slot, handler: Handler, frame: memoryview, position: int
    ) -> None:
        """A large request is decoded away from the loop, unless it is one of few batches, of
        which nothing is made. Nothing behind it begins before it does."""
        connection, size = call.connection, len(frame)
        if not self.rooms.keep(size):
            connection.close(TOO_MUCH)
            return
        connection.hold_turns()
        decoding = self.service.run_apart(
            decode_request, call.api.key, call.version, bytearray(frame), position
        )
        call = call._replace(has_own_bytes=True)
        self.tasks.add(decoding)

        def begin(done: asyncio.Future[Message]) -> None:
            self.tasks.discard(done)
            self.rooms.bytes -= size
            if done.cancelled():
                return
            # Asked for in any case: asyncio complains of errors that nobody has seen.
            error = done.exception()
            if connection.is_closed:
                return
            if isinstance(error, MalformedMessage):
                connection.close(str(error))
            elif error is not None:
                self._on_failed(call, error)
            else:
                # It may hold them again.
                connection.release_turns()
                request = done.result()
                now = self.service.loop.time()
                wait_ms, context = wait_and_context(
                    request, connection.context, call.correlation_id, now
                )
                timed = call._replace(wait_ms=wait_ms, context=context)
                self._dispatch(timed, slot, handler, request)

        decoding.add_done_callback(begin)

    def _dispatch(self, call: Call, slot: Slot, handler: Handler, request: Any) -> None:
        try:
            result = handler(call, request)
        except Exception as error:
            self._on_failed(call, error)
            return
        if result is None:
            self._send(call, slot, NOTHING)
        elif isinstance(result, tuple):
            if call.has_own_bytes:
                self._answer_apart(call, slot, result)
            else:
                self._answer(call, slot, result)
        else:
            self._answer_later(call, slot, result)

    def _answer(self, call: Call, slot: Slot, response: Message) -> None:
        try:
            encoded = encode(call, response)
        except Exception as error:
            self._on_failed(call, error)
            return
        self._send(call, slot, encoded)

    def _send(self, call: Call, slot: Slot, encoded: Encoded) -> None:
        self._count(call, encoded.errors)
        call.connection.answer(slot, encoded.parts)

    def endpoint(self, api: Api) -> Endpoint:
        found = self._endpoints.get(api.key)
        if found is None:
            found = self._endpoints[api.key] = self.service.counts.endpoint("kafka", api.name)
        return found

    def _count(self, call: Call, errors: Mapping[int, int]) -> None:
        endpoint = self.endpoint(call.api)
        for code, times in errors.items():
            endpoint.errors[name_of(code)] += times
        requests = self.service.requests
        seconds = perf_counter() - call.began
        if seconds < requests.look_seconds:
            requests.done(endpoint, call.began, seconds=seconds)
            return
        is_joining = call.api.key in REBALANCING
        requests.done(
            endpoint,
            call.began,
            seconds=seconds,
            waited_ms=float("inf") if is_joining else call.wait_ms,
            who={
                "client": call.client_id,
                "peer": call.connection.peer_host,
                "correlation_id": call.correlation_id,
                **({"error": name_of(next(iter(errors)))} if errors else {}),
            },
        )

    def _on_failed(self, call: Call, error: BaseException) -> None:
        if isinstance(error, DeadlineExceeded):
            # There is no word for it in the answers of this API.
            self.endpoint(call.api).errors[Error.REQUEST_TIMED_OUT.name] += 1
            call.connection.close(f"{call.api.name} took too long")
            return
        log_event(
            self.logger,
            logging.ERROR,
            "request failed",
            exc_info=error,
            api=call.api.name,
            version=call.version,
            client=call.client_id,
            correlation_id=call.correlation_id,
        )
        self.endpoint(call.api).errors["failed"] += 1
        call.connection.close(f"{call.api.name} failed")

    def _refuse(
        self, connection: Connection, slot: Slot, key: int, version: int, correlation_id: int
    ) -> None:
        """An unknown version of ApiVersions is answered with what there is; of
        anything else nothing sensible can be said."""
        if key != API_VERSIONS:
            raise MalformedMessage(f"version {version} of API {key} is not offered")
        call = Call(self, connection, APIS[API_VERSIONS], 0, correlation_id, "")
        connection.answer(slot, frame_of(call, api_versions.unsupported(self)))

    def _answer_later(self, call: Call, slot: Slot, result: Awaitable[Message | None]) -> None:
        answering = asyncio.ensure_future(result, loop=self.service.loop)
        self._follow(call, answering, partial(self._answer_any, call, slot))

    def _answer_any(self, call: Call, slot: Slot, response: Message | None) -> None:
        if response is None:
            self._send(call, slot, NOTHING)
        elif call.has_own_bytes or is_large(response):
            self._answer_apart(call, slot, response)
        else:
            self._answer(call, slot, response)

    def _answer_apart(self, call: Call, slot: Slot, response: Message) -> None:
        """Encoded away from the loop: much was asked, or there is much to answer."""
        encoding = self.service.run_apart(encode, call, response)
        self._follow(call, encoding, partial(self._send, call, slot))

    def _follow(self, call: Call, future: asyncio.Future[T], then: Callable[[T], None]) -> None:
        """Go on with what the future brings, unless the node ends before."""
        self.tasks.add(future)

        def on_done(done: asyncio.Future[T]) -> None:
            self.tasks.discard(done)
            if done.cancelled():
                return
            error = done.exception()
            if error is not None:
                self._on_failed(call, error)
            else:
                then(done.result())

        future.add_done_callback(on_done)

    # The end.

    async def close(self, grace_seconds: float = STOP_SECONDS) -> None:
        """Take no more connections or requests, answer what is under way, hang up.
        Members that wait for their group are not waited for."""
        for each in (self.sweeper, self.summer):
            each.stop()
        if self._server is not None:
            self._server.close()
        for connection in self.connections:
            connection.stop_reading()
        for finish in list(self.polls):
            finish()
        loop = self.service.loop
        deadline = loop.time() + grace_seconds
        # A commit that is done is answered in one of the loop's next turns.
        patience = loop.time() + POLITE_SECONDS
        while any(not each.is_idle for each in self.connections) and loop.time() < deadline:
            if self.service.commits.is_idle and loop.time() > patience:
                break
            await asyncio.sleep(0.01)
        for task in list(self.tasks):
            task.cancel()
        for connection in list(self.connections):
            connection.finish()
        patience = loop.time() + POLITE_SECONDS
        while self.connections and loop.time() < patience:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.abort()
        self.groups.close()


def _sweeps(timeout_ms: int) -> float:
    """How many sweeps are that long; 0 is for ever."""
    return max(1, round(timeout_ms / 1000 / SWEEP_SECONDS)) if timeout_ms else float("inf")
