"""Whatever bytes arrive, in whatever pieces, a connection answers or is cut, and the
door serves the next one. Run in process, on a fake transport.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.server.connected import Complaints, Connected, Line, feed, feed_once, play

from headrace.server.kafka.connection import SCRATCH_BYTES, Connection
from headrace.server.kafka.handlers import HANDLERS
from headrace.wire.kafka.api import APIS, encode_request
from headrace.wire.kafka.frame import encode_request_frame
from headrace.wire.kafka.generated.api_versions_request import ApiVersionsRequest

KEYS = sorted(HANDLERS)

# The size of each input that went through a door.
_inputs: list[int] = []


# Counted together, so they run in one process.


@pytest.fixture(scope="module", autouse=True)
def count_inputs() -> Iterator[None]:
    """The run says how much it tried, and a fuzz that tried nothing fails."""
    yield
    print(f"{len(_inputs)} inputs, {sum(_inputs)} bytes through the door")
    assert settings.default is not None
    assert len(_inputs) >= settings.default.max_examples / 2


def deliver(connection: Connection, data: bytes, pieces: list[int]) -> None:
    """In pieces of these sizes, the last one first; what is left comes as one."""
    while data and not connection.is_closed:
        data = feed_once(connection, data, pieces.pop() if pieces else None)


async def serve_once(data: bytes, pieces: list[int]) -> Line:
    node = Connected()
    complaints = Complaints()
    node.door.logger.addHandler(complaints)
    _inputs.append(len(data))
    try:
        deliver(node.connection, data, pieces)
        for _ in range(3):
            await asyncio.sleep(0)
        node.connection.connection_lost(None)
        healthy, second = node.connect()
        feed(healthy, good_frame())
        assert len(second.sent) > 100
        assert second.ended is None
        assert [record.getMessage() for record in complaints.records] == []
        healthy.connection_lost(None)
    finally:
        node.door.logger.removeHandler(complaints)
        await node.door.close(0)
        await node.close()
    return node.line


def good_frame(number: int = 1) -> bytes:
    body = encode_request(18, 3, ApiVersionsRequest("fuzz", "1"))
    return b"".join(encode_request_frame(18, 3, number, "fuzz", body))


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


pieces = st.lists(st.integers(1, 40), max_size=20)


@given(data=st.binary(max_size=400), pieces=pieces)
def test_random_bytes_do_no_harm(data: bytes, pieces: list[int]) -> None:
    asyncio.run(serve_once(data, pieces))


@given(payload=st.binary(min_size=1, max_size=400), pieces=pieces)
def test_a_frame_of_random_bytes_does_no_harm(payload: bytes, pieces: list[int]) -> None:
    asyncio.run(serve_once(framed(payload), pieces))


@given(
    key=st.sampled_from(KEYS),
    step=st.integers(0, 30),
    body=st.binary(max_size=200) | st.binary(max_size=12).map(lambda some: some + bytes(60)),
    pieces=pieces,
)
def test_a_good_header_before_random_bytes_does_no_harm(
    key: int, step: int, body: bytes, pieces: list[int]
) -> None:
    api = APIS[key]
    version = api.first + step % (api.last - api.first + 1)
    tags = b"\0" if api.is_flexible(version) else b""
    header = struct.pack(">hhih", key, version, 7, 4) + b"fuzz" + tags
    asyncio.run(serve_once(framed(header + body), pieces))


@given(
    before=st.integers(0, 5),
    at=st.integers(4, 30),
    byte=st.integers(0, 255),
    pieces=pieces,
)
def test_one_changed_byte_does_not_harm_the_requests_before_it(
    before: int, at: int, byte: int, pieces: list[int]
) -> None:
    bad = bytearray(good_frame())
    bad[at % (len(bad) - 4) + 4] = byte
    data = b"".join(good_frame(number) for number in range(before)) + bytes(bad)
    transport = asyncio.run(serve_once(data, pieces))
    # What came before the bad one was answered.
    assert len(transport.sent) >= before * 100


@given(sizes=st.lists(st.integers(1, 3 * SCRATCH_BYTES), min_size=1, max_size=6))
def test_frames_of_any_size_are_cut_where_they_should_be(sizes: list[int]) -> None:
    """Seen by a door that notes what it is given, whatever the pieces are."""
    seen: list[bytes] = []

    def scenario(node: Connected) -> None:
        def note(connection: Connection, slot: Any, frame: memoryview) -> None:
            seen.append(bytes(frame))
            connection.answer(slot, ())

        node.door.handle = note  # type: ignore[method-assign]
        deliver(node.connection, b"".join(map(framed, wanted)), [sizes[0], sizes[-1], 3, 1])

    wanted = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    play(Connected, scenario)
    assert seen == wanted
