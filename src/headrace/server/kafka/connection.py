"""A connection: bytes to frames, frames to calls, answers in the order of requests.

    socket --> buffer --> frame --> handler --> slot --> socket
                                      |           ^
                                      '- later ---'   a long poll, a sync

A frame is a length of four bytes and so many bytes. Requests are handled as they
come, also while earlier ones wait; their answers wait for their turn. Reading stops
while too many requests are open or the peer does not take its answers, so neither
side can make this one grow.

Rejected: asyncio's streams. They copy every byte once more and cost three times as
much for small requests.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from headrace.core.errors import MalformedMessage
from headrace.core.ports import Buffer

if TYPE_CHECKING:
    from headrace.server.kafka.door import Door

_LENGTH = struct.Struct(">i")
RECEIVE_BYTES = 256 * 1024
# Requests of one connection that are not answered yet.
OPEN_REQUESTS_MAX = 1_000
# Answers that the peer has not taken yet: beyond the high mark reading stops.
WRITE_BYTES_HIGH = 4 * 1024 * 1024
WRITE_BYTES_LOW = 1024 * 1024


class Slot:
    """The place of one answer in the order of a connection's answers."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        # None until it is known; empty for a request that gets no answer.
        self.parts: Sequence[Buffer] | None = None


class Connection(asyncio.BufferedProtocol):
    def __init__(self, door: Door) -> None:
        self._door = door
        self.transport: asyncio.Transport | None = None
        self.peer_host = ""
        # What the client said of itself in its first ApiVersions.
        self.client_software = ""
        self._buffer = bytearray(RECEIVE_BYTES)
        self._view = memoryview(self._buffer)
        # Received and not handled yet: _buffer[_start:_end].
        self._start = 0
        self._end = 0
        self._slots: deque[Slot] = deque()
        self._is_paused = False
        self._is_writable = True
        self.is_closed = False
        # Whoever holds something for this connection lets go of it at its end.
        self.share_sessions: set[tuple[str, str]] = set()
        self.on_closed: list[Callable[[], None]] = []

    # Arriving.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop are of no class of asyncio.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(WRITE_BYTES_HIGH, WRITE_BYTES_LOW)
        peer = transport.get_extra_info("peername")
        self.peer_host = str(peer[0]) if peer else ""
        if not self._door.admit(self):
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._slots.clear()
        self._door.on_connection_lost(self)

    # Reading.

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._end == len(self._buffer):
            self._make_room(0)
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self._handle_frames()

    def _handle_frames(self) -> None:
        while not self._is_paused and not self.is_closed:
            available = self._end - self._start
            if available < 4:
                self._make_room(4)
                return
            (length,) = _LENGTH.unpack_from(self._buffer, self._start)
            if not 0 < length <= self._door.request_bytes_max:
                self.close(f"a frame of {length} bytes")
                return
            if available < 4 + length:
                self._make_room(4 + length)
                return
            frame = self._view[self._start + 4 : self._start + 4 + length]
            self._start += 4 + length
            self._handle(frame)
            if len(self._slots) >= OPEN_REQUESTS_MAX:
                self._pause()
        if self._start == self._end and not self._is_paused:
            self._start = self._end = 0

    def _handle(self, frame: memoryview) -> None:
        slot = Slot()
        self._slots.append(slot)
        try:
            self._door.handle(self, slot, frame)
        except MalformedMessage as error:
            self.close(str(error))

    def _make_room(self, wanted: int) -> None:
        """Have a buffer in which `wanted` bytes from the start fit. A frame may
        still be in use, so bytes are never moved within a buffer: what is left
        goes to a new one."""
        available = self._end - self._start
        if self._start + max(wanted, 4) <= len(self._buffer) and self._end < len(self._buffer):
            return
        size = max(RECEIVE_BYTES, wanted)
        buffer = bytearray(size)
        buffer[:available] = self._view[self._start : self._end]
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._start = 0
        self._end = available

    # Answering.

    def answer(self, slot: Slot, parts: Sequence[Buffer]) -> None:
        """The answer of one request is known; it goes out when its turn comes."""
        slot.parts = parts
        slots = self._slots
        if self.is_closed or not slots or slots[0] is not slot:
            return
        ready: list[Buffer] = []
        while slots and slots[0].parts is not None:
            ready += slots.popleft().parts or ()
        if ready and self.transport is not None:
            self.transport.writelines(ready)
        if self._is_paused and self._is_writable and len(slots) < OPEN_REQUESTS_MAX // 2:
            self._resume()

    def pause_writing(self) -> None:
        self._is_writable = False
        self._pause()

    def resume_writing(self) -> None:
        self._is_writable = True
        if len(self._slots) < OPEN_REQUESTS_MAX:
            self._resume()

    def _pause(self) -> None:
        if not self._is_paused and self.transport is not None:
            self._is_paused = True
            self.transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused and self.transport is not None and not self.is_closed:
            self._is_paused = False
            self.transport.resume_reading()
            # Frames that came before the pause are still in the buffer.
            asyncio.get_running_loop().call_soon(self._handle_frames)

    def close(self, reason: str) -> None:
        """Cut the connection: its peer does not speak our language."""
        if not self.is_closed and self.transport is not None:
            self._door.logger.warning(
                "connection closed", extra={"peer": self.peer_host, "reason": reason}
            )
            self.is_closed = True
            self.transport.abort()

    def end_with(self, group: str, member: str) -> None:
        """A share session lives on this connection: it ends with it."""
        self.share_sessions.add((group, member))

    def finish(self) -> None:
        """Close once everything that was answered has gone out."""
        if self.transport is not None:
            self.transport.close()

    @property
    def is_idle(self) -> bool:
        return not self._slots
