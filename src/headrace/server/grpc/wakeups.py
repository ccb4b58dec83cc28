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


@contextlib.contextmanager
def no_pile(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Around the making of a server: grpc begins to read its socket at the first one that a
    loop has, and not again."""
    add_reader = loop.add_reader

    def add(source: Any, callback: Callable[..., object], *args: Any) -> None:
        if isinstance(source, socket.socket):
            callback = partial(_take_pile, source, partial(callback, *args))
            args = ()
        add_reader(source, callback, *args)

    # On the loop itself, since a class that is compiled cannot be changed.
    loop.add_reader = add  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        del loop.add_reader


def _take_pile(source: socket.socket, handle_events: Callable[[], object]) -> None:
    # Without a flag for it a read would wait: on some systems the socket is a blocking one.
    with contextlib.suppress(BlockingIOError):
        piled = len(source.recv(READ_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        if piled > PILE:
            # All but one, which grpc takes.
            source.recv(piled - 1)
    handle_events()
