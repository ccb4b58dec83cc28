"""A transport that sends what is written in one turn of the loop as one piece.

    write(head) write(body)          one call into the system, not two
         '---------'--> end of the turn, or 64 KiB

uvicorn writes the head of an answer and its body one after the other. A call into the
system costs as much as all else that is done for a small request.
"""

from __future__ import annotations

import asyncio
from typing import Any

FLUSH_BYTES = 64 * 1024


class CorkedTransport:
    """Everything but writing and closing is the transport's own."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0
        # All that was ever handed to the transport, and the last piece of it.
        self.written_bytes = 0
        self._last_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    @property
    def held_bytes(self) -> int:
        """About what is in memory for a client that does not read. A piece stays whole
        until its last byte is sent, and so does the answer of which it is a copy."""
        unsent = self._transport.get_write_buffer_size()
        return unsent + 2 * self._last_bytes if unsent else 0

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > FLUSH_BYTES:
            # Whoever is to wait for a slow reader must be told before it goes on.
            self._flush()

    def _flush(self) -> None:
        parts = self._parts
        self._parts, self._size = [], 0
        if parts and not self._transport.is_closing():
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            self._last_bytes = len(data)
            self.written_bytes += len(data)
            self._transport.write(data)

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        self._transport.close()
