"""The roster: the members of one classic group, and what they have in common.

    members       in the order in which they came; the first is the first leader
    instances     static members: the name that survives a restart, to member id
    protocols     what every member supports, and the one most of them prefer

The roster decides nothing about time or states; that is the group's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headrace.engine.coordinator.sizes import protocols_bytes, text_bytes
from headrace.engine.coordinator.stored import ClassicRecord, ClassicSaid
from headrace.engine.coordinator.subscription import same_subscription, subscribed_topics
from headrace.engine.coordinator.values import (
    Answer,
    ClassicMemberDescription,
    GroupError,
    JoinAnswer,
    JoinedMember,
    JoinRequest,
    SyncAnswer,
)

CONSUMER_PROTOCOL_TYPE = "consumer"

Protocols = tuple[tuple[str, bytes], ...]


class ClassicMember:
    """One member. `joining` and `syncing` are the replies that wait, if any."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "expires_ms",
        "instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(self, member_id: str, request: JoinRequest) -> None:
        self.member_id = member_id
        self.instance_id = request.group_instance_id
        self.assignment = b""
        self.joining: int | None = None
        self.syncing: int | None = None
        # A new member has no answer yet, so it cannot know that it should send
        # heartbeats, and its client may be gone.
        self.is_new = True
        self.expires_ms = 0
        self.update(request)

    def update(self, request: JoinRequest) -> None:
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.protocols: Protocols = request.protocols
        self.session_timeout_ms = request.session_timeout_ms
        # The oldest clients know one timeout only.
        self.rebalance_timeout_ms = (
            request.rebalance_timeout_ms
            if request.rebalance_timeout_ms > 0
            else request.session_timeout_ms
        )

    def as_request(self, protocol_type: str) -> JoinRequest:
        """What it would say if it joined now."""
        return JoinRequest(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            protocol_type,
            self.protocols,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            requires_known_member_id=False,
            new_member_id=self.member_id,
        )

    def size_bytes(self) -> int:
        """Of what it said of itself, and was assigned."""
        said = text_bytes(self.member_id, self.instance_id, self.client_id, self.client_host)
        return said + protocols_bytes(self.protocols) + len(self.assignment)

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def end_join(self, message: JoinAnswer) -> list[Answer]:
        """Answer the join that waits, if there is one."""
        reply, self.joining = self.joining, None
        return [] if reply is None else [Answer(reply, message)]

    def end_sync(self, message: SyncAnswer) -> list[Answer]:
        reply, self.syncing = self.syncing, None
        return [] if reply is None else [Answer(reply, message)]

    def session_counts(self) -> bool:
        """Whether silence ends the membership. Who waits for our answer is not
        silent; but of a new member nobody knows whether it still waits."""
        return self.is_new or (self.joining is None and self.syncing is None)


