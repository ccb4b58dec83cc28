"""How grpc wakes the loop: by a byte through a socket for each of its events.

Once awake it handles all events that there are, but takes one byte. When events come faster
than the loop turns, the bytes pile up until the socket is full, which is at a few hundred.
Then grpc's thread waits with each event until a byte is taken: one event a turn, for all
calls of all clients. So what has piled up is taken here first.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

# Few bytes are left to grpc, for which a turn more costs nothing.
PILE = 32
READ_BYTES = 65_536
# In so few turns a small pile does not fill the socket, or not for long.
TURNS_BETWEEN = 8
# Without the second flag a read would wait: on some systems the socket is a blocking one.
_PEEK = socket.MSG_PEEK | socket.MSG_DONTWAIT


@contextlib.contextmanager
def no_pile(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Around the making of a server: grpc begins to read its socket at the first one that a
    loop has, and not again."""
    add_reader = loop.add_reader

    def add(source: Any, callback: Callable[..., object], *args: Any) -> None:
        if isinstance(source, socket.socket):
            callback = _Pile(source, partial(callback, *args)).take
            args = ()
        add_reader(source, callback, *args)

    # On the loop itself, since a class that is compiled cannot be changed.
    loop.add_reader = add  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        del loop.add_reader


class _Pile:
    """What is in grpc's socket. Looking at it costs about as much as grpc's own work in a
    turn, so where it was small it is not looked at for some turns."""

    def __init__(self, source: socket.socket, handle_events: Callable[[], object]) -> None:
        self._source = source
        self._handle_events = handle_events
        self._turns_left = 0

    def take(self) -> None:
        self._turns_left -= 1
        if self._turns_left <= 0:
            self._turns_left = self._look()
        self._handle_events()

    def _look(self) -> int:
        """Take all bytes but one, where there are many; when to look again."""
        try:
            piled = len(self._source.recv(READ_BYTES, _PEEK))
        except BlockingIOError:
            return TURNS_BETWEEN
        if piled <= PILE:
            return TURNS_BETWEEN
        # The one is for grpc.
        self._source.recv(piled - 1)
        return 0
