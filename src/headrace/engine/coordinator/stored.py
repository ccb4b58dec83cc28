"""What is written of a group's members, so that they go on after their coordinator started anew.

One record for each member, in the topic of the group's cursors (docs/formats/metadata-log.md):

    classic     when the leader has assigned: the generation as all of its members know it.
                What they agree upon in between, nobody works by yet
    consumer    whenever a member moved or wants something else: what it was granted, and its
                epoch. The target is not written: it is made anew out of that
    streams     as for a consumer group; and what the application is made of, once for all of
                its members, under the id of no member

    a group ──> unwritten() ──> records ──> synced ──> its members are answered
    records ──> restored() ──> the group, whose members have a session's time to be heard of

A member that has left has a record without a value, and a group without members has none: it
costs nothing.

Since members are answered after the sync, none of them knows more than the records say. A
member that the records know and that is gone is missed after its session, like any other.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.engine.coordinator.streams.values import (
    Endpoint,
    Held,
    Task,
    TaskIds,
    Topology,
    by_subtopology,
    one_by_one,
)
from headrace.engine.coordinator.values import Assignment, JoinRequest

# Under which id a streams group's topology is written; no member has it.
TOPOLOGY_KEY: Final = ""


class ClassicSaid(msgspec.Struct, frozen=True, array_like=True):
    """What a member of the classic protocol said of itself when it joined."""

    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int

    @classmethod
    def of(cls, request: JoinRequest) -> ClassicSaid:
        return cls(
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.protocol_type,
            request.protocols,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
        )

    def as_request(self, member_id: str) -> JoinRequest:
        return JoinRequest(
            member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.protocol_type,
            self.protocols,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            requires_known_member_id=False,
            new_member_id=member_id,
        )


class ClassicRecord(msgspec.Struct, frozen=True, array_like=True, tag="classic"):
    """A member of a classic group, in one generation."""

    generation: int
    leads: bool
    protocol: str
    assignment: bytes
    said: ClassicSaid


class ConsumerRecord(msgspec.Struct, frozen=True, array_like=True, tag="consumer"):
    """A member of a group with assignment by the broker."""

    epoch: int
    # The one that it came with: our answer with `epoch` may not have reached it.
    heard_epoch: int
    state: str
    assigned: Assignment
    revoking: Assignment
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    names: tuple[str, ...]
    pattern: str | None
    assignor: str | None
    rebalance_timeout_ms: int
    # Of a member that speaks the classic protocol.
    classic: ClassicSaid | None


class StoredTasks(msgspec.Struct, frozen=True, array_like=True):
    """Tasks of a streams group, as they travel: by subtopology, in order."""

    active: TaskIds
    standby: TaskIds

    @classmethod
    def of(cls, held: Held) -> StoredTasks:
        return cls(by_subtopology(held.active), by_subtopology(held.standby))

    def as_held(self) -> Held:
        return Held(one_by_one(self.active), one_by_one(self.standby))


class StreamsRecord(msgspec.Struct, frozen=True, array_like=True, tag="streams"):
    """A member of a streams group."""

    epoch: int
    # The one that it came with: our answer with `epoch` may not have reached it.
    heard_epoch: int
    state: str
    assigned: StoredTasks
    revoking: StoredTasks
    # At which epoch each active task was granted.
    granted_epochs: tuple[tuple[Task, int], ...]
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    endpoint: Endpoint | None
    client_tags: tuple[tuple[str, str], ...]
    rebalance_timeout_ms: int


class TopologyRecord(msgspec.Struct, frozen=True, array_like=True, tag="topology"):
    """What the members of a streams group have in common."""

    topology: Topology
    standby_replicas: int


StoredMember = ClassicRecord | ConsumerRecord | StreamsRecord | TopologyRecord
# By member id; None of one that is gone.
Unwritten = dict[str, StoredMember | None]

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[StoredMember]] = msgspec.msgpack.Decoder(StoredMember)


def encode_member(member: StoredMember) -> bytes:
    return _encoder.encode(member)


def decode_member(value: bytes) -> StoredMember:
    return _decoder.decode(value)
