"""What goes into the coordinators and what comes out of them: plain values.

A `reply` is a number that the caller chose for a request that may have to wait;
the answer comes out of this or a later input with the same number, exactly once.

    request ──> on_join(reply=7, ...) ──> []                  it waits
    tick(now_ms) ───────────────────────> [Answer(7, ...)]    now it is answered

Error codes are Kafka's own numbers. They are written here once more, and only
those that a coordinator can give, because what a group means does not depend on
how a wire writes it down.

Rejected: futures. They belong to one event loop, and a test or a simulation that
replays a history would have to run one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

# A topic by its id, and one partition of it.
TopicPartition = tuple[bytes, int]
# Partitions by topic, both ascending: the form in which an assignment travels.
Assignment = tuple[tuple[bytes, tuple[int, ...]], ...]
# What the coordinator has to know of the catalog: topic name to id and size.
# A picture of the catalog: it is never changed, a change is a new mapping.
Topics = Mapping[str, tuple[bytes, int]]

# Epochs that are not epochs but wishes.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2

NO_GENERATION = -1


class GroupError(IntEnum):
    NONE = 0
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    INVALID_REGULAR_EXPRESSION = 128
    STREAMS_INVALID_TOPOLOGY = 130


# The classic protocol: the members assign among themselves.


class JoinRequest(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    # In the member's order of preference: name and its metadata for that one.
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # Whether a client without an id is sent back with one first (JoinGroup v4+).
    requires_known_member_id: bool
    # The id that it gets if it needs one; never one that was given out before.
    new_member_id: str
    # Whether the client understands "you lead, but do not assign" (v9+).
    can_skip_assignment: bool = False


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    error: GroupError
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    # Everyone's metadata for the leader, nothing for the others.
    members: tuple[JoinedMember, ...] = ()


class SyncRequest(NamedTuple):
    member_id: str
    group_instance_id: str | None
    generation: int
    # None where the client's version does not say.
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class SyncAnswer(NamedTuple):
    error: GroupError
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Answer(NamedTuple):
    reply: int
    message: JoinAnswer | SyncAnswer


class LeaveOutcome(NamedTuple):
    # One for each member that was named, in that order.
    errors: tuple[GroupError, ...]
    answers: list[Answer]


class ClassicMemberDescription(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class ClassicDescription(NamedTuple):
    state: str
    generation: int
    protocol_type: str
    protocol: str
    members: tuple[ClassicMemberDescription, ...]


# The consumer protocol (KIP-848) and share groups (KIP-932): the broker assigns.


class HeartbeatRequest(NamedTuple):
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    # None and -1 mean: as I said before.
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""


class HeartbeatAnswer(NamedTuple):
    error: GroupError
    message: str | None
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    # None means: unchanged.
    assignment: Assignment | None


class ConsumerMemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    assignment: Assignment
    target_assignment: Assignment
    # Whether it speaks the classic protocol.
    is_classic: bool = False


class ConsumerDescription(NamedTuple):
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberDescription, ...]


class ShareRequest(NamedTuple):
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    subscribed_topic_names: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""


class ShareMemberDescription(NamedTuple):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    assignment: Assignment


class ShareDescription(NamedTuple):
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ShareMemberDescription, ...]


def by_topic(partitions: Iterable[TopicPartition]) -> Assignment:
    """Single partitions as they travel: grouped by topic, in order."""
    grouped: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        grouped.setdefault(topic_id, []).append(partition)
    return tuple((topic_id, tuple(numbers)) for topic_id, numbers in grouped.items())


def one_by_one(assignment: Assignment) -> frozenset[TopicPartition]:
    """The other way round. The same partition twice counts once."""
    return frozenset(
        (topic_id, partition) for topic_id, partitions in assignment for partition in partitions
    )
