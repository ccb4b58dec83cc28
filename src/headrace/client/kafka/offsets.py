"""What a group has committed, by whoever is not a member of it.

    commit_offsets(cluster, "rollup", {("orders", 0): 1200})
    committed_offsets(cluster, "rollup", {"orders": (0, 1)})

A group without members takes commits from anybody; that is how progress that is kept
elsewhere is shown to every tool that knows lag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.client.kafka.cluster import GROUP, KafkaCluster, KafkaError, Place
from headrace.client.kafka.connection import DELETE_GROUPS, OFFSET_COMMIT, OFFSET_FETCH
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.generated.delete_groups_request import DeleteGroupsRequest
from headrace.wire.kafka.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.kafka.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)


def commit_offsets(
    cluster: KafkaCluster, group: str, offsets: Mapping[Place, int], metadata: str = ""
) -> None:
    """`metadata` is written beside each of them."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (name, index), offset in offsets.items():
        topics.setdefault(name, []).append(
            OffsetCommitRequestPartition(index, offset, committed_metadata=metadata)
        )
    request = OffsetCommitRequest(
        group,
        topics=tuple(
            OffsetCommitRequestTopic(name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )

    def attempt() -> None:
        answer = cluster.ask_coordinator(GROUP, group, OFFSET_COMMIT, request)
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    raise KafkaError(partition.error_code, f"committing offsets of {group!r}")

    cluster.persist(attempt, cluster.forget)


class Committed(NamedTuple):
    offset: int
    metadata: str


def committed_offsets(
    cluster: KafkaCluster, group: str, places: Mapping[str, Sequence[int]]
) -> dict[Place, int]:
    """Where nothing is committed, the offset is -1. Waits for transactions that are
    about to change an answer."""
    return {
        place: each.offset for place, each in committed_positions(cluster, group, places).items()
    }


def committed_positions(
    cluster: KafkaCluster, group: str, places: Mapping[str, Sequence[int]]
) -> dict[Place, Committed]:
    """The same with what was written beside the offsets."""
    request = OffsetFetchRequest(
        group,
        tuple(OffsetFetchRequestTopic(name, tuple(each)) for name, each in places.items()),
        (
            OffsetFetchRequestGroup(
                group,
                topics=tuple(
                    OffsetFetchRequestTopics(name, partition_indexes=tuple(each))
                    for name, each in places.items()
                ),
            ),
        ),
        require_stable=True,
    )

    def attempt() -> dict[Place, Committed]:
        answer = cluster.ask_coordinator(GROUP, group, OFFSET_FETCH, request)
        # From version 8 on many groups are asked for at once.
        found = answer.groups[0] if answer.groups else answer
        if found.error_code:
            raise KafkaError(found.error_code, f"looking up offsets of {group!r}")
        offsets = {}
        for topic in found.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    raise KafkaError(partition.error_code, f"looking up offsets of {group!r}")
                offsets[topic.name, partition.partition_index] = Committed(
                    partition.committed_offset, partition.metadata or ""
                )
        return offsets

    return cluster.persist(attempt, cluster.forget)


def delete_group(cluster: KafkaCluster, group: str) -> None:
    """Forget what the group committed. Fine when there is no such group."""

    def attempt() -> None:
        answer = cluster.ask_coordinator(GROUP, group, DELETE_GROUPS, DeleteGroupsRequest((group,)))
        for result in answer.results:
            if result.error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                raise KafkaError(result.error_code, f"removing group {group!r}")

    cluster.persist(attempt, cluster.forget)
