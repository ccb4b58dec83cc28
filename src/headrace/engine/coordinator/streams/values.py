"""What goes into a streams group and what comes out of it: plain values.

    topology        what the application is made of: subtopologies that read topics, with
                    the internal topics between and beside them
    task            one subtopology at work on one partition of its topics
    active          the task is processed here
    standby         a copy of its state is kept here, for the day its process is gone

Names of topics that the broker makes for the application:

    repartition     between two subtopologies: one writes to it, another reads it
    changelog       beside a subtopology: every change of its state

The wire has a third kind of task, warm-ups, and Kafka 4.3 gives out none; so there are
none here.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from headrace.engine.coordinator.values import GroupError

# A subtopology by its id, and a partition of what it reads.
Task = tuple[str, int]
# Tasks by subtopology, both ascending: the form in which they travel.
TaskIds = tuple[tuple[str, tuple[int, ...]], ...]

NO_TASKS: frozenset[Task] = frozenset()


class InternalTopic(NamedTuple):
    name: str
    # 0 leaves the number to the broker.
    partitions: int = 0
    # 0 is the broker's default.
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Topics that need equal numbers of partitions, as indexes into the subtopology's lists."""

    source_topics: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


class Subtopology(NamedTuple):
    id: str
    source_topics: tuple[str, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    changelog_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    def read_topics(self) -> tuple[str, ...]:
        """Everything that its tasks read."""
        return (*self.source_topics, *(each.name for each in self.repartition_source_topics))


class Topology(NamedTuple):
    epoch: int
    subtopologies: tuple[Subtopology, ...]

    def internal_topics(self) -> list[InternalTopic]:
        return [
            topic
            for each in self.subtopologies
            for topic in (*each.repartition_source_topics, *each.changelog_topics)
        ]


class Status(IntEnum):
    """What keeps a group from working, or what its members have to do."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Held(NamedTuple):
    """The tasks that one member has, or should have."""

    active: frozenset[Task] = NO_TASKS
    standby: frozenset[Task] = NO_TASKS


NOTHING = Held()


class Endpoint(NamedTuple):
    """Where an instance answers questions about its state."""

    host: str
    port: int


class EndpointPartitions(NamedTuple):
    """The partitions whose state is found at an endpoint, by topic."""

    endpoint: Endpoint
    active: TaskIds
    standby: TaskIds


class StreamsRequest(NamedTuple):
    member_id: str
    member_epoch: int
    # The newest news of endpoints that the member has.
    endpoint_epoch: int = -1
    rack_id: str | None = None
    # None and -1 mean: as I said before.
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    owned: Held | None = None
    process_id: str | None = None
    endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] | None = None
    shuts_down: bool = False
    client_id: str = ""
    client_host: str = ""


class StreamsAnswer(NamedTuple):
    error: GroupError
    message: str | None
    member_id: str
    member_epoch: int
    statuses: tuple[tuple[Status, str], ...] = ()
    # None means: unchanged.
    assignment: Held | None = None
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    # Internal topics that are not there, with as many partitions as they need: the
    # caller's to make.
    missing: tuple[InternalTopic, ...] = ()


class StreamsMemberDescription(NamedTuple):
    member_id: str
    member_epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    endpoint: Endpoint | None
    client_tags: tuple[tuple[str, str], ...]
    assignment: Held
    target_assignment: Held


class StreamsDescription(NamedTuple):
    state: str
    group_epoch: int
    assignment_epoch: int
    # With the numbers of partitions that internal topics have, where they are known.
    topology: Topology | None
    members: tuple[StreamsMemberDescription, ...]


def by_subtopology(tasks: Iterable[Task]) -> TaskIds:
    """Single tasks as they travel: grouped by subtopology, in order."""
    grouped: dict[str, list[int]] = {}
    for subtopology, partition in sorted(tasks):
        grouped.setdefault(subtopology, []).append(partition)
    return tuple((subtopology, tuple(numbers)) for subtopology, numbers in grouped.items())


def one_by_one(tasks: TaskIds) -> frozenset[Task]:
    return frozenset(
        (subtopology, partition) for subtopology, partitions in tasks for partition in partitions
    )
