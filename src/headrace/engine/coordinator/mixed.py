"""Consumer groups with members of both protocols, and the way from one to the other.

A fleet changes its protocol by a rolling restart, so for a while a group has both kinds:

    classic group ── a member of KIP-848 joins ──> `upgraded`: the broker assigns
    consumer group ─ its last such member goes ──> `downgraded`: members assign

In between, a member of the classic protocol lives by its own requests, and the group
answers them out of what it knows of every member:

    JoinGroup    what it wants and has; one step of reconciliation. The generation is its
                 epoch, and nobody leads, so nobody assigns
    SyncGroup    what it is assigned
    Heartbeat    REBALANCE_IN_PROGRESS when it should join again: for a new target, to say
                 that it gave up what it should, or because what it waits for is free
    LeaveGroup   goes

Nothing waits here: each is answered at once. Who was told to join again and does not
within its rebalance timeout is dropped, as in a classic group.

A group goes over with what everyone has, so members keep reading until they are told of a
new target, and no partition is given to a second one before the first let go of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.engine.coordinator.assignment_bytes import (
    NamedPartition,
    NoConsumer,
    assigned_partitions,
    encode_assignment,
    owned_partitions,
    version_of,
)
from headrace.engine.coordinator.classic import ClassicGroup
from headrace.engine.coordinator.consumer import ConsumerGroup
from headrace.engine.coordinator.reconciliation import AWAITING, NOTHING, REVOKING, ConsumerMember
from headrace.engine.coordinator.roster import CONSUMER_PROTOCOL_TYPE, ClassicMember
from headrace.engine.coordinator.rules import GroupRules
from headrace.engine.coordinator.subscription import subscribed_topics
from headrace.engine.coordinator.values import (
    GroupError,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
    TopicPartition,
    Topics,
)


class MixedGroup(ConsumerGroup):
    """A consumer group that takes members of the classic protocol too."""

    def __init__(self, name: str, *, epoch: int = 0) -> None:
        super().__init__(name, epoch=epoch)
        self._rules = GroupRules()

    def obey(self, rules: GroupRules) -> None:
        super().obey(rules)
        self._rules = rules

    def has_only_classic(self) -> bool:
        """Whether there are members, and none of them is of KIP-848."""
        members = self._members.values()
        return bool(members) and all(member.classic is not None for member in members)

    # Inputs of the classic protocol.

    def on_join(self, request: JoinRequest, topics: Topics, now_ms: int) -> JoinAnswer:
        try:
            refusal = self._refuse_join(request)
            if refusal is not GroupError.NONE:
                return JoinAnswer(refusal, request.member_id)
            is_new = not request.member_id and request.group_instance_id is None
            if is_new and request.requires_known_member_id:
                return JoinAnswer(GroupError.MEMBER_ID_REQUIRED, request.new_member_id)
            owned = owned_partitions(request.protocols[0][1])
        except NoConsumer:
            return JoinAnswer(GroupError.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        stranger = self._refuse_stranger(request, has_some=bool(owned))
        if stranger is not GroupError.NONE:
            return JoinAnswer(stranger, request.member_id)
        member = self._seat(request)
        self._step(member, request, _by_id(owned, topics), topics, now_ms)
        return JoinAnswer(
            GroupError.NONE,
            member.member_id,
            member.epoch,
            CONSUMER_PROTOCOL_TYPE,
            request.protocols[0][0],
        )

    def on_sync(self, request: SyncRequest, topics: Topics, now_ms: int) -> SyncAnswer:
        member = self._find_classic(
            request.member_id, request.group_instance_id, request.generation
        )
        if isinstance(member, GroupError):
            return SyncAnswer(member)
        assert member.classic is not None
        protocol, metadata = member.classic.protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or (
            request.protocol_name not in (None, protocol)
        ):
            return SyncAnswer(GroupError.INCONSISTENT_GROUP_PROTOCOL)
        self._hear(member, now_ms)
        if member.epoch < self.group_epoch and member.state != REVOKING:
            return SyncAnswer(self._call_back(member, now_ms))
        assignment = encode_assignment(version_of(metadata), _by_name(member.assigned, topics))
        return SyncAnswer(GroupError.NONE, CONSUMER_PROTOCOL_TYPE, protocol, assignment)

    def on_classic_heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> GroupError:
        member = self._find_classic(member_id, instance_id, generation)
        if isinstance(member, GroupError):
            return member
        self._hear(member, now_ms)
        missing = self._target.get(member.member_id, NOTHING) - member.assigned
        if (
            member.epoch < self.group_epoch
            or member.state == REVOKING
            or (member.state == AWAITING and any(each not in self._holders for each in missing))
        ):
            return self._call_back(member, now_ms)
        return GroupError.NONE

    # What they are made of.

    def _refuse_join(self, request: JoinRequest) -> GroupError:
        rules = self._rules
        if not rules.session_ms_min <= request.session_timeout_ms <= rules.session_ms_max:
            return GroupError.INVALID_SESSION_TIMEOUT
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not request.protocols:
            return GroupError.INCONSISTENT_GROUP_PROTOCOL
        # Were the others gone, those of this protocol would have to agree on one.
        common = {name for name, _ in request.protocols}
        for member in self._members.values():
            if member.classic is not None and member.member_id != request.member_id:
                common &= {name for name, _ in member.classic.protocols}
        if not common or subscribed_topics(request.protocols[0][1]) is None:
            return GroupError.INCONSISTENT_GROUP_PROTOCOL
        has_place = (
            request.member_id in self._members or request.group_instance_id in self._instances
        )
        if not has_place and len(self._members) >= self._members_max:
            return GroupError.GROUP_MAX_SIZE_REACHED
        return GroupError.NONE

    def _refuse_stranger(self, request: JoinRequest, *, has_some: bool) -> GroupError:
        """A member with an id that is not in the group may be new, and was given the id to
        come back with. If it has partitions it was dropped, and others may read them: it is
        told so, and gives them up."""
        if not request.member_id or request.member_id in self._members:
            return GroupError.NONE
        if request.group_instance_id is not None:
            is_taken = request.group_instance_id in self._instances
            return GroupError.FENCED_INSTANCE_ID if is_taken else GroupError.UNKNOWN_MEMBER_ID
        return GroupError.UNKNOWN_MEMBER_ID if has_some else GroupError.NONE

    def _seat(self, request: JoinRequest) -> ConsumerMember:
        """The member that joins, which may be new, or take the place of a static one."""
        member_id = request.member_id or request.new_member_id
        old = self._members.get(self._instances.get(request.group_instance_id or "", ""))
        if old is None:
            old = self._members.get(member_id)
        if old is not None and old.member_id == member_id:
            return old
        member = ConsumerMember(member_id, request.group_instance_id)
        if old is not None:
            # Its part waits for it: nothing else is asked for than before.
            target = self._target.get(old.member_id)
            member.names = old.names
            self._forget(old)
            if target is not None:
                self._target[member_id] = target
        return self._add(member)

    def _step(
        self,
        member: ConsumerMember,
        request: JoinRequest,
        owned: frozenset[TopicPartition],
        topics: Topics,
        now_ms: int,
    ) -> None:
        facts = member.facts()
        is_changed = _describe_classic(member, request) or member.member_id not in self._target
        self._hear(member, now_ms)
        member.join_deadline_ms = None
        if is_changed:
            self.group_epoch += 1
            self._subscribe()
        self._follow(topics)
        target = self._target[member.member_id]
        member.reconcile(target, self.assignment_epoch, owned, self._holders, now_ms)
        if member.facts() != facts:
            self._moved.add(member.member_id)

    def _find_classic(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ConsumerMember | GroupError:
        if instance_id is not None:
            holder = self._instances.get(instance_id)
            if holder is not None and holder != member_id:
                return GroupError.FENCED_INSTANCE_ID
        member = self._members.get(member_id)
        if member is None or member.classic is None:
            return GroupError.UNKNOWN_MEMBER_ID
        return member if member.epoch == generation else GroupError.ILLEGAL_GENERATION

    def _hear(self, member: ConsumerMember, now_ms: int) -> None:
        assert member.classic is not None
        member.expires_ms = now_ms + member.classic.session_timeout_ms

    @staticmethod
    def _call_back(member: ConsumerMember, now_ms: int) -> GroupError:
        """Have it join again, within its rebalance timeout."""
        if member.join_deadline_ms is None:
            member.join_deadline_ms = now_ms + member.rebalance_timeout_ms
        return GroupError.REBALANCE_IN_PROGRESS

    # Coming and going.

    def adopt(self, request: JoinRequest, held: frozenset[TopicPartition], expires_ms: int) -> None:
        """Take over a member of a classic group with what it has."""
        member = self._add(ConsumerMember(request.member_id, request.group_instance_id))
        _describe_classic(member, request)
        member.epoch = member.heard_epoch = self.group_epoch
        member.expires_ms = expires_ms
        member.assigned = frozenset(each for each in held if each not in self._holders)
        self._holders.update(dict.fromkeys(member.assigned, member.member_id))
        self._target[member.member_id] = member.assigned

    def settle_in(self, topics: Topics) -> None:
        """All members are there: see what they subscribe to. A target is made when the
        next member joins."""
        self._subscribe()
        self._interest.refresh(topics)

    def classic_members(self) -> Iterator[ConsumerMember]:
        return (each for each in self._members.values() if each.classic is not None)


def upgraded(
    group: ClassicGroup, rules: GroupRules, topics: Topics, now_ms: int
) -> MixedGroup | str:
    """The same group with assignment by the broker, or why it cannot be one. Requests that
    wait in the old one are to be answered with REBALANCE_IN_PROGRESS."""
    if rules.migration not in ("bidirectional", "upgrade"):
        return f"the migration policy is {rules.migration}"
    members = group.roster()
    if any(member.protocol_type != CONSUMER_PROTOCOL_TYPE for member, _, _ in members):
        return "its members are no consumers"
    if len(members) >= rules.members_max:
        return "it has too many members"
    made = MixedGroup(group.name, epoch=group.generation)
    made.obey(rules)
    try:
        for request, assignment, expires_ms in members:
            if subscribed_topics(request.protocols[0][1]) is None:
                return "its members do not say what they subscribe to"
            made.adopt(request, _by_id(assigned_partitions(assignment), topics), expires_ms)
    except NoConsumer:
        return "its members have an assignment that only they understand"
    made.settle_in(topics)
    return made


def downgraded(group: MixedGroup, rules: GroupRules, topics: Topics, now_ms: int) -> ClassicGroup:
    """The same group, of members of the classic protocol alone, which are about to share
    out the work among themselves. Their generation is the last that they know, so that they
    commit what they have read before they join again."""
    generation = max(each.epoch for each in group.classic_members())
    made = ClassicGroup(group.name, generation=generation)
    made.obey(rules)
    members = []
    for each in group.classic_members():
        assert each.classic is not None
        member = ClassicMember(each.member_id, each.classic)
        member.is_new = False
        member.expires_ms = each.expires_ms
        version = version_of(each.classic.protocols[0][1])
        held = _by_name(each.assigned | each.revoking, topics)
        member.assignment = encode_assignment(version, held)
        members.append(member)
    made.take_over(members, now_ms)
    return made


def _describe_classic(member: ConsumerMember, request: JoinRequest) -> bool:
    """Take over what a member of the classic protocol says of itself; whether it wants
    something else than before."""
    before = member.names
    member.classic = request
    member.client_id, member.client_host = request.client_id, request.client_host
    member.rebalance_timeout_ms = max(request.rebalance_timeout_ms, request.session_timeout_ms)
    if request.rebalance_timeout_ms > 0:
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.names = tuple(sorted(subscribed_topics(request.protocols[0][1]) or ()))
    return member.names != before


def _by_id(named: frozenset[NamedPartition], topics: Topics) -> frozenset[TopicPartition]:
    """Those that are there."""
    return frozenset(
        (topics[name][0], partition)
        for name, partition in named
        if name in topics and partition < topics[name][1]
    )


def _by_name(held: frozenset[TopicPartition], topics: Topics) -> list[NamedPartition]:
    wanted = {topic_id for topic_id, _ in held}
    names = {topic_id: name for name, (topic_id, _) in topics.items() if topic_id in wanted}
    return [(names[topic_id], partition) for topic_id, partition in held if topic_id in names]
