"""A connection of the Kafka door without a socket: a test feeds it bytes, and a line keeps
what it writes."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tests.unit.server.rich_shares import make_rich

from headrace.core.node_settings import NodeSettings
from headrace.core.ports import Disk
from headrace.core.settings import TopicSettings
from headrace.engine.broker import Broker
from headrace.platform.clock import SystemClock
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import read_records
from headrace.record.batch import split_batches
from headrace.server.kafka.connection import Connection
from headrace.server.kafka.door import Door
from headrace.server.kafka.handlers import HANDLERS
from headrace.server.service import Service
from headrace.wire.kafka.api import decode_response, encode_request
from headrace.wire.kafka.frame import decode_response_header, encode_request_frame
from headrace.wire.kafka.generated.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

PRODUCE, PRODUCE_VERSION = 0, 9
PATIENCE_SECONDS = 60


class Line(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.unsent = 0
        self.is_reading_now = True
        self.ended: str | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 1) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: Any) -> None:
        self.sent += data

    def writelines(self, list_of_data: Any) -> None:
        self.sent += b"".join(list_of_data)

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True

    def abort(self) -> None:
        self.ended = "aborted"

    def close(self) -> None:
        self.ended = "closed"

    def frames(self) -> list[bytes]:
        """The answers that were written, each without its length."""
        found, data = [], self.sent
        while data:
            (size,) = struct.unpack_from(">i", data)
            found.append(data[4 : 4 + size])
            data = data[4 + size :]
        return found


class Complaints(logging.Handler):
    """Failures of handlers: a peer's bytes must never be able to cause one."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def feed_once(connection: Connection, data: bytes, size_max: int | None = None) -> bytes:
    """As an event loop does: the buffer is asked for, filled and handed back. Returns what
    did not fit."""
    buffer = connection.get_buffer(-1)
    assert len(buffer) > 0
    size = min(len(buffer), len(data), size_max or len(data))
    buffer[:size] = data[:size]
    connection.buffer_updated(size)
    return data[size:]


def feed(connection: Connection, data: bytes) -> None:
    while data and not connection.is_closed:
        data = feed_once(connection, data)


class Connected:
    """A node with a Kafka door, and one connection of it."""

    def __init__(self, disk: Disk | None = None, **settings: Any) -> None:
        make_rich()
        disk, clock, entropy = disk or MemoryDisk(), SystemClock(), SystemEntropy()
        self.broker = Broker(disk, entropy, clock.now_ms())
        self.service = Service(self.broker, disk, clock, entropy, node_id=0, cluster_id="c")
        self.door = self._open_door(NodeSettings(data=".", **settings))
        self.connection, self.line = self.connect()

    def _open_door(self, settings: NodeSettings) -> Door:
        return Door(self.service, settings, HANDLERS)

    def connect(self) -> tuple[Connection, Line]:
        connection, line = Connection(self.door), Line()
        connection.connection_made(line)
        return connection, line

    def send(self, data: bytes, connection: Connection | None = None) -> None:
        feed(connection or self.connection, data)

    async def close(self) -> None:
        await self.service.close()
        self.broker.close()


class Producing(Connected):
    """With a topic `orders` of two partitions, to which the connection produces."""

    def __init__(self, disk: Disk | None = None, **settings: Any) -> None:
        super().__init__(disk)
        now_ms = self.service.clock.now_ms()
        self.topic = self.broker.topics.create("orders", 2, TopicSettings(**settings), now_ms)
        self._number = 0

    def request(
        self,
        batch: bytes | bytearray,
        *,
        index: int = 0,
        acks: int = -1,
        timeout_ms: int = 30_000,
    ) -> bytes:
        self._number += 1
        data = TopicProduceData("orders", partition_data=(PartitionProduceData(index, batch),))
        asked = ProduceRequest(None, acks, timeout_ms, (data,))
        body = encode_request(PRODUCE, PRODUCE_VERSION, asked)
        return b"".join(encode_request_frame(PRODUCE, PRODUCE_VERSION, self._number, "app", body))

    async def answers(self, count: int) -> list[tuple[int, int, int]]:
        """Correlation id, error code and offset of so many answers."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(found := self.line.frames()) < count:
                await asyncio.sleep(0)
        self.line.sent = b""
        return [_produced(frame) for frame in found]

    def stored(self, index: int = 0) -> list[bytes | None]:
        log = self.broker.topics.partition(self.topic, index).log
        data = memoryview(log.read(0, 10**7))
        return [
            record.value
            for at, header in split_batches(data)
            for record in read_records(data[at : at + header.size_bytes])
        ]


def _produced(frame: bytes) -> tuple[int, int, int]:
    number, at = decode_response_header(PRODUCE, PRODUCE_VERSION, frame)
    answer: Any = decode_response(PRODUCE, PRODUCE_VERSION, frame, at)
    [part] = answer.responses[0].partition_responses
    return number, part.error_code, part.base_offset


Node = TypeVar("Node", bound=Connected)


def play(start: Callable[[], Node], scenario: Callable[[Node], Awaitable[None] | None]) -> None:
    """The scenario on a node of its own, which is closed behind it."""

    async def run() -> None:
        node = start()
        try:
            result = scenario(node)
            if result is not None:
                await result
        finally:
            await node.close()

    asyncio.run(run())
