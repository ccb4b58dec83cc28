"""OffsetForLeaderEpoch, versions 2 to 4: where a leader's reign ended in this log.

A consumer asks with the epoch of what it read last: when that epoch ended below its
position, the log was cut since and it has read what no longer exists.

    epoch asked for               answered
    this leader's, or a later     the epoch and the log's end; a later one is unknown
    one that wrote here           that epoch, and where the next one began
    one that wrote nothing        the one before it that did, and where that ended
    older than all that is left   itself, and where the oldest that is left began
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from headrace.core.errors import HeadraceError
from headrace.core.steps import Steps
from headrace.engine.partition import Partition
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.partitions import epoch_error, led_partition_of
from headrace.server.slices import answer
from headrace.wire.kafka.generated.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from headrace.wire.kafka.generated.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

UNKNOWN = (-1, -1)


def handle(
    call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse | Coroutine[Any, Any, OffsetForLeaderEpochResponse]:
    size = sum(1 + len(topic.partitions) for topic in request.topics)
    return answer(size, _find_all(call, request))


def _find_all(
    call: Call, request: OffsetForLeaderEpochRequest
) -> Steps[OffsetForLeaderEpochResponse]:
    topics = []
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            partitions.append(_find(call, topic.topic, each))
            yield
        topics.append(OffsetForLeaderTopicResult(topic.topic, partitions))
        yield
    return OffsetForLeaderEpochResponse(topics=topics)


def _find(call: Call, name: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    index = wanted.partition
    try:
        partition = led_partition_of(call.service, name, index)
    except HeadraceError as error:
        return EpochEndOffset(code_of(error), index)
    code = epoch_error(partition, wanted.current_leader_epoch)
    if code:
        return EpochEndOffset(code, index)
    return EpochEndOffset(Error.NONE, index, *epoch_end(partition, wanted.leader_epoch))


def epoch_end(partition: Partition, epoch: int) -> tuple[int, int]:
    log = partition.log
    if not 0 <= epoch <= partition.epoch:
        return UNKNOWN
    if epoch == partition.epoch:
        return epoch, log.end_offset
    found = log.epoch_end(epoch)
    if found != UNKNOWN:
        return found
    entries = log.epochs.entries
    return epoch, entries[0][1] if entries else log.end_offset
