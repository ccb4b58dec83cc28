"""Requests that say that another node sends them: as a replica, by its id.

To a replica a leader shows what lies above the high watermark, and by what it asks for a
replica says what it has, which moves the high watermark. So a replica id counts only on a
connection that has proved to be that node. None can yet: whatever names a node is refused
as a whole, whether there is such a node or not, and changes nothing. Ids below 0 are
those of consumers.
"""

from __future__ import annotations

from headrace.core.steps import Steps
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated.fetch_request import FetchRequest
from headrace.wire.kafka.generated.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from headrace.wire.kafka.generated.list_offsets_request import ListOffsetsRequest
from headrace.wire.kafka.generated.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.wire.kafka.generated.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
)
from headrace.wire.kafka.generated.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

REFUSED = Error.CLUSTER_AUTHORIZATION_FAILED


def is_replica(replica_id: int) -> bool:
    return replica_id >= 0


def is_fetch_of_replica(request: FetchRequest) -> bool:
    """Whether in the field of old versions or in that of later ones."""
    return request.replica_id >= 0 or request.replica_state.replica_id >= 0


def refuse_fetch(request: FetchRequest) -> Steps[FetchResponse]:
    """For all of it, and for each partition: the first versions have no code for all."""
    topics = []
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            partitions.append(PartitionData(each.partition, REFUSED, -1, records=b""))
            yield
        topics.append(FetchableTopicResponse(topic.topic, topic.topic_id, partitions))
        yield
    return FetchResponse(error_code=REFUSED, responses=topics)


def refuse_list_offsets(request: ListOffsetsRequest) -> Steps[ListOffsetsResponse]:
    topics = []
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            partitions.append(ListOffsetsPartitionResponse(each.partition_index, REFUSED))
            yield
        topics.append(ListOffsetsTopicResponse(topic.name, partitions))
        yield
    return ListOffsetsResponse(topics=topics)


def refuse_epochs(request: OffsetForLeaderEpochRequest) -> Steps[OffsetForLeaderEpochResponse]:
    topics = []
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            partitions.append(EpochEndOffset(REFUSED, each.partition))
            yield
        topics.append(OffsetForLeaderTopicResult(topic.topic, partitions))
        yield
    return OffsetForLeaderEpochResponse(topics=topics)
