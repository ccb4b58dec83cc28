"""The bodies about groups, their members, statistics and the node; see `bodies`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from headrace.wire.http.bodies import Answer, Body, Index, Name, Names, Offset, ShownMessage

# Groups.


class ShownGroup(Answer):
    name: str
    kind: str
    topics: list[str]
    consumers: list[str]
    settings: dict[str, Any]


class ChangedGroup(Body):
    """Settings of a queue group to change; the others stay."""

    settings: dict[str, Any]


class Groups(Answer):
    groups: list[ShownGroup]
    next: str | None


class PartitionLag(Answer):
    topic: str
    partition: int
    # Where the group is, or where it begins if it is nowhere yet.
    offset: int | None
    end_offset: int
    lag: int


class LagQuery(Body):
    """How many partitions are shown, those furthest behind; all of them unless given."""

    limit: Annotated[int, Meta(ge=1, le=10_000)] | None = None


class GroupLag(Answer):
    group: str
    kind: str
    lag: int
    # Of all its partitions: how many there are, and the sum of their offsets.
    partition_count: int
    position: int
    partitions: list[PartitionLag]


class ResetGroup(Body):
    """Where a stream group goes on: an offset, a moment, or one of the ends."""

    topic: Name
    partition: Index | None = None
    to: Literal["earliest", "latest"] | None = None
    offset: Offset | None = None
    time: str | None = None


# Members of stream groups.


class Subscribe(Body):
    group: Name
    topics: Names
    client_id: str = "http"
    reset: Literal["earliest", "latest", "error"] = "earliest"


class Subscribed(Answer):
    member_id: str
    generation: int
    # For one topic its partitions, otherwise nothing; `assignments` has them all.
    assigned_partitions: list[int]
    assignments: dict[str, list[int]]
    session_seconds: float
    heartbeat_seconds: float


class MemberBody(Body):
    generation: int


class ChangedSubscription(Body):
    topics: list[str]


class Poll(MemberBody):
    count: Annotated[int, Meta(ge=1, le=1000)] = 100
    wait: Annotated[float, Meta(ge=0, le=30)] = 0


class Position(Body):
    topic: Name
    partition: Index
    offset: Offset


class CommitPositions(MemberBody):
    """The offset to go on from, for each partition; without any, what was polled."""

    positions: list[Position] | None = None


class Polled(Answer):
    generation: int
    messages: list[ShownMessage]


# Statistics.


class StatisticsQuery(Body):
    group: str | None = None


class Latency(Answer):
    count: int
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None


class Reliability(Answer):
    group: str
    topics: list[str]
    depth: int
    ready: int
    waiting: int
    leased: int
    retrying: int
    delivered: int
    acked: int
    nacked: int
    lease_expired: int
    dead_lettered: int
    expired: int
    cancelled: int
    oldest: str | None
    rate_in: float
    rate_out: float
    publish_to_lease: Latency
    publish_to_ack: Latency


class ReliabilityStatistics(Answer):
    groups: list[Reliability]


class Delay(Answer):
    group: str
    delayed: int
    retrying: int
    next_due: str | None


class DelayTotals(Answer):
    topic: str
    delivered: int
    cancelled: int
    expired: int


class DelayStatistics(Answer):
    groups: list[Delay]
    topics: list[DelayTotals]


class Lane(Answer):
    priority: str
    ready: int
    leased: int
    retrying: int
    delayed: int
    delivered: int
    last_served: str | None
    oldest: str | None
    rate_in: float
    rate_out: float


class PartitionLanes(Answer):
    topic: str
    partition: int
    lanes: list[Lane]


class GroupLanes(Answer):
    group: str
    lanes: list[Lane]
    partitions: list[PartitionLanes]


class PriorityStatistics(Answer):
    groups: list[GroupLanes]


# The node.


class Health(Answer):
    status: str
    node_id: int
    cluster_id: str
    version: str
    problems: list[str]


class Problem(Answer):
    """What went wrong, as RFC 9457 says it. `code` never changes; `detail` says what
    to do."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retriable: bool
    request_id: str
