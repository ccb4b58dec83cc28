"""Large requests and answers of the Kafka protocol are decoded and encoded in a thread:
in their order, refused like small ones, and none of their room is kept."""

from __future__ import annotations

import asyncio
import gc
import struct
import threading
from types import ModuleType
from typing import Any

import pytest
from tests.unit.server.connected import Connected, feed_once, play

from headrace.server.kafka import answer_bytes
from headrace.server.kafka import door as kafka_door
from headrace.server.kafka.answer_bytes import LARGE_ELEMENTS, is_large
from headrace.server.kafka.door import LARGE_BYTES
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.api import APIS, decode_response, encode_request
from headrace.wire.kafka.frame import decode_response_header, encode_request_frame
from headrace.wire.kafka.generated.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.kafka.generated.metadata_request import MetadataRequest, MetadataRequestTopic

METADATA, LEAVE, VERSION = 3, 13, 9
WORK = ("decode_request", "encode_response", "error_codes")
UNKNOWN = Error.UNKNOWN_TOPIC_OR_PARTITION.name
MANY = 4_000


class Bench(Connected):
    async def answers(self, count: int) -> list[tuple[int, int]]:
        """Correlation ids, and how many topics each answer has."""
        async with asyncio.timeout(60):
            while len(found := self.line.frames()) < count:
                await asyncio.sleep(0)
        return [_listed(frame) for frame in found]

    async def send_as_it_reads(self, data: bytes) -> None:
        """It does not while a thread has a request of it."""
        while data and not self.connection.is_closed:
            if self.line.is_reading_now:
                data = feed_once(self.connection, data)
            else:
                await asyncio.sleep(0)


def _listed(frame: bytes) -> tuple[int, int]:
    number, at = decode_response_header(METADATA, VERSION, frame)
    answer: Any = decode_response(METADATA, VERSION, frame, at)
    return number, len(answer.topics)


def request(number: int, count: int) -> bytes:
    """It asks for so many topics that do not exist."""
    wanted = [MetadataRequestTopic(name=f"topic-{each:020}") for each in range(count)]
    asked = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    body = encode_request(METADATA, VERSION, asked)
    return b"".join(encode_request_frame(METADATA, VERSION, number, "app", body))


def large_nonsense() -> bytes:
    body = struct.pack(">hhihb", METADATA, VERSION, 7, -1, 0) + b"\xff" * 2 * LARGE_BYTES
    return struct.pack(">i", len(body)) + body


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[bool]]:
    """Whether decoding, encoding and counting errors took place on the loop's thread."""
    seen: dict[str, set[bool]] = {}

    def note(module: ModuleType, name: str) -> None:
        work = getattr(module, name)

        def noted(*args: Any) -> Any:
            is_main = threading.current_thread() is threading.main_thread()
            seen.setdefault(name, set()).add(is_main)
            return work(*args)

        monkeypatch.setattr(module, name, noted)

    note(kafka_door, "decode_request")
    note(answer_bytes, "encode_response")
    note(answer_bytes, "error_codes")
    return seen


def test_large_ones_leave_the_loop_to_others(threads: dict[str, set[bool]]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.send_as_it_reads(request(1, MANY))
        assert await bench.answers(1) == [(1, MANY)]
        assert threads == {name: {False} for name in WORK}
        assert bench.door.endpoint(APIS[METADATA]).errors == {UNKNOWN: MANY}
        assert bench.door.rooms.bytes == 0

    play(Bench, scenario)


def test_neither_does_an_answer_that_is_known_at_once(threads: dict[str, set[bool]]) -> None:
    members = [MemberIdentity(f"member-{number:020}") for number in range(MANY)]
    body = encode_request(LEAVE, 3, LeaveGroupRequest("readers", members=members))

    async def scenario(bench: Bench) -> None:
        await bench.send_as_it_reads(b"".join(encode_request_frame(LEAVE, 3, 1, "app", body)))
        async with asyncio.timeout(60):
            while not bench.line.sent:
                await asyncio.sleep(0)
        assert threads == {name: {False} for name in WORK}

    play(Bench, scenario)


def test_small_ones_do_not(threads: dict[str, set[bool]]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.send_as_it_reads(request(1, 10))
        assert await bench.answers(1) == [(1, 10)]
        assert threads == {name: {True} for name in WORK}
        assert bench.door.endpoint(APIS[METADATA]).errors == {UNKNOWN: 10}

    play(Bench, scenario)


def test_what_is_behind_a_large_one_is_answered_behind_it() -> None:
    async def scenario(bench: Bench) -> None:
        counts = [1, MANY, 2, MANY, MANY, 3]
        await bench.send_as_it_reads(
            b"".join(request(number, count) for number, count in enumerate(counts))
        )
        assert await bench.answers(len(counts)) == list(enumerate(counts))
        assert bench.line.is_reading_now
        assert bench.door.rooms.bytes == 0

    play(Bench, scenario)


def test_a_large_one_that_is_none_ends_the_connection() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.send_as_it_reads(large_nonsense())
        async with asyncio.timeout(60):
            while not bench.connection.is_closed:
                await asyncio.sleep(0)
        assert bench.line.ended == "aborted"
        assert bench.door.rooms.bytes == 0

    play(Bench, scenario)


def test_a_client_that_goes_away_meanwhile_leaves_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.send_as_it_reads(request(1, MANY))
        bench.connection.connection_lost(None)
        async with asyncio.timeout(60):
            while bench.door.tasks:
                await asyncio.sleep(0)
        assert bench.door.rooms.bytes == 0

    play(Bench, scenario)


def test_nonsense_of_a_client_that_has_gone_is_no_event() -> None:
    """Otherwise asyncio would write a traceback for each."""
    heard: list[dict[str, Any]] = []

    async def scenario(bench: Bench) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, event: heard.append(event))
        await bench.send_as_it_reads(large_nonsense())
        bench.connection.connection_lost(None)
        async with asyncio.timeout(60):
            while bench.door.tasks:
                await asyncio.sleep(0)

    play(Bench, scenario)
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
