"""An operator ends a transaction over Kafka's protocol, as kafka-transactions does."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.asking import Asking, run
from tests.unit.server.transaction_door import (
    NEW,
    OLD,
    START,
    TOPIC,
    Transactor,
    committed,
    make_topic,
)

from headrace.engine.partition import Partition
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import read_header
from headrace.server.kafka.errors import Error
from headrace.testing import ManualClock
from headrace.wire.kafka.generated.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

WRITE_MARKERS = 27


async def mark(
    asking: Asking,
    producer: tuple[int, int],
    *indexes: int,
    commit: bool = False,
    topic: str = TOPIC,
    coordinator_epoch: int = 0,
) -> list[int]:
    topics = (WritableTxnMarkerTopic(topic, indexes),)
    marker = WritableTxnMarker(*producer, commit, topics, coordinator_epoch)
    answer = await asking.ask(WRITE_MARKERS, 1, WriteTxnMarkersRequest((marker,)))
    (found,) = answer.markers
    assert found.producer_id == producer[0]
    return [each.error_code for each in found.topics[0].partitions]


@pytest.mark.parametrize("versions", [OLD, NEW], ids=["old", "new"])
def test_an_open_transaction_is_aborted_everywhere_and_its_producer_fenced(
    versions: dict[int, int],
) -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        make_topic(asking)
        producer = Transactor(asking, versions)
        assert await producer.init() == 0
        assert await producer.add(0, 1) == [0, 0]
        assert [await producer.write(0, b"x"), await producer.write(1, b"y")] == [0, 0]
        known = producer.producer_id, producer.epoch
        partitions = asking.broker.topics.partitions(asking.broker.topics.named(TOPIC))
        assert [each.last_stable_offset for each in partitions] == [0, 0]
        assert await mark(asking, known, 0, commit=True) == [Error.INVALID_TXN_STATE]
        assert await mark(asking, (known[0], known[1] - 1), 0) == [Error.INVALID_PRODUCER_EPOCH]
        assert await mark(asking, known, 0, 1) == [0, 0]
        # The records and the marker.
        assert [each.last_stable_offset for each in partitions] == [2, 2]
        assert await producer.write(0, b"late") != 0
        assert await producer.init() == 0
        assert await producer.add(0) == [0]
        assert await producer.write(0, b"next") == 0

    run(scenario)


def test_where_nothing_is_open_there_is_nothing_to_end() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        make_topic(asking)
        producer = Transactor(asking, NEW)
        await producer.init()
        known = producer.producer_id, producer.epoch
        assert await mark(asking, known, 0) == [0]
        assert await mark(asking, (4_711, 0), 0) == [0]
        unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
        assert await mark(asking, known, 9) == [unknown]
        assert await mark(asking, known, 0, topic="absent") == [unknown]
        await producer.add(0)
        assert await mark(asking, known, 1) == [0]
        assert await producer.write(0, b"x") == 0

    run(scenario)


def partition_of(asking: Asking, index: int = 0) -> Partition:
    topics = asking.broker.topics
    return topics.partition(topics.named(TOPIC), index)


async def with_a_hanging_transaction(disk: MemoryDisk) -> Transactor:
    """A write of a producer that came when its transaction had been aborted, to a node that
    does not ask the coordinator first; and behind it a transaction that was committed."""
    asking = Asking(disk, clock=ManualClock(START), transaction_version=0)
    make_topic(asking)
    producer, other = Transactor(asking, OLD), Transactor(asking, OLD, "other")
    for each, commit in ((producer, False), (other, True)):
        assert await each.init() == Error.NONE
        assert await each.add(0) == [Error.NONE]
        if commit:
            assert await each.write(0, b"good") == Error.NONE
            assert await each.end(commit=True) == Error.NONE
        else:
            late = each.batch(0, b"late")
            assert await each.end(commit=False) == Error.NONE
            assert await each.send(0, late) == Error.NONE
    assert await committed(asking) == []
    return producer


def coordinator_epoch_of(producer: Transactor) -> int:
    """As DescribeProducers tells the tool."""
    found = partition_of(producer.asking).producers.active()
    [epoch] = [each.coordinator_epoch for each in found if each.producer_id == producer.producer_id]
    return epoch


@pytest.mark.parametrize("later", [0, 1_000_000])
@pytest.mark.parametrize("restart", [False, True])
def test_a_hanging_transaction_gets_its_marker_in_the_partition(restart: bool, later: int) -> None:
    """Its coordinator does not know of it."""

    async def scenario() -> None:
        disk = MemoryDisk()
        producer = await with_a_hanging_transaction(disk)
        asking, known = producer.asking, (producer.producer_id, producer.epoch)
        epoch = coordinator_epoch_of(producer)
        assert epoch > 0
        assert await mark(asking, known, 0, commit=True, coordinator_epoch=epoch) == [
            Error.INVALID_TXN_STATE
        ]
        assert await mark(asking, known, 0, coordinator_epoch=epoch - 1) == [
            Error.TRANSACTION_COORDINATOR_FENCED
        ]
        assert await mark(asking, (known[0], known[1] - 1), 0, coordinator_epoch=epoch) == [
            Error.INVALID_PRODUCER_EPOCH
        ]
        assert await committed(asking) == []
        assert await mark(asking, known, 0, 1, coordinator_epoch=epoch + later) == [0, 0]
        if restart:
            await asking.close()
            producer.asking = asking = Asking(disk, clock=ManualClock(START), transaction_version=0)
        assert await committed(asking) == [b"good"]
        assert partition_of(asking).open_transactions() == []
        # The producer goes on, and its coordinator is not fenced by what the tool said.
        assert await producer.init() == Error.NONE
        assert await producer.add(0) == [Error.NONE]
        assert await producer.write(0, b"next") == Error.NONE
        assert await producer.end(commit=True) == Error.NONE
        assert await committed(asking) == [b"good", b"next"]

    run(scenario)


def test_a_transaction_of_a_producer_that_no_coordinator_knows_is_ended() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk(), clock=ManualClock(START))
        make_topic(asking)
        stranger = Transactor(asking, NEW)
        stranger.producer_id, stranger.epoch = 4_711, 3
        batch = bytearray(stranger.batch(0, b"x"))
        partition = partition_of(asking)
        partition.append(batch, read_header(batch), asking.clock.now_ms())
        assert await mark(asking, (4_711, 3), 0) == [0]
        assert partition.open_transactions() == []
        # It is safe before the answer.
        assert partition.last_stable_offset == partition.log.synced_end == 2

    run(scenario)


def test_a_transaction_that_is_decided_gets_the_marker_of_its_decision() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk(), clock=ManualClock(START))
        make_topic(asking)
        producer = Transactor(asking, OLD)
        assert await producer.init() == Error.NONE
        assert await producer.add(0) == [Error.NONE]
        assert await producer.write(0, b"x") == Error.NONE
        known = producer.producer_id, producer.epoch
        ending = asyncio.ensure_future(producer.end(commit=True))
        # It is decided, and the decision is not on disk yet.
        while not asking.broker.transactions.pending():
            await asyncio.sleep(0)
        assert await mark(asking, known, 0) == [0]
        assert await ending == Error.NONE
        assert await committed(asking) == [b"x"]

    run(scenario)
