"""An operator ends a transaction over Kafka's protocol, as kafka-transactions does."""

from __future__ import annotations

import pytest
from tests.unit.server.asking import Asking, run
from tests.unit.server.transaction_door import NEW, OLD, TOPIC, Transactor, make_topic

from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.errors import Error
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
) -> list[int]:
    marker = WritableTxnMarker(*producer, commit, (WritableTxnMarkerTopic(topic, indexes),), 0)
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
