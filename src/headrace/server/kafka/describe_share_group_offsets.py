"""DescribeShareGroupOffsets, versions 0 and 1: how far a share group is.

The start offset is the first that is not done; the lag is how many are not done
from there on. A partition that the group does not read has -1 for both. Without
topics, all that the group reads are described.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.engine.catalog import Group, Topic
from headrace.engine.partition import Partition
from headrace.engine.window import ACKED
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from headrace.wire.kafka.generated.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

_UNKNOWN = -1


def handle(
    call: Call, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=tuple(_describe(call, wanted) for wanted in request.groups)
    )


def _describe(
    call: Call, wanted: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    group = call.door.shares.group(wanted.group_id)
    if group is None:
        return DescribeShareGroupOffsetsResponseGroup(
            wanted.group_id,
            error_code=Error.GROUP_ID_NOT_FOUND,
            error_message=f"there is no share group {wanted.group_id!r}",
        )
    catalog = call.service.broker.topics.catalog
    if wanted.topics is not None:
        topics = [_describe_topic(call, group, topic) for topic in wanted.topics]
    else:
        topics = [
            _answer(call, group, topic, range(topic.partitions))
            for topic in catalog.topics.values()
            if topic.id in group.topics
        ]
    return DescribeShareGroupOffsetsResponseGroup(wanted.group_id, tuple(topics))


def _describe_topic(
    call: Call, group: Group, wanted: DescribeShareGroupOffsetsRequestTopic
) -> DescribeShareGroupOffsetsResponseTopic:
    topic = call.service.broker.topics.catalog.topics.get(wanted.topic_name)
    if topic is not None:
        return _answer(call, group, topic, wanted.partitions)
    return DescribeShareGroupOffsetsResponseTopic(
        wanted.topic_name,
        partitions=tuple(
            DescribeShareGroupOffsetsResponsePartition(
                index,
                _UNKNOWN,
                error_code=Error.UNKNOWN_TOPIC_OR_PARTITION,
                error_message=f"there is no topic {wanted.topic_name!r}",
            )
            for index in wanted.partitions
        ),
    )


def _answer(
    call: Call, group: Group, topic: Topic, indexes: Iterable[int]
) -> DescribeShareGroupOffsetsResponseTopic:
    topics = call.service.broker.topics
    return DescribeShareGroupOffsetsResponseTopic(
        topic.name,
        topic.id,
        tuple(_place(group, index, topics.find(topic.id, index)) for index in indexes),
    )


def _place(
    group: Group, index: int, partition: Partition | None
) -> DescribeShareGroupOffsetsResponsePartition:
    if partition is None:
        return DescribeShareGroupOffsetsResponsePartition(
            index,
            _UNKNOWN,
            error_code=Error.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"there is no partition {index}",
        )
    view = partition.views.get(group.id)
    if view is None:
        return DescribeShareGroupOffsetsResponsePartition(index, _UNKNOWN)
    owed = sum(view.window.count_in(state) for state in range(ACKED))
    return DescribeShareGroupOffsetsResponsePartition(
        index, view.window.start, partition.epoch, owed
    )
