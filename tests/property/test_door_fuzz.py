"""Whatever bytes arrive, in whatever pieces, a connection answers or is cut, and the
door serves the next one. Run in process, on a fake transport.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.server.rich_shares import make_rich

from headrace.core.node_settings import NodeSettings
from headrace.engine.broker import Broker
from headrace.platform.clock import SystemClock
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.connection import SCRATCH_BYTES, Connection
from headrace.server.kafka.door import Door
from headrace.server.kafka.handlers import HANDLERS
from headrace.server.service import Service
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


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_cut = False
        self.is_reading_now = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 1) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.sent += data

    def writelines(self, list_of_data: Any) -> None:
        self.sent += b"".join(list_of_data)

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True

    def abort(self) -> None:
        self.is_cut = True

    def close(self) -> None:
        self.is_cut = True


class Complaints(logging.Handler):
    """Failures of handlers: a peer's bytes must never be able to cause one."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def deliver(connection: Connection, data: bytes, pieces: list[int]) -> None:
    """As an event loop does: the buffer is asked for, filled and handed back."""
    while data and not connection.is_closed:
        buffer = connection.get_buffer(-1)
        assert len(buffer) > 0
        size = min(len(buffer), len(data), pieces.pop() if pieces else len(data))
        buffer[:size] = data[:size]
        connection.buffer_updated(size)
        data = data[size:]


async def serve_once(data: bytes, pieces: list[int]) -> FakeTransport:
    disk, clock, entropy = MemoryDisk(), SystemClock(), SystemEntropy()
    broker = Broker(disk, entropy, clock.now_ms())
    make_rich()
    service = Service(broker, disk, clock, entropy, node_id=0, cluster_id="fuzz")
    door = Door(service, NodeSettings(data="."), HANDLERS)
    complaints = Complaints()
    door.logger.addHandler(complaints)
    connection, transport = Connection(door), FakeTransport()
    healthy, second = Connection(door), FakeTransport()
    connection.connection_made(transport)
    _inputs.append(len(data))
    try:
        deliver(connection, data, pieces)
        for _ in range(3):
            await asyncio.sleep(0)
        connection.connection_lost(None)
        healthy.connection_made(second)
        deliver(healthy, good_frame(), [])
        assert len(second.sent) > 100
        assert not second.is_cut
        assert [record.getMessage() for record in complaints.records] == []
    finally:
        door.logger.removeHandler(complaints)
        healthy.connection_lost(None)
        await door.close(0)
        await service.close()
        broker.close()
    return transport


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

    async def play() -> None:
        disk, clock, entropy = MemoryDisk(), SystemClock(), SystemEntropy()
        broker = Broker(disk, entropy, clock.now_ms())
        make_rich()
        service = Service(broker, disk, clock, entropy, node_id=0, cluster_id="fuzz")
        door = Door(service, NodeSettings(data="."), HANDLERS)

        def note(connection: Connection, slot: Any, frame: memoryview) -> None:
            seen.append(bytes(frame))
            connection.answer(slot, ())

        door.handle = note  # type: ignore[method-assign]
        connection = Connection(door)
        connection.connection_made(FakeTransport())
        deliver(connection, b"".join(map(framed, wanted)), [sizes[0], sizes[-1], 3, 1])
        await service.close()
        broker.close()

    wanted = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    asyncio.run(play())
    assert seen == wanted
