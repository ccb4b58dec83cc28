"""The topology against the catalog: how many tasks there are, and which topics are missing.

    source topics are there? ── no ──> MISSING_SOURCE_TOPICS
        |
        v
    repartition topics: what the application says, or as many partitions as the largest
        |               topic has that is read where they are written
        v
    copartitioned topics: sources are equal, or else INCORRECTLY_PARTITIONED_TOPICS;
        |                 repartition topics follow them
        v
    changelog topics: as many partitions as their subtopology has tasks
        |
        v
    those that exist have that many? ── no ──> INCORRECTLY_PARTITIONED_TOPICS
        |
        v
    all of them exist? ── no ──> MISSING_INTERNAL_TOPICS, and which to make
        |
        v
      ready: every subtopology has a task for each partition of its largest topic

What no catalog can cure, such as a repartition topic that nothing writes to, is an
InvalidTopology.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.core import limits
from headrace.engine.coordinator.streams.values import (
    InternalTopic,
    Status,
    Subtopology,
    Topology,
)
from headrace.engine.coordinator.values import Topics

# How many names a message has before it says how many more there are.
_NAMES_SHOWN = 3


class InvalidTopology(Exception):
    """No broker could run it; says why."""


class _Unmet(Exception):
    """The catalog does not have what the topology needs."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Configured(NamedTuple):
    """What the catalog makes of a topology. Without a problem, it is ready."""

    # By subtopology; empty while that is not known.
    task_counts: Mapping[str, int]
    problem: tuple[Status, str] | None = None
    # Partitions of internal topics, as they are or should be.
    sizes: Mapping[str, int] = {}
    missing: tuple[InternalTopic, ...] = ()

    @property
    def is_ready(self) -> bool:
        return self.problem is None


def check(topology: Topology) -> None:
    """InvalidTopology if it contradicts itself or is too large to keep."""
    if len(topology.subtopologies) > limits.STREAMS_SUBTOPOLOGIES_MAX:
        raise InvalidTopology(
            f"{len(topology.subtopologies)} subtopologies, "
            f"and {limits.STREAMS_SUBTOPOLOGIES_MAX} are the most allowed"
        )
    names = sum(
        len(each.read_topics()) + len(each.repartition_sink_topics) + len(each.changelog_topics)
        for each in topology.subtopologies
    )
    if names > limits.STREAMS_TOPICS_MAX:
        raise InvalidTopology(
            f"{names} topics, and {limits.STREAMS_TOPICS_MAX} are the most allowed"
        )
    if topology_bytes(topology) > limits.MEMBER_BYTES_MAX:
        raise InvalidTopology(f"it takes more than {limits.MEMBER_BYTES_MAX} bytes to say")
    ids = Counter(each.id for each in topology.subtopologies)
    twice = [id_ for id_, times in ids.items() if times > 1]
    if twice:
        raise InvalidTopology(f"the subtopology {twice[0]} is there twice")
    for each in topology.subtopologies:
        _check_subtopology(each)


def _check_subtopology(subtopology: Subtopology) -> None:
    if not subtopology.read_topics():
        raise InvalidTopology(f"the subtopology {subtopology.id} reads no topic")
    for topic in subtopology.changelog_topics:
        if topic.partitions != 0:
            raise InvalidTopology(
                f"the changelog topic {topic.name} must leave its number of partitions to the "
                f"broker, and asks for {topic.partitions}"
            )
    for topic in subtopology.repartition_source_topics:
        if topic.partitions < 0:
            raise InvalidTopology(
                f"the repartition topic {topic.name} asks for {topic.partitions} partitions"
            )
    sources = len(subtopology.source_topics)
    repartitions = len(subtopology.repartition_source_topics)
    for group in subtopology.copartition_groups:
        if not all(0 <= index < sources for index in group.source_topics) or not all(
            0 <= index < repartitions for index in group.repartition_source_topics
        ):
            raise InvalidTopology(
                f"a copartition group of subtopology {subtopology.id} names a topic that it "
                "does not read"
            )


