"""ListOffsets, versions 1 to 11: from a time, or a name for one, to an offset.

    timestamp   offset
    -1          the high watermark; for either isolation level, since nothing is
                transactional
    -2, -4      the first that can be read (-4: on this disk, which is the same)
    -3          the record with the largest timestamp, the first of them
    -5, -6      none: there is no tiered storage
    others      the first record that is as old or younger; none: -1

A record that was found above the high watermark is on its way to the disk. The
answer waits for it: to say that there is none would be wrong a moment later.
"""

from __future__ import annotations

import asyncio

from headrace.core.errors import CorruptLog, HeadraceError
from headrace.engine.commit import Commit
from headrace.engine.partition import Partition
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.partitions import epoch_error, partition_of
from headrace.wire.kafka.generated.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
)
from headrace.wire.kafka.generated.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
_TIERED = (-5, -6)


def handle(
    call: Call, request: ListOffsetsRequest
) -> ListOffsetsResponse | asyncio.Future[ListOffsetsResponse]:
    service = call.service
    commit = service.commit()
    response = ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name, [_find(call, topic.name, each, commit) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )
    if not commit.data:
        return response
    return asyncio.ensure_future(_when_safe(call, commit, response))


async def _when_safe(
    call: Call, commit: Commit, response: ListOffsetsResponse
) -> ListOffsetsResponse:
    await call.service.finish(commit)
    return response


def _find(
    call: Call, name: str, wanted: ListOffsetsPartition, commit: Commit
) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    try:
        partition = partition_of(call.service, name, index)
        code = epoch_error(partition, wanted.current_leader_epoch)
        if not code and wanted.timestamp < min(_TIERED):
            code = Error.UNSUPPORTED_VERSION
        if code:
            return ListOffsetsPartitionResponse(index, code)
        if partition.stopped is not None:
            raise partition.stopped
        return _look(partition, wanted.timestamp, commit)
    except CorruptLog as error:
        partition.stopped = error
        return ListOffsetsPartitionResponse(index, code_of(error))
    except HeadraceError as error:
        return ListOffsetsPartitionResponse(index, code_of(error))


def _look(partition: Partition, timestamp: int, commit: Commit) -> ListOffsetsPartitionResponse:
    log = partition.log
    if timestamp == LATEST:
        return _found(partition, partition.high_watermark, -1)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _found(partition, log.start_offset, -1)
    if timestamp in _TIERED:
        return ListOffsetsPartitionResponse(partition.index)
    if timestamp == MAX_TIMESTAMP:
        record = log.latest_timestamp()
    else:
        record = log.offset_for_timestamp(timestamp)
    if record is None:
        return ListOffsetsPartitionResponse(partition.index)
    if record[0] >= partition.high_watermark:
        commit.data.append((partition, record[0] + 1))
    return _found(partition, *record)


def _found(partition: Partition, offset: int, timestamp_ms: int) -> ListOffsetsPartitionResponse:
    epoch = partition.epoch
    if offset < partition.log.end_offset:
        written = partition.log.epochs.epoch_at(offset)
        epoch = -1 if written is None else written
    return ListOffsetsPartitionResponse(partition.index, Error.NONE, timestamp_ms, offset, epoch)
