"""Requests that are sent at once over one connection, or with its end: what waits behind
another one is bounded, who is gone is heard of, and nothing is left of it."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
from typing import Any

import pytest
from tests.unit.server.test_stalls import open_door
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from websockets.protocol import State

from headrace.core import limits
from headrace.server.http.websocket import GuardedWebSocket

POLL = b"GET /consume?topic=orders&wait=20 HTTP/1.1\r\nhost: localhost\r\n\r\n"
SMALL = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n\r\n"
)


def requests_left() -> int:
    return sum(isinstance(each, RequestResponseCycle) for each in gc.get_objects())


def test_of_a_client_that_is_gone_nothing_is_left_also_before_garbage_is_looked_for() -> None:
    async def play() -> None:
        async with open_door() as (door, _), asyncio.timeout(30):
            gc.collect()
            gc.disable()
            try:
                for _ in range(3):
                    _, writer = await asyncio.open_connection(door.address.host, door.address.port)
                    writer.write(POLL + SMALL * 50)
                    while requests_left() < 51:
                        await asyncio.sleep(0)
                    writer.transport.abort()
                    while requests_left():
                        await asyncio.sleep(0)
                    assert door._guard.pipelined == 0
            finally:
                gc.enable()

    asyncio.run(play())


def test_all_together_have_so_many_waiting_and_who_has_few_is_not_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HTTP_PIPELINED_MAX", 100)

    async def play() -> None:
        async with open_door() as (door, service), asyncio.timeout(30):
            address = (door.address.host, door.address.port)
            _, greedy = await asyncio.open_connection(*address)
            greedy.write(POLL + SMALL * 100)
            while door._guard.pipelined < 100:
                await asyncio.sleep(0)
            modest_reader, modest = await asyncio.open_connection(*address)
            modest.write(SMALL * limits.HTTP_PIPELINED_SMALL)
            for _ in range(limits.HTTP_PIPELINED_SMALL):
                assert b"HTTP/1.1 200 " in await modest_reader.readuntil(b"\r\n\r\n")
            assert not +service.counts.cuts
            reader, another = await asyncio.open_connection(*address)
            another.write(POLL + SMALL * (limits.HTTP_PIPELINED_SMALL + 1))
            with pytest.raises(ConnectionError):
                if not await reader.read():
                    raise ConnectionError
            assert +service.counts.cuts == {("http", "memory"): 1}
            for writer in (greedy, modest, another):
                writer.close()

    asyncio.run(play())


def lease(wait: int) -> bytes:
    body = b'{"topics": ["orders"], "visibility": 3600, "wait": %d}' % wait
    return (
        b"POST /queues/workers/lease HTTP/1.1\r\nhost: localhost\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )


def test_a_lease_whose_client_left_as_it_asked_is_no_lease() -> None:
    async def play() -> None:
        async with open_door() as (door, _), asyncio.timeout(30):
            address = (door.address.host, door.address.port)
            reader, writer = await asyncio.open_connection(*address)
            writer.write(
                b"POST /topics/orders/messages HTTP/1.1\r\nhost: localhost\r\n"
                b"content-type: application/json\r\ncontent-length: 13\r\n\r\n"
                b'{"value": 12}'
            )
            assert b"HTTP/1.1 200 " in await reader.readuntil(b"\r\n\r\n")
            for _ in range(5):
                with socket.create_connection(address) as gone:
                    # All of it is there before the node sees any of it.
                    gone.sendall(lease(0))
                    gone.shutdown(socket.SHUT_WR)
                    gone.setblocking(False)
                    assert await asyncio.get_running_loop().sock_recv(gone, 1) == b""
            writer.write(lease(20))
            answer = await reader.readuntil(b'"attempt":')
            assert b'"value":12' in answer
            assert await reader.readexactly(1) == b"1"
            writer.close()

    asyncio.run(play())


def test_nonsense_before_a_websocket_is_accepted_ends_it_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    heard: list[dict[str, Any]] = []

    async def play() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, event: heard.append(event))
        async with open_door() as (door, _), asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(door.address.host, door.address.port)
            writer.write(UPGRADE)
            connected: set[Any] = door._server.server_state.connections
            while not (sockets := [x for x in connected if isinstance(x, GuardedWebSocket)]):
                await asyncio.sleep(0)
            assert sockets[0].conn.state is State.CONNECTING
            sockets[0].data_received(b"\xff" * 10)
            with pytest.raises(ConnectionError):
                if not await reader.read():
                    raise ConnectionError
            writer.close()

    asyncio.run(play())
    assert heard == []
    assert caplog.records == []
