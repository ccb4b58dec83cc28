"""Large requests and answers of the Kafka protocol are decoded and encoded in a thread:
in their order, refused like small ones, and none of their room is kept."""

from __future__ import annotations

import asyncio
import gc
import struct
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.server.rich_shares import make_rich
from tests.unit.server.test_connection import Line

from headrace.core.node_settings import NodeSettings
from headrace.engine.broker import Broker
from headrace.platform.clock import SystemClock
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka import door as kafka_door
from headrace.server.kafka.connection import Connection
from headrace.server.kafka.door import LARGE_BYTES, LARGE_ELEMENTS, Door, is_large
from headrace.server.kafka.handlers import HANDLERS
from headrace.server.service import Service
from headrace.wire.kafka.api import decode_response, encode_request
from headrace.wire.kafka.frame import decode_response_header, encode_request_frame
from headrace.wire.kafka.generated.metadata_request import MetadataRequest, MetadataRequestTopic

METADATA, VERSION = 3, 9
MANY = 4_000


class Bench:
    def __init__(self) -> None:
        make_rich()
        disk, clock, entropy = MemoryDisk(), SystemClock(), SystemEntropy()
        self.broker = Broker(disk, entropy, clock.now_ms())
        self.service = Service(self.broker, disk, clock, entropy, node_id=0, cluster_id="c")
        self.door = Door(self.service, NodeSettings(data="."), HANDLERS)
        self.connection, self.line = Connection(self.door), Line()
        self.connection.connection_made(self.line)

    async def send(self, data: bytes) -> None:
        while data and not self.connection.is_closed:
            if not self.line.is_reading_now:
                await asyncio.sleep(0)
                continue
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]

    async def answers(self, count: int) -> list[tuple[int, int]]:
        """Correlation ids, and how many topics each answer has."""
        async with asyncio.timeout(60):
            while len(found := self._decode()) < count:
                await asyncio.sleep(0)
        return found

    def _decode(self) -> list[tuple[int, int]]:
        found, data = [], self.line.sent
        while data:
            (size,) = struct.unpack_from(">i", data)
            frame, data = data[4 : 4 + size], data[4 + size :]
            number, at = decode_response_header(METADATA, VERSION, frame)
            answer: Any = decode_response(METADATA, VERSION, frame, at)
            found.append((number, len(answer.topics)))
        return found


def request(number: int, count: int) -> bytes:
    """It asks for so many topics that do not exist."""
    wanted = [MetadataRequestTopic(name=f"topic-{each:020}") for each in range(count)]
    asked = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    body = encode_request(METADATA, VERSION, asked)
    return b"".join(encode_request_frame(METADATA, VERSION, number, "app", body))


def large_nonsense() -> bytes:
    body = struct.pack(">hhihb", METADATA, VERSION, 7, -1, 0) + b"\xff" * 2 * LARGE_BYTES
    return struct.pack(">i", len(body)) + body


def play(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def run() -> None:
        bench = Bench()
        try:
            await scenario(bench)
        finally:
            await bench.service.close()
            bench.broker.close()

    asyncio.run(run())


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[bool]]:
    """Whether decoding and encoding took place on the loop's thread."""
    seen: dict[str, set[bool]] = {}

    def note(name: str) -> None:
        work = getattr(kafka_door, name)

        def noted(*args: Any) -> Any:
            is_main = threading.current_thread() is threading.main_thread()
            seen.setdefault(name, set()).add(is_main)
            return work(*args)

        monkeypatch.setattr(kafka_door, name, noted)

    note("decode_request")
    note("encode_response")
    return seen


def test_large_ones_leave_the_loop_to_others(threads: dict[str, set[bool]]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.send(request(1, MANY))
        assert await bench.answers(1) == [(1, MANY)]
        assert threads == {"decode_request": {False}, "encode_response": {False}}
        assert bench.door.rooms.bytes == 0

    play(scenario)


def test_small_ones_do_not(threads: dict[str, set[bool]]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.send(request(1, 10))
        assert await bench.answers(1) == [(1, 10)]
        assert threads == {"decode_request": {True}, "encode_response": {True}}

    play(scenario)


def test_what_is_behind_a_large_one_is_answered_behind_it() -> None:
    async def scenario(bench: Bench) -> None:
        counts = [1, MANY, 2, MANY, MANY, 3]
        await bench.send(b"".join(request(number, count) for number, count in enumerate(counts)))
        assert await bench.answers(len(counts)) == list(enumerate(counts))
        assert bench.line.is_reading_now
        assert bench.door.rooms.bytes == 0

    play(scenario)


def test_a_large_one_that_is_none_ends_the_connection() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.send(large_nonsense())
        async with asyncio.timeout(60):
            while not bench.connection.is_closed:
                await asyncio.sleep(0)
        assert bench.line.ended == "aborted"
        assert bench.door.rooms.bytes == 0

    play(scenario)


def test_a_client_that_goes_away_meanwhile_leaves_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.send(request(1, MANY))
        bench.connection.connection_lost(None)
        async with asyncio.timeout(60):
            while bench.door.tasks:
                await asyncio.sleep(0)
        assert bench.door.rooms.bytes == 0

    play(scenario)


def test_nonsense_of_a_client_that_has_gone_is_no_event() -> None:
    """Otherwise asyncio would write a traceback for each."""
    heard: list[dict[str, Any]] = []

    async def scenario(bench: Bench) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, event: heard.append(event))
        await bench.send(large_nonsense())
        bench.connection.connection_lost(None)
        async with asyncio.timeout(60):
            while bench.door.tasks:
                await asyncio.sleep(0)

    play(scenario)
    gc.collect()
    assert heard == []


@pytest.mark.parametrize(
    ("response", "is_so"),
    [
        (([0] * LARGE_ELEMENTS, "name"), False),
        (([0] * (LARGE_ELEMENTS + 1), "name"), True),
        (([("topic", [0] * LARGE_ELEMENTS)], 0), True),
        (([("topic", [0] * 10)] * 10, 0), False),
        (("a name that is no array" * 1_000, b"x" * 100_000), False),
        ((), False),
    ],
)
def test_an_answer_is_large_by_its_elements(response: Any, is_so: bool) -> None:
    assert is_large(response) is is_so
