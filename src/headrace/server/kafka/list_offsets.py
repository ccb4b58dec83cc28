"""ListOffsets, versions 1 to 11: from a time, or a name for one, to an offset.

    timestamp   offset
    -1          the high watermark; with isolation level 1 the last stable offset
    -2, -4      the first that can be read (-4: on this disk, which is the same)
    -3          the record with the largest timestamp, the first of them
    -5, -6      none: there is no tiered storage
    others      the first record that is as old or younger; none: -1

A record that was found above the high watermark is on its way to the disk. The
answer waits for it: to say that there is none would be wrong a moment later. A reader
of committed records is not told of one that lies above the last stable offset.
A request of a replica is refused (replicas.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any

from headrace.core.errors import CorruptLog, FencedLeader, HeadraceError, UnknownTopic
from headrace.engine.commit import Commit
from headrace.engine.partition import Partition
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.fetch import READ_COMMITTED
from headrace.server.kafka.partitions import epoch_error, led_partition_of
from headrace.server.kafka.replicas import is_replica, refuse_list_offsets
from headrace.server.slices import SMALL, Slices, answer
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

# Offset and timestamp of a record; None when there is none.
Found = tuple[int, int] | None
NOT_SEARCHED = (-1, -1)


def handle(
    call: Call, request: ListOffsetsRequest
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    wanted = sum(len(topic.partitions) for topic in request.topics)
    if is_replica(request.replica_id):
        return answer(wanted, refuse_list_offsets(request))
    if wanted > SMALL or any(map(_is_search, _timestamps(request))):
        return _find_in_slices(call, request)
    commit = call.service.commit()
    response = _find_all(call, request, commit)
    if not commit.data:
        return response
    return _when_safe(call, request, commit, response)


def _timestamps(request: ListOffsetsRequest) -> Iterator[int]:
    return (each.timestamp for topic in request.topics for each in topic.partitions)


def _is_search(timestamp: int) -> bool:
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


async def _find_in_slices(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """The same without keeping others waiting: for many partitions, or for times,
    which may have to be looked for in much of a log."""
    commit = call.service.commit()
    response = await _search_all(call, request, commit)
    return await _when_safe(call, request, commit, response)


async def _search_all(
    call: Call, request: ListOffsetsRequest, commit: Commit | None
) -> ListOffsetsResponse:
    committed = request.isolation_level == READ_COMMITTED
    slices = Slices()
    topics = []
    for topic in request.topics:
        found = []
        for each in topic.partitions:
            record: Found = NOT_SEARCHED
            if _is_search(each.timestamp):
                record = await _search(call, topic.name, each)
            found.append(_find(call, topic.name, each, committed, commit, record))
            await slices.rest()
        topics.append(ListOffsetsTopicResponse(topic.name, found))
    return ListOffsetsResponse(topics=topics)


async def _search(call: Call, name: str, wanted: ListOffsetsPartition) -> Found:
    """What a thread finds; nothing where something is wrong, which the one who looks
    again is told of."""
    with contextlib.suppress(HeadraceError, OSError):
        log = led_partition_of(call.service, name, wanted.partition_index).log
        timestamp_ms = None if wanted.timestamp == MAX_TIMESTAMP else wanted.timestamp
        looking = log.time_search(timestamp_ms)
        found = await call.service.loop.run_in_executor(None, looking)
        # It may have been deleted meanwhile.
        if found is None or found[0] >= log.start_offset:
            return found
    return NOT_SEARCHED


async def _when_safe(
    call: Call, request: ListOffsetsRequest, commit: Commit, response: ListOffsetsResponse
) -> ListOffsetsResponse:
    while commit.data:
        try:
            await call.finish(commit)
        except (UnknownTopic, FencedLeader):
            # Another look says so of that partition, and waits for the others.
            commit = call.service.commit()
            response = await _search_all(call, request, commit)
            continue
        if request.isolation_level != READ_COMMITTED:
            break
        # It may belong to an open transaction. What came since is not waited for again.
        return await _search_all(call, request, None)
    return response


def _find_all(
    call: Call, request: ListOffsetsRequest, commit: Commit | None
) -> ListOffsetsResponse:
    committed = request.isolation_level == READ_COMMITTED
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                [_find(call, topic.name, each, committed, commit) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _find(
    call: Call,
    name: str,
    wanted: ListOffsetsPartition,
    committed: bool,
    commit: Commit | None,
    record: Found = NOT_SEARCHED,
) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    try:
        partition = led_partition_of(call.service, name, index)
        code = epoch_error(partition, wanted.current_leader_epoch)
        if not code and wanted.timestamp < min(_TIERED):
            code = Error.UNSUPPORTED_VERSION
        if code:
            return ListOffsetsPartitionResponse(index, code)
        partition.check_sound()
        return _look(partition, wanted.timestamp, committed, commit, record)
    except CorruptLog as error:
        partition.stop(error)
        return ListOffsetsPartitionResponse(index, code_of(error))
    except HeadraceError as error:
        return ListOffsetsPartitionResponse(index, code_of(error))


def _look(
    partition: Partition, timestamp: int, committed: bool, commit: Commit | None, record: Found
) -> ListOffsetsPartitionResponse:
    log = partition.log
    end = partition.last_stable_offset if committed else partition.high_watermark
    if timestamp == LATEST:
        return _found(partition, end, -1)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _found(partition, log.start_offset, -1)
    if timestamp in _TIERED:
        return ListOffsetsPartitionResponse(partition.index)
    if record == NOT_SEARCHED:
        is_latest = timestamp == MAX_TIMESTAMP
        record = log.latest_timestamp() if is_latest else log.offset_for_timestamp(timestamp)
    if record is None:
        return ListOffsetsPartitionResponse(partition.index)
    if record[0] >= partition.high_watermark and commit is not None:
        commit.data.append((partition, record[0] + 1))
    elif record[0] >= end:
        return ListOffsetsPartitionResponse(partition.index)
    return _found(partition, *record)


def _found(partition: Partition, offset: int, timestamp_ms: int) -> ListOffsetsPartitionResponse:
    epoch = partition.epoch
    if offset < partition.log.end_offset:
        written = partition.log.epochs.epoch_at(offset)
        epoch = -1 if written is None else written
    return ListOffsetsPartitionResponse(partition.index, Error.NONE, timestamp_ms, offset, epoch)
