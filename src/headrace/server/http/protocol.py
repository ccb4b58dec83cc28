"""What uvicorn's protocols lack: bounds on heads, on waiting, and on an address.

    connection made --> too many of them? --> 503, and closed; too many of its address? --> cut
    each second     --> head, body or answer got nowhere for too long? --> cut

Those that are in stay in, however many knock: uvicorn's own limit refuses requests of all.

A connection between two requests is closed after IDLE_SECONDS. Uvicorn's own timer would not
do: any byte stops it, also an empty line, with which no request begins.
"""

from __future__ import annotations

import asyncio
import select
from time import perf_counter
from typing import Any, cast

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headrace.core import limits
from headrace.core.node_settings import NodeSettings
from headrace.core.request_context import ANONYMOUS
from headrace.server.http.arriving import Budget
from headrace.server.http.corked import CorkedTransport
from headrace.server.http.problems import PROBLEM_TYPE
from headrace.server.http.route import IS_GONE, PRINCIPAL, encode
from headrace.server.service import Service
from headrace.server.shares import shares_of
from headrace.server.stalls import DEAF_SECONDS, Addresses, Untaken, Watch
from headrace.server.sweeping import Sweeper
from headrace.wire.http.group_bodies import Problem

SWEEP_SECONDS = 1.0
IDLE_SECONDS = 75
# Where an application finds the account of the connection, in the scope of its request.
ACCOUNT = "headrace.account"
# What Linux says of a connection whose other side has ended; others say so to who reads.
_ENDED = getattr(select, "POLLRDHUP", 0)


class Guard:
    """Who is let in, and who is cut. One for a door."""

    def __init__(self, service: Service, settings: NodeSettings, bodies: Budget) -> None:
        self._loop = service.loop
        # What is arriving.
        self.bodies = bodies
        self._cuts = service.counts.cuts
        for reason in ("head", "body", "answer", "idle", "full", "address", "memory"):
            self._cuts["http", reason] += 0
        for reason in ("body", "answer", "memory"):
            self._cuts["websocket", reason] += 0
        self._stall_seconds = settings.stall_timeout_ms / 1000 or float("inf")
        self._connections_max = settings.connections_max
        self.tasks_max = limits.HTTP_TASKS_PER_CONNECTION * settings.connections_max
        self.addresses = Addresses(settings.connections_per_address_max)
        # Requests that wait behind others of their connections.
        self.pipelined = 0
        self._connections: set[Any] = set()
        self.untaken: Untaken[Any] = Untaken(
            limits.UNTAKEN_BYTES_MAX,
            lambda connection: is_answer_stalled(connection, self._loop.time(), float("inf")),
            lambda connection: self.cut(connection, "memory"),
        )
        self._is_bounding = False
        self.sweeper = Sweeper(
            SWEEP_SECONDS, lambda: self._connections, self._look_at, self.untaken.bound
        )

    def open(self, connections: set[Any]) -> None:
        self._connections = connections
        self.sweeper.start(self._loop)

    def close(self) -> None:
        self.sweeper.stop()

    def _look_at(self, connection: Any) -> None:
        reason = connection.stall(self._loop.time(), self._stall_seconds)
        if reason:
            self.cut(connection, reason)
        else:
            self.untaken.note(connection)

    def note_untaken(self, connection: Any) -> None:
        self.untaken.note(connection)
        if self.untaken.is_too_much and not self._is_bounding:
            self._is_bounding = True
            # It may be in the middle of a write, where none can be cut.
            self._loop.call_soon(self._bound_deaf)

    def _bound_deaf(self) -> None:
        self._is_bounding = False
        self.untaken.bound(self._loop.time() - DEAF_SECONDS)

    def admit(self, connection: GuardedHttp) -> bool:
        """Whether there is room for this connection, which is one of them already."""
        if len(self._connections) > self._connections_max:
            self._cuts[connection.door, "full"] += 1
            connection.transport.write(_FULL)
            connection.transport.close()
            return False
        if not self.addresses.admit(host_of(connection)):
            self.cut(connection, "address")
            return False
        return True

    def cut(self, connection: Any, reason: str) -> None:
        self._cuts[connection.door, reason] += 1
        if reason == "idle":
            connection.transport.close()
        else:
            connection.transport.abort()