def configure(topology: Topology, topics: Topics) -> Configured:
    """`topology` has passed `check`. InvalidTopology if it cannot be worked out."""
    try:
        _check_sources(topology, topics)
        sizes = _Sizes(topology, topics)
        task_counts = {each.id: sizes.largest(each) for each in topology.subtopologies}
        if sum(task_counts.values()) > limits.STREAMS_TASKS_MAX:
            raise InvalidTopology(
                f"{sum(task_counts.values())} tasks, "
                f"and {limits.STREAMS_TASKS_MAX} are the most allowed"
            )
        missing = _missing(topology, topics, sizes.wanted)
    except _Unmet as unmet:
        return Configured({}, (unmet.status, str(unmet)))
    problem = None
    if missing:
        names = _listed(topic.name for topic in missing)
        problem = (Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return Configured(task_counts, problem, sizes.wanted, missing)


def required_topics(topology: Topology) -> frozenset[str]:
    """Every topic whose size or absence makes a difference."""
    return frozenset(
        name
        for each in topology.subtopologies
        for name in (*each.read_topics(), *(topic.name for topic in each.changelog_topics))
    )


def with_sizes(topology: Topology, sizes: Mapping[str, int]) -> Topology:
    """The topology with the partitions that internal topics have, where they are known."""

    def sized(internal: tuple[InternalTopic, ...]) -> tuple[InternalTopic, ...]:
        return tuple(
            each._replace(partitions=sizes.get(each.name, each.partitions)) for each in internal
        )

    return topology._replace(
        subtopologies=tuple(
            each._replace(
                repartition_source_topics=sized(each.repartition_source_topics),
                changelog_topics=sized(each.changelog_topics),
            )
            for each in topology.subtopologies
        )
    )


def topology_bytes(topology: Topology) -> int:
    """About what it takes to keep one."""
    return sum(
        len(each.id)
        + sum(map(len, (*each.read_topics(), *each.repartition_sink_topics)))
        + sum(len(name) for name, *_ in each.changelog_topics)
        + sum(
            len(key) + len(value)
            for topic in (*each.changelog_topics, *each.repartition_source_topics)
            for key, value in topic.configs
        )
        + sum(map(len, each.copartition_groups))
        for each in topology.subtopologies
    )


def _check_sources(topology: Topology, topics: Topics) -> None:
    missing = {
        name for each in topology.subtopologies for name in each.source_topics if name not in topics
    }
    if missing:
        raise _Unmet(
            Status.MISSING_SOURCE_TOPICS, f"Source topics {_listed(sorted(missing))} are missing."
        )


class _Sizes:
    """Numbers of partitions, worked out from what is there."""

    def __init__(self, topology: Topology, topics: Topics) -> None:
        self._subtopologies = topology.subtopologies
        self._topics = topics
        # Of internal topics: as many partitions as they should have.
        self.wanted: dict[str, int] = {}
        self._fixed = {
            topic.name: topic.partitions
            for each in topology.subtopologies
            for topic in each.repartition_source_topics
            if topic.partitions
        }
        self._repartitions = {
            topic.name
            for each in topology.subtopologies
            for topic in each.repartition_source_topics
        }
        self._size_repartitions()
        for each in topology.subtopologies:
            for group in each.copartition_groups:
                names = {each.source_topics[index] for index in group.source_topics}
                names.update(
                    each.repartition_source_topics[index].name
                    for index in group.repartition_source_topics
                )
                self._level(names)
        for each in topology.subtopologies:
            for topic in each.changelog_topics:
                self.wanted[topic.name] = self.largest(each)

    def of(self, name: str) -> int:
        """What the topic has, or should have if it is not there."""
        found = self._topics.get(name)
        return self.wanted[name] if found is None else found[1]

    def largest(self, subtopology: Subtopology) -> int:
        return max(map(self.of, subtopology.read_topics()))

    def _size_repartitions(self) -> None:
        """A topic is sized once those are that its writer reads; round by round, since
        writers may read repartition topics themselves."""
        self.wanted.update(self._fixed)
        unsized = [
            (each, sink)
            for each in self._subtopologies
            for sink in each.repartition_sink_topics
            if sink not in self.wanted
        ]
        while unsized:
            left = []
            for subtopology, sink in unsized:
                size = self._source_size(subtopology)
                if size is None:
                    left.append((subtopology, sink))
                else:
                    self.wanted.setdefault(sink, size)
            if len(left) == len(unsized):
                raise InvalidTopology(
                    "the numbers of partitions of repartition topics depend on one another in "
                    f"a circle: {_listed(sorted({sink for _, sink in left}))}"
                )
            unsized = left
        unwritten = sorted(self._repartitions - self.wanted.keys())
        if unwritten:
            raise InvalidTopology(f"nothing writes to the repartition topics {_listed(unwritten)}")

    def _source_size(self, subtopology: Subtopology) -> int | None:
        sizes = [self._topics[name][1] for name in subtopology.source_topics]
        sizes += [
            self.wanted[topic.name]
            for topic in subtopology.repartition_source_topics
            if topic.name in self.wanted
        ]
        return max(sizes, default=None)

    def _level(self, names: set[str]) -> None:
        """Have the repartition topics among these follow the others."""
        followers = sorted(names & self._repartitions)
        leaders = sorted(names - self._repartitions) or [
            name for name in followers if name in self._fixed
        ]
        if leaders:
            size = self.of(leaders[0])
            if any(self.of(name) != size for name in leaders):
                raise _Unmet(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    "Following topics do not have the same number of partitions: "
                    + ", ".join(f"{name} has {self.of(name)}" for name in leaders),
                )
        else:
            size = max(map(self.of, followers), default=0)
        for name in followers:
            if name in self._fixed and self.of(name) != size:
                raise _Unmet(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{self.of(name)}] of repartition topic [{name}] doesn't "
                    f"match number of partitions [{size}] of the source topic.",
                )
            self.wanted[name] = size


def _missing(
    topology: Topology, topics: Topics, wanted: Mapping[str, int]
) -> tuple[InternalTopic, ...]:
    missing = {}
    for topic in topology.internal_topics():
        size = wanted[topic.name]
        found = topics.get(topic.name)
        if found is None:
            missing[topic.name] = topic._replace(partitions=size)
        elif found[1] != size:
            raise _Unmet(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {topic.name} has different number of partitions: "
                f"expected {size}, found {found[1]}",
            )
    return tuple(missing[name] for name in sorted(missing))


def _listed(names: Iterable[str]) -> str:
    all_names = list(names)
    shown = ", ".join(all_names[:_NAMES_SHOWN])
    more = len(all_names) - _NAMES_SHOWN
    return f"{shown} and {more} additional topics" if more > 0 else shown
