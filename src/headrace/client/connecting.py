"""Connecting to a node: the very same handles as on a directory.

    with headrace.connect("127.0.0.1:9092") as handle:
        handle.publish("orders", {"id": 7})

    async with headrace.connect_async("127.0.0.1:9092") as handle:
        await handle.publish("orders", {"id": 7})

`grpc://127.0.0.1:9081` says the same to the gRPC door. Several nodes of one cluster have commas
between them: `headrace://a:9092,b:9092`; while one is away the next is asked. Without an address
it is taken from HEADRACE_URL.
"""

from __future__ import annotations

import os
import threading

from headrace.client.async_waiting import Calls
from headrace.client.asynchronous import AsyncHeadrace, Opening
from headrace.client.caller import RETRY_SECONDS
from headrace.client.handle import Headrace
from headrace.client.link import SILENCE_SECONDS, Link
from headrace.client.remote import RemoteBackend
from headrace.client.socket_link import SocketLink
from headrace.client.times import Duration, duration_ms, optional_duration_ms
from headrace.core.environment import (
    PORT_DEFAULT,
    PORT_DEFAULT_GRPC,
    URL_SCHEME_GRPC,
    URL_VARIABLE,
    addresses_in,
    check_environment,
)
from headrace.core.errors import InvalidArgument
from headrace.core.node_settings import Address

# A shorter one would give up nodes that are only busy.
TIMEOUT_MS_MIN = 1_000


def connect(
    address: str | None = None,
    *,
    auto_create: bool = True,
    retry: Duration | None = RETRY_SECONDS,
    wait: Duration | None = 0,
    timeout: Duration = SILENCE_SECONDS,
    reconnect: bool = True,
) -> Headrace:
    """A handle on the node at `host:port` or `grpc://host:port`, or on the first that answers
    of several with commas between; Unreachable when there is none.

    A topic that is missing is made when it is first published to, where the node's
    `auto_create_topics` allows it; `auto_create=False` declines. `wait` is for how
    long a node that is not there yet is waited for. While a node is away later, loops
    over queues and streams, and waits without end, go on when it is back; with
    `reconnect=False` they do what single calls do: those that can do no harm are tried
    again for `retry`, then Unreachable is raised. None is for as long as it takes.

    A node from which nothing comes for `timeout` while a call waits for its answer is
    taken for gone, and the connection is given up. One answer may take four times as long
    while the node answers others.
    """
    backend = open_backend(
        address,
        auto_create=auto_create,
        retry=retry,
        wait=wait,
        timeout=timeout,
        reconnect=reconnect,
    )
    return Headrace(backend, str(backend.address))


def open_backend(
    address: str | None = None,
    *,
    auto_create: bool = True,
    retry: Duration | None = RETRY_SECONDS,
    wait: Duration | None = 0,
    timeout: Duration = SILENCE_SECONDS,
    reconnect: bool = True,
    closed: threading.Event | None = None,
) -> RemoteBackend:
    """What such a handle stands on. `closed`, set by another thread, ends the wait."""
    retry_ms = optional_duration_ms("retry", retry)
    wait_ms = optional_duration_ms("wait", wait)
    timeout_ms = duration_ms("timeout", timeout, least_ms=TIMEOUT_MS_MIN)
    nodes, link = way_to(address)
    return RemoteBackend(
        *nodes,
        auto_create=auto_create,
        retry_seconds=None if retry_ms is None else retry_ms / 1000,
        wait_seconds=None if wait_ms is None else wait_ms / 1000,
        silence_seconds=timeout_ms / 1000,
        reconnects=reconnect,
        link=link,
        closed=closed,
    )


def connect_async(
    address: str | None = None,
    *,
    auto_create: bool = True,
    retry: Duration | None = RETRY_SECONDS,
    wait: Duration | None = 0,
    timeout: Duration = SILENCE_SECONDS,
    reconnect: bool = True,
) -> Opening[AsyncHeadrace]:
    """As `connect`, for asyncio: await it or use it by `async with`."""

    async def start() -> AsyncHeadrace:
        calls = Calls()
        closed = threading.Event()
        try:
            backend = await calls.run(
                open_backend,
                address,
                auto_create=auto_create,
                retry=retry,
                wait=wait,
                timeout=timeout,
                reconnect=reconnect,
                closed=closed,
            )
        except BaseException:
            # Whoever is cancelled does not wait for a node that may never come.
            closed.set()
            calls.close()
            raise
        return AsyncHeadrace(Headrace(backend, str(backend.address)), calls)

    return Opening(start)


def way_to(given: str | None) -> tuple[list[Address], type[Link]]:
    """What people write: host, host:port, headrace://host:port or grpc://host:port, and several
    with commas between. The first one says which door is asked."""
    if given is None:
        check_environment(os.environ)
    text = os.environ.get(URL_VARIABLE) if given is None else given
    if not text:
        raise InvalidArgument(
            f"connect to which node? Give its address, as in connect('127.0.0.1:{PORT_DEFAULT}'), "
            f"or set {URL_VARIABLE}"
        )
    if not isinstance(text, str):
        raise InvalidArgument(f"an address is text like 127.0.0.1:9092, not {text!r}")
    found = addresses_in(text)
    scheme = found[0][0]
    # Those of another scheme are for clients that speak nothing else.
    wanted = [address for of, address in found if of == scheme]
    if scheme == URL_SCHEME_GRPC:
        from headrace.client.grpc_link import GrpcLink

        return _addresses(wanted, PORT_DEFAULT_GRPC), GrpcLink
    return _addresses(wanted, PORT_DEFAULT), SocketLink


def _addresses(texts: list[str], port: int) -> list[Address]:
    """In their order, each once."""
    return list(dict.fromkeys(_address(each, port) for each in texts))


def _address(text: str, port: int) -> Address:
    return Address.parse("the address of a node", text if ":" in text else f"{text}:{port}")
