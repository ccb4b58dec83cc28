"""How many calls of one client address are under way at the gRPC door, and how long the
request of a call may take to come.

grpc does not say who connects, nor lets a connection be cut; it says who calls. So what
`connections_per_address_max` bounds here is calls: streams, waits and all others. What
is beyond is refused with RESOURCE_EXHAUSTED, and counted with the connections that other
doors cut. Of connections grpc itself takes care (`door.py`).

A call begins with its head, and has its place before its request has come. The request, or
the first one of a stream, has to come whole within `stall_timeout_ms`. Of a later message of
a stream grpc does not say that it has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from headrace.core.errors import LimitExceeded
from headrace.core.node_settings import NodeSettings
from headrace.server.service import Service
from headrace.server.shares import Account, shares_of
from headrace.server.stalls import Addresses

# Who was not heard of for longest is forgotten, and begins anew.
ACCOUNTS_MAX = 4_096


class Places:
    def __init__(self, service: Service, settings: NodeSettings) -> None:
        self._accounts = lru_cache(ACCOUNTS_MAX)(self._open_account)
        self._service = service
        self._count_max = settings.connections_per_address_max
        # Each of the servers of grpc has its own bound; this is one for all of them.
        self._calls_max = settings.connections_max
        self._under_way = 0
        self._addresses = Addresses(self._count_max)
        self._cuts = service.counts.cuts
        self._stall_seconds = settings.stall_timeout_ms / 1000 or None
        for reason in ("address", "body", "full"):
            self._cuts["grpc", reason] += 0

    def account(self, context: Any) -> Account:
        """Of the connection of a call."""
        return self._accounts(context.peer())

    def _open_account(self, _peer: str) -> Account:
        return shares_of(self._service.loop).open_account()

    @contextmanager
    def taken(self, context: Any) -> Iterator[None]:
        """While a call is under way; LimitExceeded when its address has too many, or all
        have."""
        if self._under_way >= self._calls_max:
            self._cuts["grpc", "full"] += 1
            raise LimitExceeded(
                f"{self._calls_max} calls are under way, which is the most that this node takes; "
                "try again later, or raise connections_max"
            )
        host = host_of(context.peer())
        if not self._addresses.admit(host):
            self._cuts["grpc", "address"] += 1
            raise LimitExceeded(
                f"{self._count_max} calls of {host} are under way, which is the most that one "
                "address may have; end some, or raise connections_per_address_max"
            )
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._addresses.leave(host)

    async def first_request(self, requests: AsyncIterator[Any]) -> Any:
        """None when the client sends none; LimitExceeded when it takes too long."""
        try:
            async with asyncio.timeout(self._stall_seconds):
                return await anext(requests, None)
        except TimeoutError:
            self._cuts["grpc", "body"] += 1
            raise LimitExceeded(
                f"the request did not come within {self._stall_seconds:g} s (stall_timeout_ms)"
            ) from None


def host_of(peer: str) -> str:
    """Of `ipv4:10.0.0.1:5000` or `ipv6:%5B::1%5D:5000`; empty for anything else."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    return unquote(rest).rpartition(":")[0].strip("[]")
