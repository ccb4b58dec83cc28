"""DescribeShareGroupOffsets, versions 0 and 1: how far a share group is.

The start offset is the first that is not done; the lag is how many are not done
from there on. A partition that the group does not read has -1 for both. Without
topics, all that the group reads are described.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any

from headrace.core.errors import shortened
from headrace.core.steps import Steps
from headrace.engine.catalog import Group, Topic
from headrace.engine.partition import Partition
from headrace.engine.window import ACKED
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.slices import answer
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
) -> DescribeShareGroupOffsetsResponse | Coroutine[Any, Any, DescribeShareGroupOffsetsResponse]:
    size = sum(1 + _count(call, wanted) for wanted in request.groups)
    return answer(size, _describe_all(call, request))


def _count(call: Call, wanted: DescribeShareGroupOffsetsRequestGroup) -> int:
    if wanted.topics is not None:
        return sum(1 + len(topic.partitions) for topic in wanted.topics)
    group = call.door.shares.group(wanted.group_id)
    by_id = call.broker.topics.catalog.topics_by_id
    topics = () if group is None else group.topics
    return sum(by_id[topic_id].partitions for topic_id in topics if topic_id in by_id)


def _describe_all(
    call: Call, request: DescribeShareGroupOffsetsRequest
) -> Steps[DescribeShareGroupOffsetsResponse]:
    groups = []
    for wanted in request.groups:
        groups.append((yield from _describe(call, wanted)))
        yield
    return DescribeShareGroupOffsetsResponse(groups=groups)


def _describe(
    call: Call, wanted: DescribeShareGroupOffsetsRequestGroup
) -> Steps[DescribeShareGroupOffsetsResponseGroup]:
    group = call.door.shares.group(wanted.group_id)
    if group is None:
        return DescribeShareGroupOffsetsResponseGroup(
            wanted.group_id,
            error_code=Error.GROUP_ID_NOT_FOUND,
            error_message=shortened(f"there is no share group {wanted.group_id!r}"),
        )
    catalog = call.broker.topics.catalog
    topics = []
    if wanted.topics is not None:
        for each in wanted.topics:
            topics.append((yield from _describe_topic(call, group, each)))
    else:
        for topic in [each for each in catalog.topics.values() if each.id in group.topics]:
            topics.append((yield from _answer(call, group, topic, range(topic.partitions))))
    return DescribeShareGroupOffsetsResponseGroup(wanted.group_id, topics)


def _describe_topic(
    call: Call, group: Group, wanted: DescribeShareGroupOffsetsRequestTopic
) -> Steps[DescribeShareGroupOffsetsResponseTopic]:
    topic = call.broker.topics.catalog.topics.get(wanted.topic_name)
    if topic is not None:
        return (yield from _answer(call, group, topic, wanted.partitions))
    partitions = []
    why = shortened(f"there is no topic {wanted.topic_name!r}")
    for index in wanted.partitions:
        code = Error.UNKNOWN_TOPIC_OR_PARTITION
        partitions.append(
            DescribeShareGroupOffsetsResponsePartition(
                index, _UNKNOWN, error_code=code, error_message=why
            )
        )
        yield
    return DescribeShareGroupOffsetsResponseTopic(wanted.topic_name, partitions=partitions)


def _answer(
    call: Call, group: Group, topic: Topic, indexes: Iterable[int]
) -> Steps[DescribeShareGroupOffsetsResponseTopic]:
    topics = call.broker.topics
    partitions = []
    for index in indexes:
        partitions.append(_place(group, index, topics.find(topic.id, index)))
        yield
    return DescribeShareGroupOffsetsResponseTopic(topic.name, topic.id, partitions)


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
