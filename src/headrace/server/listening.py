"""Listening on an address, in all its families on one port.

A name such as localhost stands for an IPv4 and an IPv6 address. Each of them would
get a free port of its own for port 0, and a client could reach only one of the two.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

from headrace.core.node_settings import Address

# A port that was free a moment ago may be taken.
_TRIES = 10


async def listen(
    make: Callable[[], asyncio.BaseProtocol], wanted: Address, *, backlog: int
) -> asyncio.Server:
    """OSError when the address is taken."""
    loop = asyncio.get_running_loop()
    for tries_left in reversed(range(_TRIES)):
        port = wanted.port or await _common_port(wanted.host)
        try:
            return await loop.create_server(make, wanted.host, port, backlog=backlog)
        except OSError as error:
            if wanted.port or not tries_left or error.errno != errno.EADDRINUSE:
                raise
    raise AssertionError("the last try returns or raises")


async def _common_port(host: str) -> int:
    """One that is free in every family; 0 when there is only one."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    families = {family: address for family, _, _, _, address in found}
    if len(families) < 2:
        return 0
    for _ in range(_TRIES):
        port = 0
        held: list[socket.socket] = []
        try:
            for family, address in families.items():
                held.append(socket.socket(family, socket.SOCK_STREAM))
                if family == socket.AF_INET6:
                    held[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                held[-1].bind((address[0], port, *address[2:]))
                port = held[-1].getsockname()[1]
            return port
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
            if error.errno != errno.EADDRINUSE:
                # A machine without that family: the system says so when it matters.
                return 0
        finally:
            for each in held:
                each.close()
    return 0
