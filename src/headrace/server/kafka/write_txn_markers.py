"""WriteTxnMarkers, version 1: an operator ends a transaction (kafka-transactions abort).

Kafka writes the marker that it is told to, into the one partition, and leaves the rest of
the transaction open. Here the coordinator knows of every open transaction, and half of one
is none: all of it is aborted, everywhere, and its producer is fenced.

    the transaction is open, by this id and epoch     aborted, then NONE
    it is not, or not in this partition               NONE: there is nothing to end
    a lower epoch                                     INVALID_PRODUCER_EPOCH
    a commit                                          INVALID_TXN_STATE: that is the producer's
"""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.engine.coordinator.transaction import State, TransactionError
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.partitions import partition_of
from headrace.server.slices import Slices
from headrace.wire.kafka.generated.write_txn_markers_request import (
    WritableTxnMarker,
    WriteTxnMarkersRequest,
)
from headrace.wire.kafka.generated.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)


async def handle(call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    results = []
    # Of this request: a transaction is ended by the first of its partitions.
    aborted: set[tuple[int, int]] = set()
    slices = Slices()
    for marker in request.markers:
        topics = []
        for name, indexes in marker.topics:
            partitions = []
            for index in indexes:
                code = await _end(call, marker, name, index, aborted)
                partitions.append(WritableTxnMarkerPartitionResult(index, code))
                await slices.rest()
            topics.append(WritableTxnMarkerTopicResult(name, partitions))
        results.append(WritableTxnMarkerResult(marker.producer_id, topics))
    return WriteTxnMarkersResponse(results)


async def _end(
    call: Call,
    marker: WritableTxnMarker,
    topic: str,
    index: int,
    aborted: set[tuple[int, int]],
) -> int:
    try:
        partition = partition_of(call.service, topic, index)
    except HeadraceError as error:
        return code_of(error)
    producer = marker.producer_id, marker.producer_epoch
    if producer in aborted:
        return Error.NONE
    live = call.door.transactions
    owner = live.table.owners((marker.producer_id,)).get(marker.producer_id)
    found = None if owner is None else live.table.find(owner)
    if owner is None or found is None:
        return Error.NONE
    if marker.producer_epoch < found.epoch:
        return Error.INVALID_PRODUCER_EPOCH
    if found.state is not State.ONGOING or (partition.topic.id, index) not in found.partitions:
        return Error.NONE
    if marker.transaction_result:
        return Error.INVALID_TXN_STATE
    outcome = await live.abort(owner)
    if isinstance(outcome, TransactionError):
        return outcome
    aborted.add(producer)
    return Error.NONE
