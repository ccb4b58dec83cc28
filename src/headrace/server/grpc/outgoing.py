"""Answers that clients have not taken, of all calls and streams together.

    made --> noted --> being written --> taken: forgotten
                             '--> the sum is too much: those are hung up on whose answers
                                  have waited for longest

grpc keeps an answer until the client has room for it, and does not say how much of it was
taken. So an answer has a quarter of a second before its client may be hung up on, and that
only while too much waits for all clients together.

Rejected: ending the call. Its status would wait behind the answer, and grpc keeps both; so
it does when the call's task is cancelled.

What is written is bytes: an answer of ours that grpc encodes itself stays beside its bytes
until it is taken, with all that it was made of.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from headrace.core import limits
from headrace.server.grpc.hanging_up import hang_up, plain_host
from headrace.server.grpc.peers import address_of
from headrace.server.service import Service

# Smaller ones of as many calls as there may be fit into the sum anyway.
LARGE_BYTES: Final = 4 * 1024
DEAF_SECONDS: Final = 0.25
# The bytes, and grpc's copy of them.
_COPIES: Final = 2


class _Waiting(NamedTuple):
    peer: str
    size: int
    since: float


class Outgoing:
    """Of the door."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._cuts = service.counts.cuts
        self._cuts["grpc", "memory"] += 0
        # At which the door listens.
        self.port = 0
        # The oldest come first.
        self._waiting: dict[object, _Waiting] = {}
        self._total = 0
        self._timer: asyncio.TimerHandle | None = None
        self._deaf: set[tuple[str, int]] = set()
        self._is_hanging_up = False

    def of(self, context: Any) -> Writer:
        return Writer(self, context)

    def note(self, key: object, peer: str, size: int) -> None:
        self._waiting[key] = _Waiting(peer, _COPIES * size, self._service.loop.time())
        self._total += _COPIES * size
        if self._timer is None:
            self._bound()

    def forget(self, key: object) -> None:
        found = self._waiting.pop(key, None)
        if found is not None:
            self._total -= found.size

    def _bound(self) -> None:
        self._timer = None
        loop = self._service.loop
        while self._total > limits.UNTAKEN_BYTES_MAX:
            key, each = next(iter(self._waiting.items()))
            if loop.time() - each.since < DEAF_SECONDS:
                self._timer = loop.call_at(each.since + DEAF_SECONDS, self._bound)
                break
            self.forget(key)
            self._cuts["grpc", "memory"] += 1
            host, port = address_of(each.peer)
            self._deaf.add((plain_host(host), port))
        if self._deaf and not self._is_hanging_up:
            self._hang_up()

    def _hang_up(self) -> None:
        # It looks at every connection, so once for all who are deaf by now.
        deaf, self._deaf = self._deaf, set()
        self._is_hanging_up = True
        done = self._service.loop.run_in_executor(None, hang_up, deaf, self.port)
        done.add_done_callback(self._on_hung_up)

    def _on_hung_up(self, _done: asyncio.Future[int]) -> None:
        self._is_hanging_up = False
        if self._deaf:
            self._hang_up()


class Writer:
    """Of one call: what is written by it is noted while it is not taken."""

    def __init__(self, outgoing: Outgoing, context: Any) -> None:
        self._outgoing = outgoing
        self._context = context

    def peer(self) -> str:
        name: str = self._context.peer()
        return name

    async def write(self, answer: bytes) -> None:
        if len(answer) < LARGE_BYTES:
            await self._context.write(answer)
            return
        self._outgoing.note(self, self.peer(), len(answer))
        try:
            await self._context.write(answer)
        finally:
            self._outgoing.forget(self)

    def note_last(self, answer: bytes) -> None:
        """The answer of a call, which grpc writes behind us: until the call is over."""
        key = object()
        self._outgoing.note(key, self.peer(), len(answer))
        outgoing = self._outgoing
        self._context.add_done_callback(lambda _: outgoing.forget(key))
