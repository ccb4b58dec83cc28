"""OffsetFetch, versions 1 to 10.

    from    difference
    2       no topics means everything that the group has committed
    8       several groups at once
    9       a member of a consumer group says its epoch, and a stale one is told so
    10      topics are named by their ids

What was never committed has the offset -1, which is no error. Only what is on disk
is shown; there are no open transactions that could change it, so `require_stable`
changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.errors import HeadraceError
from headrace.engine.cursor import Cursor
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.names import topic_of
from headrace.wire.kafka.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.kafka.generated.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)


def handle(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if call.version >= 8:
        return OffsetFetchResponse(groups=tuple(_fetch(call, group) for group in request.groups))
    topics = request.topics
    found = _fetch(
        call,
        OffsetFetchRequestGroup(
            request.group_id,
            topics=None
            if topics is None
            else [
                OffsetFetchRequestTopics(topic.name, partition_indexes=topic.partition_indexes)
                for topic in topics
            ],
        ),
    )
    if found.error_code and topics is not None:
        # Version 1 has no code for the whole, so every partition has it.
        found = found._replace(
            topics=[
                OffsetFetchResponseTopics(
                    topic.name,
                    partitions=[
                        OffsetFetchResponsePartitions(index, -1, error_code=found.error_code)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in topics
            ]
        )
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                topic.name,
                tuple(OffsetFetchResponsePartition(*partition) for partition in topic.partitions),
            )
            for topic in found.topics
        ),
        error_code=found.error_code,
    )


def _fetch(call: Call, wanted: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    name = wanted.group_id
    refusal = call.door.groups.check_fetch(name, wanted.member_id, wanted.member_epoch)
    if refusal:
        return OffsetFetchResponseGroup(name, error_code=refusal)
    if wanted.topics is None:
        return OffsetFetchResponseGroup(name, _everything(call, name))
    return OffsetFetchResponseGroup(
        name, tuple(_fetch_topic(call, name, topic) for topic in wanted.topics)
    )


def _everything(call: Call, group: str) -> Sequence[OffsetFetchResponseTopics]:
    broker = call.service.broker
    by_topic: dict[bytes, list[OffsetFetchResponsePartitions]] = {}
    for (topic_id, index), cursor in sorted(broker.cursors.of(group).items()):
        by_topic.setdefault(topic_id, []).append(_partition(index, cursor))
    topics = broker.topics.catalog.topics_by_id
    return tuple(
        OffsetFetchResponseTopics(topics[topic_id].name, topic_id, tuple(partitions))
        for topic_id, partitions in by_topic.items()
        if topic_id in topics
    )


def _fetch_topic(
    call: Call, group: str, wanted: OffsetFetchRequestTopics
) -> OffsetFetchResponseTopics:
    unknown = Error.UNKNOWN_TOPIC_ID if call.version >= 10 else Error.NONE
    try:
        topic = topic_of(call.service, wanted.name, wanted.topic_id)
    except HeadraceError:
        partitions = tuple(
            OffsetFetchResponsePartitions(index, -1, error_code=unknown)
            for index in wanted.partition_indexes
        )
    else:
        cursors = call.service.broker.cursors
        partitions = tuple(
            _partition(index, cursors.find(group, (topic.id, index)))
            for index in wanted.partition_indexes
        )
    return OffsetFetchResponseTopics(wanted.name, wanted.topic_id, partitions)


def _partition(index: int, cursor: Cursor | None) -> OffsetFetchResponsePartitions:
    if cursor is None:
        return OffsetFetchResponsePartitions(index, -1)
    return OffsetFetchResponsePartitions(index, cursor.offset, cursor.leader_epoch, cursor.metadata)
