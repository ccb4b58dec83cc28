"""How many connections and requests the HTTP door has: who comes too late is told so, and
those that are in are served on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.unit.server.http_lines import UPGRADE, Bench, play, wait_until
from tests.unit.server.test_http_pipelines import POLL, SMALL
from tests.unit.server.test_stalls import open_door

from headrace.core import limits

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def answer(reader: asyncio.StreamReader) -> tuple[int, Any]:
    """The status of the next answer, and its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    return int(head.split(" ")[1]), json.loads(await reader.readexactly(length))


def test_connections_beyond_the_limit_are_told_so_and_the_others_are_served_on() -> None:
    async def play() -> None:
        async with open_door(connections_max=2) as (door, service), asyncio.timeout(30):
            address = (door.address.host, door.address.port)

            async def connect() -> Streams:
                return await asyncio.open_connection(*address)

            inside = [await connect() for _ in range(2)]
            reader, late = await connect()
            status, problem = await answer(reader)
            assert (status, problem["code"], problem["retriable"]) == (
                503,
                "too-many-connections",
                True,
            )
            assert await reader.read() == b""
            for each, writer in inside:
                writer.write(SMALL)
                assert (await answer(each))[0] == 200
            assert +service.counts.cuts == {("http", "full"): 1}
            # A place that is free again is given again.
            inside[0][1].close()
            while len(door._guard._connections) > 1:
                await asyncio.sleep(0)
            reader, writer = await connect()
            writer.write(SMALL)
            assert (await answer(reader))[0] == 200
            for leaving in (late, inside[1][1], writer):
                leaving.close()

    asyncio.run(play())


def test_requests_beyond_what_connections_can_have_are_told_so_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HTTP_TASKS_PER_CONNECTION", 0.5)

    async def play() -> None:
        async with open_door(connections_max=2) as (door, _), asyncio.timeout(30):
            address = (door.address.host, door.address.port)
            _, polling = await asyncio.open_connection(*address)
            polling.write(POLL)
            while not door._server.server_state.tasks:
                await asyncio.sleep(0)
            reader, writer = await asyncio.open_connection(*address)
            writer.write(SMALL)
            status, problem = await answer(reader)
            assert (status, problem["code"]) == (503, "too-many-requests")
            polling.transport.abort()
            while door._server.server_state.tasks:
                await asyncio.sleep(0)
            writer.write(SMALL)
            assert (await answer(reader))[0] == 200
            writer.close()

    asyncio.run(play())


def test_an_address_has_so_many_connections_and_upgraded_ones_are_among_them() -> None:
    async def scenario(bench: Bench) -> None:
        lines = [bench.connect("10.0.0.1") for _ in range(3)]
        assert [line.ended for line in lines] == [None, None, "aborted"]
        assert bench.cuts == {("http", "address"): 1}
        # Others are served, and this machine's own are not counted.
        others = [bench.connect("10.0.0.2"), *(bench.connect() for _ in range(5))]
        assert [line.ended for line in others] == [None] * 6
        # A WebSocket keeps the place of the connection that it was, and frees it once.
        lines[0].receive(UPGRADE + b"\r\n")
        await wait_until(lambda: b"welcome" in lines[0].sent)
        assert bench.connect("10.0.0.1").ended == "aborted"
        lines[0].close()
        await wait_until(lambda: lines[0].is_lost)
        assert bench.connect("10.0.0.1").ended is None
        assert bench.connect("10.0.0.1").ended == "aborted"

    play(scenario, connections_per_address_max=2)
