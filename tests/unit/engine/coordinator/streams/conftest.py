"""Short ways to say what an application is made of, and what its instances say."""

from __future__ import annotations

from typing import Any

from headrace.engine.coordinator.rules import GroupRules
from headrace.engine.coordinator.streams.group import StreamsGroup
from headrace.engine.coordinator.streams.values import (
    NOTHING,
    CopartitionGroup,
    Held,
    InternalTopic,
    Status,
    StreamsAnswer,
    StreamsRequest,
    Subtopology,
    Task,
    Topology,
)
from headrace.engine.coordinator.values import GroupError

REBALANCE_MS = 60_000
SESSION_MS = 45_000
# Targets are made at once, and as often as they are due.
AT_ONCE = GroupRules(streams_rebalance_delay_ms=0, streams_assignment_interval_ms=0)
# A repartition topic between the two subtopologies, and state in the second.
COUNTING = Topology(
    0,
    (
        Subtopology("0", ("orders",), ("app-by-region-repartition",)),
        Subtopology(
            "1",
            repartition_source_topics=(InternalTopic("app-by-region-repartition"),),
            changelog_topics=(
                InternalTopic("app-counts-changelog", configs=(("cleanup.policy", "compact"),)),
            ),
        ),
    ),
)


def topics(**sizes: int) -> dict[str, tuple[bytes, int]]:
    """Names are written with underscores where they have hyphens."""
    names = {name.replace("_", "-"): size for name, size in sizes.items()}
    return {name: (name.encode().ljust(16, b"\0"), size) for name, size in names.items()}


def catalog(size: int = 2) -> dict[str, tuple[bytes, int]]:
    """Everything that COUNTING needs."""
    return topics(orders=size, app_by_region_repartition=size, app_counts_changelog=size)


def tasks(*names: str) -> frozenset[Task]:
    """As Kafka writes them: 0_1 is partition 1 of subtopology 0."""
    return frozenset(
        (subtopology, int(partition))
        for subtopology, _, partition in (name.rpartition("_") for name in names)
    )


def joined_topics(*sources: str) -> Topology:
    """One subtopology that reads them together."""
    together = CopartitionGroup(tuple(range(len(sources))))
    return Topology(0, (Subtopology("0", sources, copartition_groups=(together,)),))


class StreamsTalk:
    """A streams group, and members that do at once what they are told, unless a test has
    them say something else."""

    def __init__(
        self, found: dict[str, tuple[bytes, int]] | None = None, rules: GroupRules = AT_ONCE
    ) -> None:
        self.group = StreamsGroup("app", rules=rules)
        self.catalog = catalog() if found is None else found
        self.now_ms = 1_000
        self.epochs: dict[str, int] = {}
        self.held: dict[str, Held] = {}

    def join(self, member_id: str, /, **changes: Any) -> StreamsAnswer:
        request = StreamsRequest(
            member_id,
            0,
            rebalance_timeout_ms=REBALANCE_MS,
            topology=COUNTING,
            owned=NOTHING,
            process_id=f"process of {member_id}",
        )
        return self.send(request._replace(**changes))

    def beat(self, member_id: str, **changes: Any) -> StreamsAnswer:
        """A heartbeat that says what the member has."""
        request = StreamsRequest(
            member_id, self.epochs[member_id], owned=self.held.get(member_id, NOTHING)
        )
        return self.send(request._replace(**changes))

    def leave(self, member_id: str, **changes: Any) -> StreamsAnswer:
        return self.send(StreamsRequest(member_id, -1)._replace(**changes))

    def send(self, request: StreamsRequest) -> StreamsAnswer:
        answer = self.group.on_heartbeat(request, dict(self.catalog), self.now_ms)
        if answer.error is GroupError.NONE:
            self.epochs[answer.member_id] = answer.member_epoch
            if answer.assignment is not None:
                self.held[answer.member_id] = answer.assignment
        return answer

    def settle(self, *member_ids: str) -> None:
        for _ in range(2 * len(member_ids) + 2):
            for member_id in member_ids:
                assert self.beat(member_id).error is GroupError.NONE
        assert self.group.state() == "Stable"

    def wait(self, milliseconds: int) -> list[str]:
        self.now_ms += milliseconds
        return self.group.tick(self.now_ms)


def talk_of(*member_ids: str, size: int = 2, rules: GroupRules = AT_ONCE) -> StreamsTalk:
    """A stable group of these members."""
    talk = StreamsTalk(catalog(size), rules)
    for member_id in member_ids:
        talk.join(member_id)
    talk.settle(*member_ids)
    return talk


def statuses(answer: StreamsAnswer) -> list[Status]:
    return [status for status, _ in answer.statuses]
