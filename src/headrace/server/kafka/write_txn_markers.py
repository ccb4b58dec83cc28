"""WriteTxnMarkers, version 1: an operator ends a transaction (kafka-transactions abort).

Kafka writes the marker that it is told to, into the one partition, and leaves the rest of
the transaction open. Here the coordinator knows of every open transaction but those that
hang, and half of one is none: all of it is aborted, everywhere, and its producer is fenced.

    the coordinator has it open, with this partition  aborted, then NONE
    it is decided                                     NONE: its own marker is on the way
    the coordinator has a later epoch                 INVALID_PRODUCER_EPOCH
    the coordinator does not know of it: it hangs     its marker is written into this partition,
                                                      as the partition's own epochs allow
    nothing is open here                              NONE, or as above for a lower epoch
    a commit                                          INVALID_TXN_STATE: that is the producer's

A transaction hangs where a batch came when its transaction was over, and was not checked
with the coordinator (`transaction_version=0`): nobody else would ever end it.
"""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.engine.coordinator.transaction import State, TransactionError
from headrace.engine.partition import Partition
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.partitions import led_partition_of
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
        partition = led_partition_of(call.service, topic, index)
    except HeadraceError as error:
        return code_of(error)
    producer = marker.producer_id, marker.producer_epoch
    live = call.door.transactions
    owner = live.table.owners((marker.producer_id,)).get(marker.producer_id)
    found = None if owner is None else live.table.find(owner)
    is_lower = found is not None and marker.producer_epoch < found.epoch
    if owner is None or found is None or (partition.topic.id, index) not in found.partitions:
        if partition.producers.open_of(marker.producer_id) is not None:
            return await _end_hanging(call, marker, partition)
        return Error.INVALID_PRODUCER_EPOCH if is_lower and producer not in aborted else Error.NONE
    if is_lower:
        return Error.INVALID_PRODUCER_EPOCH
    if found.state is not State.ONGOING:
        return Error.NONE
    if marker.transaction_result:
        return Error.INVALID_TXN_STATE
    outcome = await live.abort(owner)
    if isinstance(outcome, TransactionError):
        return outcome
    aborted.add(producer)
    return Error.NONE


async def _end_hanging(call: Call, marker: WritableTxnMarker, partition: Partition) -> int:
    if marker.transaction_result:
        return Error.INVALID_TXN_STATE
    service = call.service
    commit = service.commit()
    try:
        ended = call.door.transactions.table.abort_hanging(
            partition,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            service.clock.now_ms(),
        )
        commit.data.append((partition, ended.next_offset))
        await service.wait_for(commit)
    except (HeadraceError, OSError) as error:
        return code_of(error)
    return Error.NONE
