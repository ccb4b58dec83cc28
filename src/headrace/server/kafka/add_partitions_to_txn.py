"""AddPartitionsToTxn, versions 0 to 3: where a transaction is going to write.

All partitions are added or none: when one of them does not exist, the others are
answered with OPERATION_NOT_ATTEMPTED. Answered when the coordinator's note is on disk.

Versions 4 and 5, in which Kafka's brokers ask each other, are not offered: here the
coordinator and the partitions are in one place.
"""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.engine.coordinator.transaction import Place
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.partitions import partition_of
from headrace.server.kafka.transactions import code_for
from headrace.server.slices import Slices
from headrace.wire.kafka.generated.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from headrace.wire.kafka.generated.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

FENCED_FIRST = 2


async def handle(call: Call, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    name, producer_id, epoch, topics = request
    places: set[Place] = set()
    wrong: dict[tuple[str, int], int] = {}
    slices = Slices()
    for topic in topics:
        for index in topic.partitions:
            await slices.rest()
            try:
                partition = partition_of(call.service, topic.name, index)
            except HeadraceError:
                wrong[topic.name, index] = Error.UNKNOWN_TOPIC_OR_PARTITION
                continue
            if partition.topic.is_internal:
                wrong[topic.name, index] = Error.TOPIC_AUTHORIZATION_FAILED
            else:
                places.add((partition.topic.id, index))
    others: int = Error.OPERATION_NOT_ATTEMPTED
    if not wrong:
        added = await call.door.transactions.add(name, producer_id, epoch, places)
        others = code_for(added, call.version, FENCED_FIRST)
    results = []
    for topic in topics:
        answered = []
        for index in topic.partitions:
            code = wrong.get((topic.name, index), others)
            answered.append(AddPartitionsToTxnPartitionResult(index, code))
            await slices.rest()
        results.append(AddPartitionsToTxnTopicResult(topic.name, answered))
        await slices.rest()
    return AddPartitionsToTxnResponse(0, results)
