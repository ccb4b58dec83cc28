"""DescribeProducers, version 0: the producers that a partition remembers, and where
the open transaction of each began."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from headrace.core.errors import HeadraceError
from headrace.core.steps import Steps
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.partitions import led_partition_of
from headrace.server.slices import answer
from headrace.wire.kafka.generated.describe_producers_request import DescribeProducersRequest
from headrace.wire.kafka.generated.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(
    call: Call, request: DescribeProducersRequest
) -> DescribeProducersResponse | Coroutine[Any, Any, DescribeProducersResponse]:
    size = sum(len(topic.partition_indexes) for topic in request.topics)
    return answer(size, _describe_all(call, request))


def _describe_all(
    call: Call, request: DescribeProducersRequest
) -> Steps[DescribeProducersResponse]:
    topics = []
    for topic in request.topics:
        found = []
        for index in topic.partition_indexes:
            found.append(_describe(call, topic.name, index))
            yield
        topics.append(TopicResponse(topic.name, found))
    return DescribeProducersResponse(topics=topics)


def _describe(call: Call, name: str, index: int) -> PartitionResponse:
    try:
        partition = led_partition_of(call.service, name, index)
    except HeadraceError as error:
        return PartitionResponse(index, code_of(error), str(error))
    return PartitionResponse(
        index,
        Error.NONE,
        None,
        [
            ProducerState(
                each.producer_id,
                each.epoch,
                each.last_sequence,
                each.last_timestamp_ms,
                each.coordinator_epoch,
                each.transaction_first_offset,
            )
            for each in partition.producers.active()
        ],
    )
