"""Which partitions tasks read; and so where the state of each is found, which is what
interactive queries go by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.engine.coordinator.streams.member import StreamsMember
from headrace.engine.coordinator.streams.values import (
    EndpointPartitions,
    Task,
    TaskIds,
    Topology,
)


def partitions_by_endpoint(
    members: Iterable[StreamsMember],
    topology: Topology | None,
    found: Mapping[str, tuple[bytes, int]],
) -> tuple[EndpointPartitions, ...]:
    """One entry for each member that has an endpoint. `found` are the topics that exist."""
    subtopologies = () if topology is None else topology.subtopologies
    read = {each.id: each.read_topics() for each in subtopologies}
    return tuple(
        EndpointPartitions(
            member.endpoint,
            partitions_read(member.assigned.active, read, found),
            partitions_read(member.assigned.standby, read, found),
        )
        for member in members
        if member.endpoint is not None
    )


def partitions_read(
    tasks: Iterable[Task],
    read: Mapping[str, tuple[str, ...]],
    found: Mapping[str, tuple[bytes, int]],
) -> TaskIds:
    """What these tasks read, by topic; `read` are the topics of each subtopology. A topic may
    have fewer partitions than there are tasks."""
    partitions: dict[str, list[int]] = {}
    for subtopology, partition in sorted(tasks):
        for topic in read.get(subtopology, ()):
            if topic in found and partition < found[topic][1]:
                partitions.setdefault(topic, []).append(partition)
    return tuple((topic, tuple(numbers)) for topic, numbers in sorted(partitions.items()))


def tasks_that_read(
    partitions: Iterable[tuple[str, int]], topology: Topology | None
) -> frozenset[Task] | None:
    """The tasks that read these partitions; None if no task reads one of them."""
    subtopologies = () if topology is None else topology.subtopologies
    reader = {name: each.id for each in subtopologies for name in each.read_topics()}
    tasks = set()
    for topic, partition in partitions:
        if topic not in reader:
            return None
        tasks.add((reader[topic], partition))
    return frozenset(tasks)
