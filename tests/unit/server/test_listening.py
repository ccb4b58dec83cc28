"""An address with several families has one port."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest
import uvloop

from headrace.core.node_settings import Address
from headrace.server.listening import TAKEN_AT_ONCE, bind, duplicates, listen


def test_a_name_of_both_families_gets_one_free_port() -> None:
    async def scenario() -> None:
        server = await listen(asyncio.Protocol, Address("localhost", 0), backlog=8)
        try:
            assert len({each.getsockname()[1] for each in server.sockets}) == 1
            families = {each.family for each in server.sockets}
            known = socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)
            assert families == {family for family, *_ in known}
        finally:
            server.close()
            await server.wait_closed()

    asyncio.run(scenario())


def test_a_port_that_is_taken_is_an_error() -> None:
    async def scenario() -> None:
        first = await listen(asyncio.Protocol, Address("127.0.0.1", 0), backlog=8)
        port = first.sockets[0].getsockname()[1]
        try:
            with pytest.raises(OSError, match="address already in use"):
                await listen(asyncio.Protocol, Address("127.0.0.1", port), backlog=8)
        finally:
            first.close()
            await first.wait_closed()

    asyncio.run(scenario())


def test_a_connection_that_is_quiet_is_asked_whether_anybody_is_there() -> None:
    asked: list[tuple[int, int]] = []
    accepted_one = asyncio.Event()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted = transport.get_extra_info("socket")
            asked.append(
                (
                    accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                    accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                )
            )
            accepted_one.set()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        [bound] = await bind(Address("127.0.0.1", 0))
        servers: list[Any] = [
            await listen(Accepted, Address("127.0.0.1", 0), backlog=8),
            await loop.create_server(Accepted, sock=bound),
        ]
        for server in servers:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            await accepted_one.wait()
            accepted_one.clear()
            server.close()
            await server.wait_closed()
            writer.close()

    asyncio.run(scenario())
    assert asked == [(1, 30), (1, 30)]


def test_connections_that_come_together_do_not_wait_for_a_turn_of_the_loop_each() -> None:
    turn = 0
    taken: Counter[int] = Counter()

    class Taken(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            taken[turn] += 1
            transport.close()

    async def scenario(stack: ExitStack) -> None:
        nonlocal turn
        loop = asyncio.get_running_loop()
        bound = await bind(Address("127.0.0.1", 0))
        servers: list[Any] = [
            await listen(Taken, Address("127.0.0.1", 0), backlog=64),
            *[await loop.create_server(Taken, sock=each) for each in (*bound, *duplicates(bound))],
        ]
        for server in servers[:2]:
            taken.clear()
            for _ in range(8 * TAKEN_AT_ONCE):
                stack.enter_context(socket.create_connection(server.sockets[0].getsockname()))
            while taken.total() < 8 * TAKEN_AT_ONCE:
                turn += 1
                await asyncio.sleep(0)
            assert set(taken.values()) == {TAKEN_AT_ONCE} and TAKEN_AT_ONCE > 1
        for server in servers:
            server.close()

    with ExitStack() as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario(stack))
