"""Listening on an address, in all its families on one port.

A name such as localhost stands for an IPv4 and an IPv6 address. Each of them would
get a free port of its own for port 0, and a client could reach only one of the two.

A client whose machine is gone says nothing any more, and its connection would hold leases
and partitions of groups for ever. So the system asks on every connection that is quiet.

    a client connects ──> the system's queue ──> taken ──> its protocol

Connections are taken a few in a turn of the loop. uvloop by itself takes one, so that a thousand
clients that come back together wait for as many turns. And none are taken while many of those
that came before wait to be served for the first time (`shares.py`): in the system's queue they
cost nothing, while each of ours is looked after, also when its client has given up.

Rejected: taking all that wait in one turn, as asyncio does. Everybody else would wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

from headrace.core.node_settings import Address
from headrace.core.system_errors import is_address_missing, is_address_taken
from headrace.server.shares import shares_of

logger = logging.getLogger(__name__)

# How many connections each address takes in a turn of the loop, and how many the system keeps
# that were not taken yet.
TAKEN_AT_ONCE = 4
BACKLOG = 1_024
# How many may wait to be served for the first time while more are taken, and when that is looked
# at again.
UNSERVED_MAX = 64
_LOOK_AGAIN_SECONDS = 0.005
_SHORT_OF_FILES_SECONDS = 1.0
_TRIES = 10
# A peer that is gone without a word is noticed after about a minute, as clients of ours
# notice a node that is.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class Listening:
    """Takes the connections that come to some sockets of one port."""

    def __init__(self, make: Callable[[], asyncio.BaseProtocol], bound: Sequence[socket.socket]):
        """They are bound, and listen from now on. OSError when somebody else does."""
        self.sockets = bound
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._line = shares_of(self._loop).line
        # Connections that are being set up, and sockets that are not looked at for a while.
        self._beginning: set[asyncio.Task[Any]] = set()
        self._resting: dict[socket.socket, asyncio.TimerHandle] = {}
        try:
            for each in bound:
                each.listen(BACKLOG)
                self._loop.add_reader(each, self._on_waiting, each)
        except OSError:
            self.close()
            raise

    def _on_waiting(self, listening: socket.socket) -> None:
        for _ in range(TAKEN_AT_ONCE):
            if self._line.unserved + len(self._beginning) >= UNSERVED_MAX:
                self._rest(listening, _LOOK_AGAIN_SECONDS)
                return
            try:
                taken, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No file descriptors are left, or no memory: until others have gone.
                logger.warning("a connection could not be taken: %s", error)
                self._rest(listening, _SHORT_OF_FILES_SECONDS)
                return
            taken.setblocking(False)
            beginning = self._loop.create_task(self._begin(taken))
            self._beginning.add(beginning)
            beginning.add_done_callback(self._beginning.discard)

    async def _begin(self, taken: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, taken)
        except OSError:
            # It is gone already.
            taken.close()

    def _rest(self, listening: socket.socket, seconds: float) -> None:
        self._loop.remove_reader(listening)
        self._resting[listening] = self._loop.call_later(seconds, self._look_again, listening)

    def _look_again(self, listening: socket.socket) -> None:
        del self._resting[listening]
        self._loop.add_reader(listening, self._on_waiting, listening)

    def close(self) -> None:
        """Take no more. Those that were taken go on."""
        for each in self.sockets:
            resting = self._resting.pop(each, None)
            if resting is not None:
                resting.cancel()
            else:
                self._loop.remove_reader(each)
            each.close()


def _keep_alive(listening: Any) -> None:
    """For every connection that is accepted here."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        # Not every system has all of them.
        with contextlib.suppress(AttributeError, OSError):
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def bind(wanted: Address) -> list[socket.socket]:
    """Sockets for every address that the name stands for, all on one port, which do
    not listen yet; OSError when one of them is taken."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        wanted.host, wanted.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    for tries_left in reversed(range(_TRIES)):
        try:
            return _bind(found, wanted.port)
        except OSError as error:
            # A port that is free in one family may be taken in the other.
            if wanted.port or not tries_left or not is_address_taken(error):
                raise
    raise AssertionError("the last try returns or raises")


def _bind(found: Sequence[Any], port: int) -> list[socket.socket]:
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, kind, protocol, _, address in found:
            try:
                bound.append(_bind_one(family, kind, protocol, (address[0], port, *address[2:])))
            except OSError as error:
                # A name may have addresses of a family that the machine has not.
                if not is_address_missing(error):
                    raise
                missing = error
            else:
                port = bound[-1].getsockname()[1]
        if missing is not None and not bound:
            raise missing
    except OSError:
        for each in bound:
            each.close()
        raise
    return bound


def _bind_one(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _keep_alive(bound)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound
