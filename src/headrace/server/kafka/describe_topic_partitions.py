"""DescribeTopicPartitions, version 0: topics in pages of partitions.

Topics come by name, ascending; none named means all, of the node's
own those that Kafka has. A page holds
at most as many partitions as the request or the node allows; `next_cursor` is the
first that did not fit, and the next request sends it back.

Lists are never null here, whatever the definition allows: Kafka's own client takes
a null one for an error of its own.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from headrace.core.errors import InvalidName
from headrace.core.steps import Steps
from headrace.core.values import check_name
from headrace.engine.catalog import Topic
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.names import find_topic, is_listed, kafka_name
from headrace.server.kafka.nodes import TOPIC_OPERATIONS
from headrace.server.slices import answer
from headrace.wire.kafka.generated.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
)
from headrace.wire.kafka.generated.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

PARTITIONS_MAX = 2_000


def handle(
    call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse | Coroutine[Any, Any, DescribeTopicPartitionsResponse]:
    return answer(
        min(request.response_partition_limit, PARTITIONS_MAX) + len(request.topics),
        _describe_page(call, request),
    )


def _describe_page(
    call: Call, request: DescribeTopicPartitionsRequest
) -> Steps[DescribeTopicPartitionsResponse]:
    catalog = call.broker.topics.catalog
    names = sorted({topic.name for topic in request.topics})
    if not names:
        names = sorted(kafka_name(topic) for topic in catalog.topics.values() if is_listed(topic))
    after = request.cursor
    left = min(max(request.response_partition_limit, 1), PARTITIONS_MAX)
    described: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        yield
        if after is not None and name < after.topic_name:
            continue
        first = 0
        if after is not None and name == after.topic_name:
            first = max(after.partition_index, 0)
        if not left:
            return DescribeTopicPartitionsResponse(0, described, Cursor(name, first))
        topic = find_topic(catalog, name)
        if topic is None:
            described.append(_unknown(name))
            continue
        end = min(topic.partitions, first + left)
        described.append((yield from _describe(call, topic, first, end)))
        left -= max(end - first, 0)
        if end < topic.partitions:
            return DescribeTopicPartitionsResponse(0, described, Cursor(name, end))
    return DescribeTopicPartitionsResponse(0, described)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = Error.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name("topic", name)
    except InvalidName:
        code = Error.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(code, name)


def _describe(
    call: Call, topic: Topic, first: int, end: int
) -> Steps[DescribeTopicPartitionsResponseTopic]:
    node = (call.service.node_id,)
    partitions = []
    for index in range(first, end):
        # Gone, when the topic was deleted meanwhile.
        found = call.broker.topics.find(topic.id, index)
        if found is not None:
            partitions.append(
                DescribeTopicPartitionsResponsePartition(
                    Error.NONE, index, node[0], found.epoch, node, node, (), ()
                )
            )
        yield
    return DescribeTopicPartitionsResponseTopic(
        Error.NONE,
        kafka_name(topic),
        topic.id,
        topic.is_internal,
        partitions,
        TOPIC_OPERATIONS,
    )
