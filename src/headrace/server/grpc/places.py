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
from functools import lru_cache
from time import perf_counter
from typing import Any, NamedTuple

from grpc.aio import EOF

from headrace.core.errors import HeadraceError, InvalidArgument, LimitExceeded
from headrace.core.node_settings import NodeSettings
from headrace.core.request_context import ANONYMOUS, Principal
from headrace.server.grpc.outgoing import Outgoing
from headrace.server.grpc.peers import host_of
from headrace.server.service import Service
from headrace.server.shares import Account, shares_of
from headrace.server.stalls import Addresses

# Who was not heard of for longest is forgotten, and begins anew.
CLIENTS_MAX = 4_096
# How often those who are late are looked for, in the time that they have.
SWEEPS = 4
# How long it may take until grpc tells that a client is gone, on a busy node.
GONE_SECONDS = 0.1
# Instead of when it began: it was told to end.
_LATE = -1.0


class Client(NamedTuple):
    """Whoever is at the other end of a connection."""

    host: str
    account: Account
    principal: Principal = ANONYMOUS


class Places:
    def __init__(self, service: Service, settings: NodeSettings) -> None:
        self._clients = lru_cache(CLIENTS_MAX)(self._new_client)
        self._service = service
        self._count_max = settings.connections_per_address_max
        # Each of the servers of grpc has its own bound; this is one for all of them.
        self._calls_max = settings.connections_max
        self._under_way = 0
        self._addresses = Addresses(self._count_max)
        self.outgoing = Outgoing(service)
        self._cuts = service.counts.cuts
        self._stall_seconds = settings.stall_timeout_ms / 1000
        # Calls whose request has not come, and since when.
        self._reading: dict[asyncio.Task[Any], float] = {}
        self._sweep: asyncio.TimerHandle | None = None
        for reason in ("address", "body", "full"):
            self._cuts["grpc", reason] += 0

    def client(self, context: Any) -> Client:
        """Of a call."""
        return self._clients(context.peer())

    def _new_client(self, peer: str) -> Client:
        return Client(host_of(peer), shares_of(self._service.loop).open_account())

    def taken(self, client: Client) -> Place:
        """For a call, as long as it is under way."""
        return Place(self, client.host)

    def take(self, host: str) -> None:
        """LimitExceeded when the address has too many, or all have."""
        if self._under_way >= self._calls_max:
            self._cuts["grpc", "full"] += 1
            raise LimitExceeded(
                f"{self._calls_max} calls are under way, which is the most that this node takes; "
                "try again later, or raise connections_max"
            )
        if not self._addresses.admit(host):
            self._cuts["grpc", "address"] += 1
            raise LimitExceeded(
                f"{self._count_max} calls of {host} are under way, which is the most that one "
                "address may have; end some, or raise connections_per_address_max"
            )
        self._under_way += 1

    def leave(self, host: str) -> None:
        self._under_way -= 1
        self._addresses.leave(host)

    async def first_request(self, context: Any) -> Any:
        """None when the client sends none; LimitExceeded when it takes too long."""
        task = asyncio.current_task()
        assert task is not None
        self._reading[task] = perf_counter()
        if self._sweep is None and self._stall_seconds:
            self._sweep_later()
        try:
            request = await context.read()
        except asyncio.CancelledError:
            # Somebody else may have cancelled it as well, who is not to be denied.
            if self._reading[task] != _LATE or task.uncancel():
                raise
            self._cuts["grpc", "body"] += 1
            raise LimitExceeded(
                f"the request did not come within {self._stall_seconds:g} s (stall_timeout_ms)"
            ) from None
        finally:
            del self._reading[task]
        if request is not EOF:
            return request
        # Most who send none are gone, of which grpc tells us a little later by cancelling us.
        # What is sent to them is memory that grpc never gives back (grpc/grpc#43360).
        await asyncio.sleep(GONE_SECONDS)
        return None

    def _sweep_later(self) -> None:
        # One timer for all, since each call would pay for one of its own.
        seconds = self._stall_seconds / SWEEPS
        self._sweep = self._service.loop.call_later(seconds, self._cut_late)

    def _cut_late(self) -> None:
        self._sweep = None
        until = perf_counter() - self._stall_seconds
        for task, began in self._reading.items():
            # In the order in which they began, so the rest is not late either.
            if began > until:
                break
            if began != _LATE:
                self._reading[task] = _LATE
                task.cancel()
        if self._reading:
            self._sweep_later()


class Place:
    """Of one call. Written out, since each call has one: a generator for it costs more."""

    __slots__ = ("_host", "_places")

    def __init__(self, places: Places, host: str) -> None:
        self._places = places
        self._host = host

    def __enter__(self) -> None:
        self._places.take(self._host)

    def __exit__(self, *_: object) -> None:
        self._places.leave(self._host)


def checked(request: Any) -> Any:
    """The first request of a call; the error that is raised when it is not what it should be."""
    if isinstance(request, HeadraceError):
        raise request
    if request is None:
        raise InvalidArgument("a call has a request, which may be empty; there was none")
    return request
