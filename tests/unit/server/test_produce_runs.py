"""Runs of Produce requests through a connection: what is stored and answered is what
one request at a time would have brought."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.twins import both
from tests.unit.server.rich_shares import make_rich
from tests.unit.server.test_connection import Line

from headrace.core.node_settings import NodeSettings
from headrace.core.ports import Disk
from headrace.core.settings import TopicSettings
from headrace.engine.broker import Broker
from headrace.platform.clock import SystemClock
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch, read_records
from headrace.record.batch import CONTROL, seal_batch, split_batches
from headrace.server.kafka import produce_runs
from headrace.server.kafka.connection import OPEN_REQUESTS_MAX, Connection
from headrace.server.kafka.door import Door
from headrace.server.kafka.errors import Error
from headrace.server.kafka.handlers import HANDLERS
from headrace.server.service import Service
from headrace.testing.fault_disk import FaultDisk
from headrace.wire.kafka.api import decode_response, encode_request
from headrace.wire.kafka.frame import decode_response_header, encode_request_frame
from headrace.wire.kafka.generated.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.kafka.produce_run import write_answers

VERSION = 9
Scenario = Callable[["Bench"], Awaitable[None]]


@pytest.fixture(params=both("headrace.wire.kafka.produce_run.read_run"), autouse=True)
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_runs, "read_run", request.param)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests each run had that was taken."""
    lengths: list[int] = []

    def note(answer: Any, correlation_ids: bytes, batches: Any) -> bytes:
        lengths.append(len(correlation_ids) // 4)
        return write_answers(answer, correlation_ids, batches)

    monkeypatch.setattr(produce_runs, "write_answers", note)
    return lengths


class Bench:
    def __init__(self, disk: Disk, **settings: Any) -> None:
        make_rich()
        clock, entropy = SystemClock(), SystemEntropy()
        self.broker = Broker(disk, entropy, clock.now_ms())
        self.service = Service(self.broker, disk, clock, entropy, node_id=0, cluster_id="c")
        self.door = Door(self.service, NodeSettings(data="."), HANDLERS)
        self.topic = self.broker.topics.create(
            "orders", 2, TopicSettings(**settings), clock.now_ms()
        )
        self.connection, self.line = Connection(self.door), Line()
        self.connection.connection_made(self.line)
        self._number = 0

    def request(self, batch: bytes | bytearray, *, index: int = 0, acks: int = -1) -> bytes:
        self._number += 1
        data = TopicProduceData("orders", partition_data=(PartitionProduceData(index, batch),))
        body = encode_request(0, VERSION, ProduceRequest(None, acks, 1000, (data,)))
        return b"".join(encode_request_frame(0, VERSION, self._number, "app", body))

    def send(self, data: bytes) -> None:
        while data and not self.connection.is_closed:
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]

    async def answers(self, count: int) -> list[tuple[int, int, int]]:
        """Correlation id, error code and offset of so many answers."""
        async with asyncio.timeout(30):
            while len(found := self._decode()) < count:
                await asyncio.sleep(0)
        self.line.sent = b""
        return found

    def _decode(self) -> list[tuple[int, int, int]]:
        found = []
        data = self.line.sent
        while data:
            (size,) = struct.unpack_from(">i", data)
            correlation_id, at = decode_response_header(0, VERSION, data[4 : 4 + size])
            answer: Any = decode_response(0, VERSION, data[4 : 4 + size], at)
            [part] = answer.responses[0].partition_responses
            found.append((correlation_id, part.error_code, part.base_offset))
            data = data[4 + size :]
        return found

    def stored(self, index: int = 0) -> list[bytes | None]:
        log = self.broker.topics.partition(self.topic, index).log
        data = memoryview(log.read(0, 10**7))
        return [
            record.value
            for at, header in split_batches(data)
            for record in read_records(data[at : at + header.size_bytes])
        ]


def play(scenario: Scenario, disk: Disk | None = None, **settings: Any) -> None:
    async def run() -> None:
        bench = Bench(disk or MemoryDisk(), **settings)
        try:
            await scenario(bench)
        finally:
            await bench.service.close()
            bench.broker.close()

    asyncio.run(run())


def batch_of(*values: bytes, **options: Any) -> bytearray:
    records = [NewRecord(None, value, (), 1_700_000_000_000) for value in values]
    return build_batch(records, **options)


@pytest.mark.parametrize("durability", ["synced", "os"])
def test_a_run_is_stored_and_answered_in_order(durability: str, runs: list[int]) -> None:
    async def scenario(bench: Bench) -> None:
        wanted = [b"%d" % number for number in range(200)]
        bench.send(b"".join(bench.request(batch_of(value)) for value in wanted))
        answers = await bench.answers(200)
        assert answers == [(number + 1, 0, number) for number in range(200)]
        assert bench.stored() == wanted
        assert runs == [199]
        assert bench.connection.is_idle

    play(scenario, durability=durability)


def test_batches_of_several_records_get_the_offsets_of_their_first(runs: list[int]) -> None:
    async def scenario(bench: Bench) -> None:
        sizes = [3, 1, 5, 2]
        bench.send(b"".join(bench.request(batch_of(*[b"x"] * size)) for size in sizes))
        offsets = [offset for _, _, offset in await bench.answers(4)]
        assert offsets == [0, 3, 4, 9]
        assert runs == [3]

    play(scenario)


def test_requests_that_arrive_in_pieces_are_the_same_requests(runs: list[int]) -> None:
    async def scenario(bench: Bench) -> None:
        wanted = [b"%d" % number for number in range(20)]
        data = b"".join(bench.request(batch_of(value)) for value in wanted)
        for at in range(0, len(data), 61):
            bench.send(data[at : at + 61])
        assert [answer[2] for answer in await bench.answers(20)] == list(range(20))
        assert bench.stored() == wanted
        assert set(runs) == {1}

    play(scenario)