class Noting(asyncio.BaseProtocol):
    """A protocol whose answers are noted with the door while its client does not take them."""

    _guard: Guard
    transport: Any

    @property
    def untaken_bytes(self) -> int:
        size: int = self.transport.held_bytes
        return size

    def pause_writing(self) -> None:
        super().pause_writing()
        self._guard.note_untaken(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._guard.untaken.note(self)


class GuardedHttp(Noting, HttpToolsProtocol):
    door = "http"

    def __init__(self, *args: Any, guard: Guard, **named: Any) -> None:
        super().__init__(*args, **named)
        self._guard = guard
        self.account = shares_of(self.loop).open_account()
        self.principal = ANONYMOUS
        self._is_in_line = False
        self._is_admitted = True
        self._served: Any = self.app
        self._head_bytes = 0
        self._in_head = True
        # Whether the next head is waited for: it has begun, or is the first.
        self._is_head_due = True
        self._received = 0
        # The request that is being answered; `cycle` is the one that came last.
        self._answering: Any = None
        self._pipelined = 0
        self._head, self._body, self.answer_watch = Watch(), Watch(), Watch()
        self._idle = Watch()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        corked: Any = CorkedTransport(transport, self.loop)
        self.transport = corked
        self._is_admitted = self._guard.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_admitted:
            self._guard.addresses.leave(host_of(self))
        self._guard.untaken.forget(self)
        super().connection_lost(exc)
        answering = self._answering
        if answering is not None and not answering.response_complete:
            answering.disconnected = True
            answering.message_event.set()
        # They refer to each other and to this: garbage that is not found for long.
        self.pipeline.clear()
        self._note_pipeline()
        self.cycle = self._answering = self.scope = cast(Any, None)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        if self._pipelined:
            self._note_pipeline()
        super()._start_asgi_task(cycle, app)

    def _note_pipeline(self) -> None:
        waiting = len(self.pipeline)
        self._guard.pipelined += waiting - self._pipelined
        self._pipelined = waiting

    def is_gone(self) -> bool:
        """Whether the client has ended the connection, also where the loop has not come to
        see that yet: it may have been in the same packet as the request."""
        if self.transport.is_closing():
            return True
        if not _ENDED:
            return False
        polling = select.poll()
        polling.register(self.transport.get_extra_info("socket"), _ENDED)
        return bool(polling.poll(0))

    def stall(self, now: float, limit_seconds: float) -> str:
        """Why the connection is to be cut, if it is."""
        if self._head.is_stalled(now, limit_seconds, 0, waits=self._in_head and self._is_head_due):
            return "head"
        # Paused, it is us who do not read.
        waits = not self._in_head and not self.flow.read_paused
        if self._body.is_stalled(now, limit_seconds, self._received, waits=waits):
            return "body"
        if is_answer_stalled(self, now, limit_seconds):
            return "answer"
        cycle = self.cycle
        is_answered = self._in_head and cycle is not None and cycle.response_complete
        unsent = self.transport.get_write_buffer_size()
        waits = is_answered and not self._is_head_due and not unsent
        return "idle" if self._idle.is_stalled(now, IDLE_SECONDS, 0, waits=waits) else ""

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # What uvicorn has just begun: `stall` sees to idle connections.
        self._unset_keepalive_if_required()

    def handle_websocket_upgrade(self) -> None:
        # From here on it is the WebSocket's connection.
        self._guard.untaken.forget(self)
        super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        self._in_head = self._is_head_due = True
        self._idle.reset()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        cast(Any, self.scope)[ACCOUNT] = self.account
        cast(Any, self.scope)[PRINCIPAL] = self.principal
        cast(Any, self.scope)[IS_GONE] = self.is_gone
        # A connection has one at a time; the others are those of clients that have gone.
        is_busy = len(self.tasks) >= self._guard.tasks_max
        self.app = _say_busy if is_busy else self._served
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        self._in_head, self._is_head_due = True, False
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        began = perf_counter()
        self._received += len(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > limits.HTTP_HEAD_BYTES_MAX + len(data):
                self.transport.write(_HEAD_TOO_LARGE)
                self.transport.close()
                return
        super().data_received(data)
        self.account.charge(began)
        if self.pipeline:
            self._note_pipeline()
            is_much = self._pipelined > limits.HTTP_PIPELINED_SMALL
            if is_much and self._guard.pipelined > limits.HTTP_PIPELINED_MAX:
                self._guard.cut(self, "memory")
                return
        # What is paused for another reason has its turn when it begins.
        if self._is_in_line or self.flow.read_paused:
            return
        if self.account.lines_up(self._begin_turn):
            self._is_in_line = True
            self.flow.pause_reading()

    def _begin_turn(self) -> None:
        self._is_in_line = False
        if self.transport.is_closing():
            return
        cycle = self.cycle
        # A full body is read on when some of it was taken; that of a request which is
        # answered already is nobody's.
        is_answered = cycle is None or cycle.response_complete
        if not self.pipeline and (is_answered or len(cycle.body) <= HIGH_WATER_LIMIT):
            self.flow.resume_reading()


def is_answer_stalled(connection: Any, now: float, limit_seconds: float) -> bool:
    unsent = connection.transport.get_write_buffer_size()
    taken = connection.transport.written_bytes - unsent
    watch: Watch = connection.answer_watch
    return watch.is_stalled(now, limit_seconds, taken, waits=unsent > 0)


def host_of(connection: Any) -> str:
    return connection.client[0] if connection.client else ""


def _problem(status: int, title: str, code: str, detail: str, *, retriable: bool) -> bytes:
    return encode(
        Problem(
            type=f"urn:headrace:error:{code}",
            title=title,
            status=status,
            detail=detail,
            code=code,
            retriable=retriable,
            request_id="",
        )
    )


def _last_answer(status: int, title: str, body: bytes) -> bytes:
    """To a connection that ends with it."""
    return (
        b"HTTP/1.1 %d %b\r\nconnection: close\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"
    ) % (status, title.encode(), PROBLEM_TYPE.encode(), len(body), body)


async def _say_busy(scope: Any, receive: Any, send: Any) -> None:
    """An application for requests that there is no room for."""
    headers = [
        (b"content-type", PROBLEM_TYPE.encode()),
        (b"content-length", b"%d" % len(_BUSY)),
        (b"retry-after", b"1"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": _BUSY})


_HEAD_TOO_LARGE = _last_answer(
    431,
    "Request Header Fields Too Large",
    _problem(
        431,
        "Request Header Fields Too Large",
        "head-too-large",
        f"what comes before a body has at most {limits.HTTP_HEAD_BYTES_MAX} bytes; send fewer or "
        "shorter headers",
        retriable=False,
    ),
)
_FULL = _last_answer(
    503,
    "Service Unavailable",
    _problem(
        503,
        "Service Unavailable",
        "too-many-connections",
        "the node has as many connections as it may; try again later, or raise connections_max",
        retriable=True,
    ),
)
_BUSY = _problem(
    503,
    "Service Unavailable",
    "too-many-requests",
    "the node handles as many requests as it may; try again later",
    retriable=True,
)
