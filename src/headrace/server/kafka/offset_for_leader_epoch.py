"""OffsetForLeaderEpoch, versions 2 to 4: where a leader's reign ended in this log.

A consumer asks with the epoch of what it read last: when that epoch ended below its
position, the log was cut since and it has read what no longer exists.
A request of a replica is refused (replicas.py).

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
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.partitions import epoch_end, epoch_error, led_partition_of
from headrace.server.kafka.replicas import is_replica, refuse_epochs
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


def handle(
    call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse | Coroutine[Any, Any, OffsetForLeaderEpochResponse]:
    size = sum(1 + len(topic.partitions) for topic in request.topics)
    if is_replica(request.replica_id):
        return answer(size, refuse_epochs(request))
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