class Roster:
    def __init__(self) -> None:
        self._members: dict[str, ClassicMember] = {}
        self._instances: dict[str, str] = {}
        # How many members support each protocol, so that a join does not have
        # to ask every other member.
        self._supporters: Counter[str] = Counter()
        self.leader: str | None = None
        self.protocol_type: str | None = None

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(list(self._members.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> ClassicMember | None:
        return self._members.get(member_id)

    def static_member(self, instance_id: str | None) -> ClassicMember | None:
        if instance_id is None or instance_id not in self._instances:
            return None
        return self._members[self._instances[instance_id]]

    def find(self, member_id: str, instance_id: str | None) -> ClassicMember | GroupError:
        """The member, or why the caller is not it: it is unknown, or another
        process took over its instance id."""
        if instance_id is not None:
            holder = self._instances.get(instance_id)
            if holder is None:
                return GroupError.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return GroupError.FENCED_INSTANCE_ID
        return self._members.get(member_id, GroupError.UNKNOWN_MEMBER_ID)

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self._members:
            self.protocol_type = protocol_type
            self._supporters.clear()
        self._members[member.member_id] = member
        self._supporters.update(_names(member.protocols))
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def update(self, member: ClassicMember, request: JoinRequest) -> None:
        self._supporters.subtract(_names(member.protocols))
        member.update(request)
        self._supporters.update(_names(member.protocols))

    def remove(self, member: ClassicMember) -> None:
        del self._members[member.member_id]
        self._supporters.subtract(_names(member.protocols))
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        if self.leader == member.member_id:
            self.leader = None

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """Put `new` in the place of `old`: its turn, its work, its leadership."""
        assert old.instance_id is not None and old.instance_id == new.instance_id
        new.assignment = old.assignment
        self._supporters.subtract(_names(old.protocols))
        self._supporters.update(_names(new.protocols))
        self._members = {
            (new.member_id if member is old else member_id): (new if member is old else member)
            for member_id, member in self._members.items()
        }
        self._instances[old.instance_id] = new.member_id
        if self.leader == old.member_id:
            self.leader = new.member_id

    def all_joined(self) -> bool:
        return all(member.joining is not None for member in self._members.values())

    def elect(self) -> bool:
        """Keep the leader if it joined, else take the first that did. False
        when nobody did."""
        leader = self._members.get(self.leader or "")
        if leader is None or leader.joining is None:
            joined = (m.member_id for m in self._members.values() if m.joining is not None)
            self.leader = next(joined, None)
        return self.leader is not None

    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self._members.values()), default=1)

    # Protocols.

    def supports(self, request: JoinRequest) -> bool:
        """Whether somebody with these protocols can work with all the others."""
        if not request.protocol_type or not request.protocols:
            return False
        held = self.static_member(request.group_instance_id) or self.get(request.member_id)
        others = len(self._members) - (held is not None)
        if not others:
            return True
        own = _names(held.protocols) if held is not None else frozenset()
        return request.protocol_type == self.protocol_type and any(
            self._supporters[name] - (name in own) == others for name, _ in request.protocols
        )

    def select_protocol(self) -> str:
        """Each member votes for the first on its list that all support; a tie
        goes to the one that was voted for first, by the eldest member."""
        common = {n for n, count in self._supporters.items() if count == len(self._members)}
        votes = Counter(
            next(name for name, _ in member.protocols if name in common)
            for member in self._members.values()
        )
        return votes.most_common(1)[0][0]

    def is_unchanged(self, member: ClassicMember, protocols: Protocols) -> bool:
        """Whether a member that came back would do the same work as before."""
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE:
            return same_subscription(member.protocols, protocols)
        return member.protocols == protocols

    def subscribed_topics(self, protocol: str | None) -> frozenset[str] | None:
        """Every topic that some member reads; None where one does not say."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self._members.values():
            metadata = member.metadata(protocol) if protocol else member.protocols[0][1]
            subscribed = subscribed_topics(metadata)
            if subscribed is None:
                return None
            topics |= subscribed
        return frozenset(topics)

    def known(self) -> list[tuple[JoinRequest, bytes, int]]:
        """Every member that knows it is one: what it would say if it joined now, what it was
        assigned, and when its session ends."""
        kind = self.protocol_type or ""
        known = [member for member in self._members.values() if not member.is_new]
        return [(each.as_request(kind), each.assignment, each.expires_ms) for each in known]

    # What is written down.

    def records(self, generation: int, protocol: str) -> Iterator[tuple[str, ClassicRecord]]:
        """Everyone, in this generation."""
        for member_id, member in self._members.items():
            leads = member_id == self.leader
            said = ClassicSaid.of(member.as_request(self.protocol_type or ""))
            yield member_id, ClassicRecord(generation, leads, protocol, member.assignment, said)

    def restore(self, member_id: str, record: ClassicRecord) -> ClassicMember:
        member = ClassicMember(member_id, record.said.as_request(member_id))
        member.is_new = False
        member.assignment = record.assignment
        self.add(member, record.said.protocol_type)
        if record.leads:
            self.leader = member_id
        return member

    # What others are shown.

    def join_answer(
        self, member: ClassicMember, generation: int, protocol: str | None
    ) -> JoinAnswer:
        leads = member.member_id == self.leader
        return JoinAnswer(
            GroupError.NONE,
            member.member_id,
            generation,
            self.protocol_type,
            protocol,
            self.leader or "",
            members=self._joined(protocol) if leads else (),
        )

    def _joined(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self._members.values()
        )

    def describe(self, protocol: str | None) -> tuple[ClassicMemberDescription, ...]:
        """With what they do under this protocol; without one, who they are."""
        return tuple(
            ClassicMemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(protocol),
                b"" if protocol is None else member.assignment,
            )
            for member in self._members.values()
        )


def _names(protocols: Protocols) -> frozenset[str]:
    return frozenset(name for name, _ in protocols)
