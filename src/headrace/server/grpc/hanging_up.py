"""Hang up on clients whose connections a library holds and does not close when told to.

Each socket of the process is asked who is at its other end, and shut down where that is one
of those that were named. The library sees that the client is gone.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Collection
from contextlib import suppress

# Of Linux and macOS; Windows has nothing of the kind.
_OPEN = "/dev/fd"


def hang_up(peers: Collection[tuple[str, int]], port: int) -> int:
    """How many connections there were from these addresses and ports to our port. It may take
    some hundredths of a second where thousands are open: to be called in a thread."""
    try:
        numbers = [int(name) for name in os.listdir(_OPEN)]
    except OSError:
        return 0
    found = 0
    for number in numbers:
        # It may be closed by now, or no socket, or one that is not connected.
        with suppress(OSError), _copy_of(number) as connection:
            name = connection.getpeername()
            if not isinstance(name, tuple) or connection.getsockname()[1] != port:
                continue
            # Clients behind one address may have the same port to two doors.
            if (plain_host(name[0]), name[1]) in peers:
                connection.shutdown(socket.SHUT_RDWR)
                found += 1
    return found


def _copy_of(number: int) -> socket.socket:
    """A socket of our own for the same connection. OSError when it is none."""
    copy = os.dup(number)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def plain_host(host: str) -> str:
    """The address as everybody writes it, also one of IPv4 that came in by IPv6."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