def test_a_run_ends_at_another_partition_and_goes_on_behind_it(runs: list[int]) -> None:
    async def scenario(bench: Bench) -> None:
        indexes = [0, 1, 0, 0, 1, 1, 1, 0]
        bench.send(b"".join(bench.request(batch_of(b"%d" % each), index=each) for each in indexes))
        offsets = [offset for _, _, offset in await bench.answers(8)]
        assert offsets == [0, 0, 1, 2, 1, 2, 3, 3]
        assert bench.stored(0) == [b"0"] * 4
        assert bench.stored(1) == [b"1"] * 4
        assert runs == [2, 3, 1]

    play(scenario)


def test_a_damaged_batch_is_refused_alone(runs: list[int]) -> None:
    async def scenario(bench: Bench) -> None:
        damaged = batch_of(b"damaged")
        damaged[-1] ^= 1
        control = batch_of(b"control")
        struct.pack_into(">h", control, 21, CONTROL)
        seal_batch(control, 0, len(control))
        good = [batch_of(b"%d" % number) for number in range(5)]
        sent = [good[0], good[1], damaged, good[2], control, good[3], good[4]]
        bench.send(b"".join(bench.request(each) for each in sent))
        answers = await bench.answers(7)
        bad = Error.CORRUPT_MESSAGE, Error.INVALID_RECORD
        assert [code for _, code, _ in answers] == [0, 0, bad[0], 0, bad[1], 0, 0]
        assert [offset for _, _, offset in answers] == [0, 1, -1, 2, -1, 3, 4]
        assert runs == [1, 1, 2]

    play(scenario)


def test_a_producer_that_repeats_a_run_is_answered_with_its_first_offsets(
    runs: list[int],
) -> None:
    async def scenario(bench: Bench) -> None:
        def sent() -> bytes:
            batches = [
                batch_of(b"%d" % number, producer_id=7, producer_epoch=0, base_sequence=number)
                for number in range(4)
            ]
            return b"".join(map(bench.request, batches))

        bench.send(sent())
        first = await bench.answers(4)
        bench.send(sent())
        again = await bench.answers(4)
        assert [answer[1:] for answer in first] == [answer[1:] for answer in again]
        assert bench.stored() == [b"0", b"1", b"2", b"3"]
        assert runs == [3]
        following = batch_of(b"4", producer_id=7, producer_epoch=0, base_sequence=4)
        bench.send(bench.request(following))
        assert (await bench.answers(1))[0][1:] == (0, 4)

    play(scenario)


def test_a_gap_in_the_sequence_is_refused_though_a_run_went_before(runs: list[int]) -> None:
    async def scenario(bench: Bench) -> None:
        sequences = [0, 1, 2, 9, 3]
        bench.send(
            b"".join(
                bench.request(batch_of(b"x", producer_id=7, producer_epoch=0, base_sequence=each))
                for each in sequences
            )
        )
        codes = [code for _, code, _ in await bench.answers(5)]
        assert codes == [0, 0, 0, Error.OUT_OF_ORDER_SEQUENCE_NUMBER, 0]

    play(scenario)


def test_a_batch_that_is_too_large_is_refused_alone() -> None:
    async def scenario(bench: Bench) -> None:
        sizes = [10, 10, 4000, 10]
        bench.send(b"".join(bench.request(batch_of(b"x" * size)) for size in sizes))
        codes = [code for _, code, _ in await bench.answers(4)]
        assert codes == [0, 0, Error.MESSAGE_TOO_LARGE, 0]

    play(scenario, record_bytes_max=2000)


def test_a_failed_sync_is_told_to_every_request_of_the_run() -> None:
    disk = FaultDisk()

    async def scenario(bench: Bench) -> None:
        bench.send(bench.request(batch_of(b"safe")))
        assert (await bench.answers(1))[0][1] == 0
        disk.fail_syncs = True
        bench.send(b"".join(bench.request(batch_of(b"x")) for _ in range(3)))
        answers = await bench.answers(3)
        assert [(number, code) for number, code, _ in answers] == [
            (number, Error.KAFKA_STORAGE_ERROR) for number in (2, 3, 4)
        ]

    play(scenario, disk)


def test_a_run_is_no_longer_than_the_requests_that_may_be_open(runs: list[int]) -> None:
    async def scenario(bench: Bench) -> None:
        count = OPEN_REQUESTS_MAX + 100
        bench.send(bench.request(batch_of(b"x")))
        await bench.answers(1)
        # Nothing is answered before the sync, and reading stops when the limit is
        # reached; what came already is handled when there is room.
        one = bench.request(batch_of(b"x"))
        data = one * count
        assert len(data) < 256 * 1024
        bench.send(data)
        assert not bench.line.is_reading_now
        assert runs == [OPEN_REQUESTS_MAX]
        offsets = [offset for _, _, offset in await bench.answers(count)]
        assert offsets == list(range(1, count + 1))
        assert bench.line.is_reading_now

    play(scenario)


def test_the_route_of_a_deleted_topic_leads_to_a_refusal() -> None:
    async def scenario(bench: Bench) -> None:
        bench.send(bench.request(batch_of(b"x")))
        await bench.answers(1)
        bench.broker.delete_topic(bench.topic, 0, bench.service.commit())
        bench.send(bench.request(batch_of(b"x")) * 2)
        codes = [code for _, code, _ in await bench.answers(2)]
        assert codes == [Error.UNKNOWN_TOPIC_OR_PARTITION] * 2

    play(scenario)
