"""Who gets nowhere is cut, who waits for us is not, and an address has so many places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.core.node_settings import NodeSettings
from headrace.core.settings import TopicSettings
from headrace.engine.broker import Broker
from headrace.platform.clock import SystemClock
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.http import protocol
from headrace.server.http.door import HttpDoor
from headrace.server.service import Service
from headrace.server.stalls import PROGRESS_BYTES_MIN, Addresses, Watch


def test_what_gets_on_is_not_stalled_and_what_drips_is() -> None:
    watch = Watch()
    for second in range(100):
        assert not watch.is_stalled(second, 10, second * PROGRESS_BYTES_MIN, waits=True)
    # The last progress was at second 99.
    found = [watch.is_stalled(100 + n, 10, 99 * PROGRESS_BYTES_MIN + n, waits=True) for n in (8, 9)]
    assert found == [False, True]


def test_nothing_is_stalled_while_nobody_waits_and_time_counts_anew_afterwards() -> None:
    watch = Watch()
    assert not watch.is_stalled(0, 10, 0, waits=True)
    assert not watch.is_stalled(1_000, 10, 0, waits=False)
    assert not watch.is_stalled(2_000, 10, 0, waits=True)
    assert not watch.is_stalled(2_009, 10, 0, waits=True)
    assert watch.is_stalled(2_010, 10, 0, waits=True)


def test_an_address_has_so_many_places_and_this_machine_any_number() -> None:
    addresses = Addresses(2)
    assert [addresses.admit("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert addresses.admit("10.0.0.2")
    addresses.leave("10.0.0.1")
    assert addresses.admit("10.0.0.1")
    assert all(addresses.admit(host) for host in ("127.0.0.1", "::1", "") for _ in range(9))
    assert all(Addresses(0).admit("10.0.0.1") for _ in range(9))


def test_connections_count_also_that_came_while_there_was_no_bound() -> None:
    addresses = Addresses(0)
    assert all(addresses.admit("10.0.0.1") for _ in range(3))
    addresses.count_max = 2
    assert not addresses.admit("10.0.0.1")
    addresses.leave("10.0.0.1")
    assert not addresses.admit("10.0.0.1")
    addresses.leave("10.0.0.1")
    assert addresses.admit("10.0.0.1")
    assert not addresses.admit("10.0.0.1")


@asynccontextmanager
async def open_door(**settings: Any) -> AsyncIterator[tuple[HttpDoor, Service]]:
    disk, clock, entropy = MemoryDisk(), SystemClock(), SystemEntropy()
    broker = Broker(disk, entropy, clock.now_ms())
    service = Service(broker, disk, clock, entropy, node_id=0, cluster_id="c")
    broker.topics.create("orders", 1, TopicSettings(), clock.now_ms())
    door = HttpDoor(service, NodeSettings(http="127.0.0.1:0", **settings))
    try:
        await door.open()
        yield door, service
    finally:
        await door.close()
        await service.close()
        broker.close()


HEAD = b"POST /topics/orders/messages HTTP/1.1\r\nhost: localhost\r\n"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "head"),
        (HEAD, "head"),
        (HEAD + b"content-length: 90\r\ncontent-type: application/json\r\n\r\n{", "body"),
    ],
)
def test_an_http_request_that_stops_within_is_cut_and_one_that_waits_is_not(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, reason: str
) -> None:
    monkeypatch.setattr(protocol, "SWEEP_SECONDS", 0.02)

    async def play() -> None:
        async with open_door(stall_timeout_ms=100) as (door, service), asyncio.timeout(30):
            address = (door.address.host, door.address.port)
            patient, poll = await asyncio.open_connection(*address)
            poll.write(b"GET /consume?topic=orders&wait=20 HTTP/1.1\r\nhost: localhost\r\n\r\n")
            stalled = [await asyncio.open_connection(*address) for _ in range(20)]
            for _, writer in stalled:
                writer.write(sent)
            for reader, writer in stalled:
                with pytest.raises(ConnectionError):
                    # Cut, not closed: what was sent may be lost with it.
                    if not await reader.read():
                        raise ConnectionError
                writer.close()
            assert +service.counts.cuts == {("http", reason): 20}
            _, writer = await asyncio.open_connection(*address)
            writer.write(
                b"POST /produce HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                b'content-length: 32\r\n\r\n{"topic": "orders", "value": 12}'
            )
            assert (await patient.readline()).startswith(b"HTTP/1.1 200 ")
            writer.close()
            poll.close()

    asyncio.run(play())


def test_a_client_that_does_not_take_its_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "SWEEP_SECONDS", 0.02)

    async def play() -> None:
        async with open_door(stall_timeout_ms=100) as (door, service), asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(
                door.address.host, door.address.port, limit=1
            )
            # More answers than the buffers of two sockets hold, and nobody reads them.
            for _ in range(200):
                writer.write(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n")
            while not +service.counts.cuts:
                await asyncio.sleep(0)
            assert +service.counts.cuts == {("http", "answer"): 1}
            writer.close()
            del reader

    asyncio.run(play())
