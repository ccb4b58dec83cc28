"""Bodies of requests and messages of WebSockets that are arriving: what all of them may hold
together.

What finds no room is refused. When most of it is taken, those that come slowest make
room for the others, as at the Kafka door (`stalls.py`).
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from starlette.requests import ClientDisconnect, Request

from headrace.core import limits
from headrace.core.errors import LimitExceeded
from headrace.server.stalls import ROOM_PART, Sender, find_slowest

# All of them are looked at no more often than that, however many chunks come.
LOOK_SECONDS = 0.1


class BodyTooLarge(LimitExceeded):
    code = "body-too-large"


class Arriving(Sender, Protocol):
    """What holds room for something that is arriving."""

    def give_up(self) -> int:
        """Let others have the room; how much of it is still held for a while."""


class _Body:
    """One that did not come in one piece."""

    __slots__ = ("_task", "given_up_bytes", "large_arrived", "large_began")

    def __init__(self, task: asyncio.Task[Any], began: float, arrived: int) -> None:
        self._task = task
        self.large_began = began
        self.large_arrived = arrived
        # What it held when others took its room.
        self.given_up_bytes = 0

    @property
    def room_bytes(self) -> int:
        return self.large_arrived

    def give_up(self) -> int:
        self.given_up_bytes = self.large_arrived
        self._task.cancel()
        return self.given_up_bytes


class Budget:
    def __init__(self) -> None:
        self.size_bytes = 0
        # Of those that were given up and have not let go yet.
        self._leaving_bytes = 0
        self._arriving: set[Arriving] = set()
        self._looked = float("-inf")

    async def read_body(self, request: Request, bytes_max: int) -> bytes:
        """All of it, or LimitExceeded as soon as it is too much."""
        length = request.headers.get("content-length", "")
        wanted = int(length) if length.isdecimal() else -1
        if wanted > bytes_max:
            raise _too_large(bytes_max)
        chunks: list[bytes] = []
        size = 0
        body: _Body | None = None
        is_over = False
        try:
            while not is_over:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunk: bytes = message["body"]
                is_over = not message["more_body"]
                if is_over and not chunks:
                    # It has come in one piece, and takes up room no longer.
                    if len(chunk) > bytes_max:
                        raise _too_large(bytes_max)
                    return chunk
                size += len(chunk)
                self.size_bytes += len(chunk)
                if size > bytes_max:
                    raise _too_large(bytes_max)
                if not self._has_room(body):
                    raise LimitExceeded("too much is being received at once; try again later")
                chunks.append(chunk)
                if body is not None:
                    body.large_arrived = size
                elif size != wanted and chunk:
                    body = self._begin(size)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if body is None or not body.given_up_bytes or task is None or task.uncancel():
                raise
            raise LimitExceeded(
                "the body came slowly while others needed its room; try again later"
            ) from None
        finally:
            self.size_bytes -= size
            if body is not None:
                self._arriving.discard(body)
                self._leaving_bytes -= body.given_up_bytes
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _begin(self, size: int) -> _Body:
        task = asyncio.current_task()
        assert task is not None
        body = _Body(task, task.get_loop().time(), size)
        self._arriving.add(body)
        return body

    def hold(self, message: Arriving, more: int) -> bool:
        """Hold so many bytes more for it, or fewer; whether there was room for them."""
        self.size_bytes += more
        if message.room_bytes:
            self._arriving.add(message)
        else:
            self._arriving.discard(message)
        return more <= 0 or self._has_room(message)

    def _has_room(self, asking: Arriving | None) -> bool:
        """Whether all is within the limit, when the slowest have made room."""
        room = int(limits.HTTP_BODIES_BYTES_MAX * ROOM_PART)
        surplus = self.size_bytes - self._leaving_bytes - room
        if surplus <= 0:
            return True
        now = asyncio.get_running_loop().time()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            for each in find_slowest(self._arriving - {asking}, now, surplus):
                self._arriving.discard(each)
                self._leaving_bytes += each.give_up()
        return self.size_bytes - self._leaving_bytes <= limits.HTTP_BODIES_BYTES_MAX


def _too_large(bytes_max: int) -> LimitExceeded:
    return BodyTooLarge(f"a body has at most {bytes_max} bytes here; send several smaller ones")
