"""DescribeProducers, version 0: the producers that a partition remembers, and where
the open transaction of each began."""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.partitions import partition_of
from headrace.wire.kafka.generated.describe_producers_request import DescribeProducersRequest
from headrace.wire.kafka.generated.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name, [_describe(call, topic.name, each) for each in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _describe(call: Call, name: str, index: int) -> PartitionResponse:
    try:
        partition = partition_of(call.service, name, index)
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
