"""DeleteRecords, versions 0 to 2: everything below an offset goes, for good.

Offset -1 stands for the high watermark. An offset below the start changes nothing.
The new start is on disk when it is answered. Topics that are only compacted refuse:
what is old there may still be the last word on its key.
"""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.partitions import led_partition_of
from headrace.server.slices import Slices
from headrace.wire.kafka.generated.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
)
from headrace.wire.kafka.generated.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

UP_TO_HIGH_WATERMARK = -1


async def handle(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    slices = Slices()
    answered = []
    for topic in request.topics:
        results = []
        for each in topic.partitions:
            # Each waits for the disk, on the loop's thread: a new start is rare.
            results.append(_delete(call, topic.name, each))
            await slices.rest()
        answered.append(DeleteRecordsTopicResult(topic.name, results))
    return DeleteRecordsResponse(topics=answered)


def _delete(call: Call, name: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    service = call.service
    index, before = wanted
    try:
        partition = led_partition_of(service, name, index)
        topic = partition.topic
        is_only_compacted = topic.settings.is_compacted and not topic.settings.is_deleted
        if topic.is_internal or is_only_compacted:
            return DeleteRecordsPartitionResult(index, -1, Error.POLICY_VIOLATION)
        if before == UP_TO_HIGH_WATERMARK:
            before = partition.high_watermark
        if not 0 <= before <= partition.high_watermark:
            return DeleteRecordsPartitionResult(index, -1, Error.OFFSET_OUT_OF_RANGE)
        start = call.broker.delete_records(topic, index, before, service.clock.now_ms())
    except (HeadraceError, OSError) as error:
        return DeleteRecordsPartitionResult(index, -1, code_of(error))
    return DeleteRecordsPartitionResult(index, start)
