"""How many calls of one client address are under way at the gRPC door.

grpc does not say who connects, nor lets a connection be cut; it says who calls. So what
`connections_per_address_max` bounds here is calls: streams, waits and all others. What
is beyond is refused with RESOURCE_EXHAUSTED, and counted with the connections that other
doors cut. A connection without calls costs little, and grpc closes it after
`connections_max_idle_ms`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from headrace.core.errors import LimitExceeded
from headrace.core.node_settings import NodeSettings
from headrace.server.service import Service
from headrace.server.stalls import Addresses


class Places:
    def __init__(self, service: Service, settings: NodeSettings) -> None:
        self._count_max = settings.connections_per_address_max
        self._addresses = Addresses(self._count_max)
        self._cuts = service.counts.cuts
        self._cuts["grpc", "address"] += 0

    @contextmanager
    def taken(self, context: Any) -> Iterator[None]:
        """While a call is under way; LimitExceeded when its address has too many."""
        host = host_of(context.peer())
        if not self._addresses.admit(host):
            self._cuts["grpc", "address"] += 1
            raise LimitExceeded(
                f"{self._count_max} calls of {host} are under way, which is the most that one "
                "address may have; end some, or raise connections_per_address_max"
            )
        try:
            yield
        finally:
            self._addresses.leave(host)


def host_of(peer: str) -> str:
    """Of `ipv4:10.0.0.1:5000` or `ipv6:%5B::1%5D:5000`; empty for anything else."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    return unquote(rest).rpartition(":")[0].strip("[]")
