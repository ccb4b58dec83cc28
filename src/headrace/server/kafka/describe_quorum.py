"""DescribeQuorum, versions 0 to 2: who votes on metadata. A node alone is a quorum
of one.

The metadata log goes by Kafka's name for it, which is the only topic this can be
asked about.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from headrace.core.steps import Steps
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.nodes import address_for
from headrace.server.slices import answer
from headrace.wire.kafka.generated.describe_quorum_request import DescribeQuorumRequest
from headrace.wire.kafka.generated.describe_quorum_response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

METADATA_TOPIC = "__cluster_metadata"


def handle(
    call: Call, request: DescribeQuorumRequest
) -> DescribeQuorumResponse | Coroutine[Any, Any, DescribeQuorumResponse]:
    size = sum(1 + len(topic.partitions) for topic in request.topics)
    return answer(size, _describe_all(call, request))


def _describe_all(call: Call, request: DescribeQuorumRequest) -> Steps[DescribeQuorumResponse]:
    service = call.service
    address = address_for(call)
    topics = []
    for name, wanted in request.topics:
        partitions = []
        for (index,) in wanted:
            partitions.append(_describe(call, name, index))
            yield
        topics.append(TopicData(name, partitions))
        yield
    return DescribeQuorumResponse(
        error_message=None,
        topics=topics,
        nodes=(Node(service.node_id, (Listener("PLAINTEXT", address.host, address.port),)),),
    )


def _describe(call: Call, name: str, index: int) -> PartitionData:
    if (name, index) != (METADATA_TOPIC, 0):
        code = Error.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionData(index, code, code.description)
    service = call.service
    metadata, now_ms = call.broker.metadata, service.clock.now_ms()
    # No directory id: the definition takes a UUID, and zero for "not told".
    voter = ReplicaState(
        service.node_id,
        log_end_offset=metadata.log.end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return PartitionData(
        index,
        Error.NONE,
        None,
        service.node_id,
        metadata.catalog.epoch,
        metadata.log.synced_end,
        (voter,),
    )
