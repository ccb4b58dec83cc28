"""A WebSocket beneath its application: what is arriving has to get on, is summed, and has its
turn.

    bytes --> frames --> a message --> the queue --> the application
    '-------- it gets on, or --------'
               is cut
    '-------------- in the sum of what is arriving --------------'

A message may come in fragments, with pings between them: what counts is its content. Fragments
are put together as they come, so a message is never larger in memory than it is.

Nothing is compressed. Rejected: a bound on what a message may grow to. A kilobyte becomes a
megabyte in one piece, wherever the bound is, and what was inflated is held until the last
fragment has come.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from headrace.core.request_context import ANONYMOUS
from headrace.server.http.protocol import ACCOUNT, Guard, Noting, host_of, is_answer_stalled
from headrace.server.http.route import PRINCIPAL
from headrace.server.shares import STEP_SECONDS, shares_of
from headrace.server.stalls import Watch

# What WebSockets call the end of a connection that broke (RFC 6455, 7.4.1).
BROKEN_CODE = 1006
# What is parsed in one piece: at first, when twenty frames may be in it, and where few are.
PIECE_BYTES_MIN, PIECE_BYTES_MAX = 128, 2 * 1024
# Of a piece that took no longer the next one may be twice as large.
PIECE_SECONDS = STEP_SECONDS / 8
# Beside its content, what a message takes while it waits in the queue.
QUEUED_BYTES = 512


class GuardedWebSocket(Noting, WebSocketsSansIOProtocol):
    """Takes over a connection that GuardedHttp has admitted."""

    door = "websocket"

    def __init__(self, *args: Any, guard: Guard, **named: Any) -> None:
        super().__init__(*args, **named)
        self._guard = guard
        self.account = shares_of(self.loop).open_account()
        self.principal = ANONYMOUS
        self._is_in_line = False
        # Since when the application is busy with one message after the other.
        self._step_began = 0.0
        # Of what was read, that which is not parsed yet.
        self._rest = b""
        self._body, self.answer_watch = Watch(), Watch()
        # Content of all frames that have come.
        self._content_bytes = 0
        # In the queue.
        self._queued_bytes = 0
        # As a sender of what is arriving.
        self.large_began = float("inf")
        self.large_arrived = self.room_bytes = 0

    async def run_asgi(self) -> None:
        cast(Any, self.scope)[ACCOUNT] = self.account
        cast(Any, self.scope)[PRINCIPAL] = self.principal
        await super().run_asgi()

    def data_received(self, data: bytes) -> None:
        began = perf_counter()
        if self._rest:
            data, self._rest = self._rest + data, b""
        self._parse(data, began)
        self.account.charge(began)
        if not self._hold():
            self._guard.cut(self, "memory")
            return
        # What is paused by a message goes on when that is taken.
        if self._is_in_line or self.read_paused:
            return
        if self.account.lines_up(self._begin_turn):
            self._is_in_line = True
        elif self._rest:
            self._is_in_line = True
            self.loop.call_soon(self._begin_turn)
        else:
            return
        self.read_paused = True
        self.transport.pause_reading()

    def _parse(self, data: bytes, began: float) -> None:
        """Until it is the others' turn."""
        start, size, now = 0, PIECE_BYTES_MIN, began
        while start < len(data) and now < began + STEP_SECONDS:
            super().data_received(data[start : start + size])
            start += size
            before, now = now, perf_counter()
            if now - before < PIECE_SECONDS:
                size = min(2 * size, PIECE_BYTES_MAX)
        self._rest = data[start:]

    def _begin_turn(self) -> None:
        self._is_in_line = False
        self._read_on()

    def _read_on(self) -> None:
        """From what was read already, and then from the socket."""
        if self._is_in_line or self.transport.is_closing() or not self.queue.empty():
            return
        was_paused, self.read_paused = self.read_paused, False
        if self._rest:
            self.data_received(b"")
        if was_paused and not self.read_paused:
            self.transport.resume_reading()

    def handle_text(self, event: Frame) -> None:
        self._content_bytes += len(event.data)
        super().handle_text(event)
        self._begin_fragments()
        event.data = b""

    def handle_bytes(self, event: Frame) -> None:
        self._content_bytes += len(event.data)
        super().handle_bytes(event)
        self._begin_fragments()
        event.data = b""

    def _begin_fragments(self) -> None:
        if self.frames:
            self.frames = [cast(Any, bytearray(self.frames[0]))]

    def handle_cont(self, event: Frame) -> None:
        self._content_bytes += len(event.data)
        self.frames[0] += event.data
        # The parser keeps the last frame until the next one has come.
        event.data = b""
        if event.fin:
            self.frames = [bytes(self.frames[0])]
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        [content] = self.frames
        is_wide = self.curr_msg_data_type == "text" and not content.isascii()
        before = self.queue.qsize()
        super().send_receive_event_to_app()
        if self.queue.qsize() > before:
            # One character may make all of them take four bytes.
            self._queued_bytes += QUEUED_BYTES + len(content) * (4 if is_wide else 1)
        self._body.reset()
        self.large_began = float("inf")

    async def receive(self) -> Any:
        if self.queue.empty():
            message = await self.queue.get()
            self._step_began = perf_counter()
        else:
            if perf_counter() - self._step_began > STEP_SECONDS:
                # Where nothing is waited for, all that is here would be handled in one step.
                await asyncio.sleep(0)
                self._step_began = perf_counter()
            message = await self.queue.get()
        if self.queue.empty():
            self._queued_bytes = 0
            self._hold()
            if not self._rest:
                self._read_on()
            elif not self._is_in_line:
                self._is_in_line = True
                self.loop.call_soon(self._begin_turn)
        return message

    def _hold(self) -> bool:
        """Count what is arriving; whether there was room for it."""
        arrived = len(self.conn.reader.buffer) + (len(self.frames[0]) if self.frames else 0)
        if not arrived:
            self.large_began = float("inf")
        elif self.large_began == float("inf"):
            self.large_began = self.loop.time()
        self.large_arrived = arrived
        before = self.room_bytes
        self.room_bytes = arrived + self._queued_bytes + len(self._rest)
        return self._guard.bodies.hold(self, self.room_bytes - before)

    def give_up(self) -> int:
        self._guard.cut(self, "memory")
        self._let_go()
        return 0

    def _let_go(self) -> None:
        self.frames, self._rest = [], b""
        self.conn.reader.discard()
        self._queued_bytes = 0
        self._hold()

    def handle_parser_exception(self) -> None:
        if self.close_sent:
            return
        sent = self.conn.close_sent
        if sent is None:
            # The WebSocket is not accepted yet.
            self.transport.abort()
            return
        # Unlike uvicorn, which hangs up at once: a client that is still sending its message
        # would see a broken connection and not the reason.
        gone = {"type": "websocket.disconnect", "code": sent.code, "reason": sent.reason}
        self.queue.put_nowait(cast(Any, gone))
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.write_eof()
        self.close_sent = True
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._guard.addresses.leave(host_of(self))
        self._guard.untaken.forget(self)
        self._let_go()
        if self.conn.close_rcvd is None:
            # Uvicorn says 1005, as of a client that has closed it without saying why.
            self.queue.put_nowait({"type": "websocket.disconnect", "code": BROKEN_CODE})
        super().connection_lost(exc)

    def stall(self, now: float, limit_seconds: float) -> str:
        unparsed = self.conn.reader.buffer
        # While a message waits to be taken it is us who do not read. Standing in line does not
        # count as that: a client that sends without end always stands there.
        waits = bool(unparsed or self.frames) and self.queue.empty()
        total = self._content_bytes + len(unparsed)
        if self._body.is_stalled(now, limit_seconds, total, waits=waits):
            return "body"
        return "answer" if is_answer_stalled(self, now, limit_seconds) else ""
