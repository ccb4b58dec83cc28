"""Listening on an address, in all its families on one port.

A name such as localhost stands for an IPv4 and an IPv6 address. Each of them would
get a free port of its own for port 0, and a client could reach only one of the two.

A client whose machine is gone says nothing any more, and its connection would hold leases
and partitions of groups for ever. So the system asks on every connection that is quiet.

uvloop takes one connection a turn of its loop from each socket that it listens on. Under load,
or when all clients come back at once, a thousand of them would wait for as many turns: each
socket is listened on several times, by duplicates that share one queue of the system's.

Rejected: taking all that wait in one turn, as asyncio does. Everybody else would wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

from headrace.core.node_settings import Address

# How many connections each address takes in a turn of the loop.
TAKEN_AT_ONCE = 4
# A port that was free a moment ago may be taken.
_TRIES = 10
# A peer that is gone without a word is noticed after about a minute, as clients of ours
# notice a node that is.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class Listening:
    """What takes the connections that come to one address."""

    def __init__(self, servers: Sequence[asyncio.Server]) -> None:
        self._servers = servers

    @property
    def sockets(self) -> Sequence[Any]:
        """One for each family."""
        return self._servers[0].sockets

    def close(self) -> None:
        for each in self._servers:
            each.close()

    async def wait_closed(self) -> None:
        for each in self._servers:
            await each.wait_closed()


async def listen(
    make: Callable[[], asyncio.BaseProtocol], wanted: Address, *, backlog: int
) -> Listening:
    """OSError when the address is taken."""
    loop = asyncio.get_running_loop()
    for tries_left in reversed(range(_TRIES)):
        port = wanted.port or await _common_port(wanted.host)
        try:
            server = await loop.create_server(make, wanted.host, port, backlog=backlog)
        except OSError as error:
            if wanted.port or not tries_left or error.errno != errno.EADDRINUSE:
                raise
        else:
            for each in server.sockets:
                _keep_alive(each)
            more = [
                await loop.create_server(make, sock=each, backlog=backlog)
                for each in duplicates(server.sockets)
            ]
            return Listening([server, *more])
    raise AssertionError("the last try returns or raises")


def duplicates(listening: Sequence[Any]) -> list[socket.socket]:
    """The other sockets by which connections to these are taken."""
    return [
        socket.socket(fileno=os.dup(each.fileno()))
        for each in listening
        for _ in range(TAKEN_AT_ONCE - 1)
    ]


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
    port = wanted.port
    bound: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in found:
            bound.append(socket.socket(family, kind, protocol))
            bound[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _keep_alive(bound[-1])
            if family == socket.AF_INET6:
                bound[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound[-1].bind((address[0], port, *address[2:]))
            bound[-1].setblocking(False)
            port = bound[-1].getsockname()[1]
    except OSError:
        for each in bound:
            each.close()
        raise
    return bound


async def _common_port(host: str) -> int:
    """One that is free in every family; 0 when there is only one."""
    for _ in range(_TRIES):
        try:
            held = await bind(Address(host, 0))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                # A machine without that family: the system says so when it matters.
                return 0
            raise
        port = held[0].getsockname()[1] if len(held) > 1 else 0
        for each in held:
            each.close()
        return port
    return 0
