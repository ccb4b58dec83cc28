"""The consumer group (KIP-848): the broker assigns, members only send heartbeats.

Three things, each with its epoch, follow one another:

    what members ask for    group epoch        raised when a subscription or the
            |                                  catalog changes, or a member goes
            v
    target assignment       assignment epoch   made by the assignor at once
            |
            v
    each member             member epoch       follows in its own time, a step for
                                               every heartbeat (reconciliation.py)

A heartbeat with epoch 0 joins, -1 leaves, and -2 says that a static member will be
back: its part waits for it until its session ends. Whoever comes with an epoch that
is neither its own nor the one before is fenced, gives up everything and joins anew.

Time ends two things: the session of a member that is not heard from, and the
membership of one that does not give up what it was asked to within its own rebalance
timeout, since it would hold up the others for ever.

Members of the classic protocol may be in such a group too: see mixed.py.

Each step of a member is written down (stored.py), and answered when that is done, so that the
members go on when their coordinator starts anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress

from headrace.core import limits
from headrace.core.errors import InvalidArgument
from headrace.engine.coordinator.assignors import ASSIGNORS
from headrace.engine.coordinator.interest import Interest
from headrace.engine.coordinator.reconciliation import (
    NOTHING,
    REVOKING,
    STABLE,
    ConsumerMember,
    Holders,
)
from headrace.engine.coordinator.refusals import Refused, check_epoch, check_request
from headrace.engine.coordinator.rules import GroupRules
from headrace.engine.coordinator.sizes import MEMBER_BYTES, text_bytes
from headrace.engine.coordinator.stored import ConsumerRecord, Unwritten
from headrace.engine.coordinator.topic_pattern import TopicPattern
from headrace.engine.coordinator.values import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    Assignment,
    ConsumerDescription,
    ConsumerMemberDescription,
    GroupError,
    HeartbeatAnswer,
    HeartbeatRequest,
    TopicPartition,
    Topics,
    by_topic,
    one_by_one,
)

DEFAULT_ASSIGNOR = "uniform"


class ConsumerGroup:
    def __init__(
        self,
        name: str,
        *,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 5_000,
        members_max: int = limits.GROUP_MEMBERS_MAX,
        epoch: int = 0,
    ) -> None:
        self.name = name
        self.group_epoch = epoch
        self.assignment_epoch = epoch
        self._session_timeout_ms = session_timeout_ms
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._members_max = members_max
        self._members: dict[str, ConsumerMember] = {}
        self._instances: dict[str, str] = {}
        self._interest = Interest()
        self._target: dict[str, frozenset[TopicPartition]] = {}
        self._holders: Holders = {}
        self._assignor = DEFAULT_ASSIGNOR
        # Members of whom something is not written down.
        self._moved: set[str] = set()

    def obey(self, rules: GroupRules) -> None:
        """Sessions that are running keep their length until their member is heard of."""
        self._session_timeout_ms = rules.consumer_session_timeout_ms
        self._heartbeat_interval_ms = rules.consumer_heartbeat_interval_ms
        self._members_max = rules.members_max

    # Inputs.

    def on_heartbeat(
        self, request: HeartbeatRequest, topics: Topics, now_ms: int
    ) -> HeartbeatAnswer:
        try:
            pattern = check_request(request)
            if request.member_epoch < JOIN_EPOCH:
                return self._on_leave(request, topics, now_ms)
            return self._on_alive(request, pattern, topics, now_ms)
        except Refused as refusal:
            return HeartbeatAnswer(
                refusal.error,
                str(refusal),
                request.member_id,
                request.member_epoch,
                self._heartbeat_interval_ms,
                None,
            )

    def tick(self, now_ms: int, topics: Topics) -> list[str]:
        """Drop whoever ran out of time; the ids of those members."""
        dropped = []
        for member in list(self._members.values()):
            if _deadline_ms(member) <= now_ms:
                self._remove(member)
                dropped.append(member.member_id)
        self._follow(topics)
        return dropped

    def next_deadline_ms(self) -> int | None:
        return min(map(_deadline_ms, self._members.values()), default=None)

    # What is written down.

    def unwritten(self, written: Set[str]) -> Unwritten:
        """What is to be written, where something is written of the members with these ids."""
        changed: Unwritten = dict.fromkeys(written - self._members.keys())
        for member_id in self._moved & self._members.keys():
            changed[member_id] = self._members[member_id].record()
        return changed

    def on_written(self) -> None:
        self._moved.clear()

    def restore(self, records: Mapping[str, ConsumerRecord], topics: Topics, now_ms: int) -> None:
        """Be the group that was written down. If its members were on their way to a target,
        or the topics are others, there will be a new one."""
        for member_id, record in records.items():
            pattern = None
            if record.pattern is not None:
                with suppress(InvalidArgument):
                    pattern = TopicPattern(record.pattern)
            member = ConsumerMember(member_id, record.instance_id)
            member.restore(record, pattern)
            if member.assignor not in ASSIGNORS:
                member.assignor = None
            member.expires_ms = now_ms + self._session_of(member)
            if member.state == REVOKING:
                member.revoke_deadline_ms = now_ms + member.rebalance_timeout_ms
            self._holders.update(dict.fromkeys(member.assigned | member.revoking, member_id))
            self._target[member_id] = member.assigned
            self._add(member)
        self._moved.clear()
        # At least one: 0 would mean that a member joins, and those who are away have none.
        self.group_epoch = max(1, *(each.epoch for each in self._members.values()))
        self.assignment_epoch = self.group_epoch
        self._subscribe()
        self._interest.refresh(topics)
        while self._interest.is_behind():
            self._interest.refresh(topics)
        wanted = {
            (topic_id, partition)
            for topic_id, count in self._interest.sizes().items()
            for partition in range(count)
        }
        if wanted != self._holders.keys() or self.state() != "Stable":
            self.group_epoch += 1

    def _session_of(self, member: ConsumerMember) -> int:
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self._session_timeout_ms

    # Questions.

    def check_commit(
        self, member_id: str, member_epoch: int, *, transactional: bool = False
    ) -> GroupError:
        """Whether these credentials may commit offsets now. A stale epoch is
        no verdict: the member learns its own with its next heartbeat."""
        if member_epoch < 0 and (not self._members or (transactional and not member_id)):
            return GroupError.NONE
        member = self._members.get(member_id)
        if member is None:
            return GroupError.UNKNOWN_MEMBER_ID
        if member.epoch != member_epoch:
            is_classic = member.classic is not None
            return GroupError.ILLEGAL_GENERATION if is_classic else GroupError.STALE_MEMBER_EPOCH
        return GroupError.NONE

    def check_fetch(self, member_id: str | None, member_epoch: int) -> GroupError:
        """Whether these credentials may read the group's offsets. Whoever does
        not claim to be a member may."""
        if not member_id and member_epoch < 0:
            return GroupError.NONE
        return self.check_commit(member_id or "", max(member_epoch, 0))

    def is_empty(self) -> bool:
        return not self._members

    def member_sizes(self) -> Iterator[int]:
        """The bytes that each member said of itself."""
        return (member.size_bytes() for member in self._members.values())

    def assigned_bytes(self) -> int:
        """About what is remembered of the members' patterns and partitions."""
        return self._interest.held_bytes()

    def growth(self, request: HeartbeatRequest, topics: Topics) -> int:
        """About how many bytes more are kept when this was heard."""
        member = self._members.get(request.member_id)
        if member is None and request.member_epoch != JOIN_EPOCH:
            return 0
        if member is None:
            member = ConsumerMember("", None)
            more = MEMBER_BYTES + text_bytes(request.member_id, request.instance_id)
        else:
            more = 0
        names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
        more += self._interest.growth(names or (), pattern, topics)
        return more + member.growth(request)

    def is_behind(self) -> bool:
        """Whether patterns are still being matched: tick again soon."""
        return self._interest.is_behind()

    def subscribed_topics(self) -> frozenset[str]:
        return self._interest.names()

    def state(self) -> str:
        if not self._members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch or self.is_behind():
            return "Assigning"
        settled = all(
            member.is_away or (member.state == STABLE and member.epoch == self.assignment_epoch)
            for member in self._members.values()
        )
        return "Stable" if settled else "Reconciling"

    def describe(self) -> ConsumerDescription:
        members = tuple(
            ConsumerMemberDescription(
                member.member_id,
                member.instance_id,
                member.rack_id,
                member.epoch,
                member.client_id,
                member.client_host,
                member.names,
                member.pattern.text if member.pattern else None,
                by_topic(member.assigned),
                by_topic(self._target.get(member.member_id, NOTHING)),
                member.classic is not None,
            )
            for member in self._members.values()
        )
        return ConsumerDescription(
            self.state(), self.group_epoch, self.assignment_epoch, self._assignor, members
        )

    # Heartbeats.

    def _on_alive(
        self,
        request: HeartbeatRequest,
        pattern: TopicPattern | None,
        topics: Topics,
        now_ms: int,
    ) -> HeartbeatAnswer:
        owned = None if request.owned is None else one_by_one(request.owned)
        self._check_pattern(request, pattern)
        if request.member_epoch == JOIN_EPOCH:
            member = self._join(request)
        else:
            member = self._find(request.member_id, request.instance_id)
            check_epoch(member, request.member_epoch, owned)
        before, facts = member.assigned, member.facts()
        member.heard_epoch = request.member_epoch
        member.expires_ms = now_ms + self._session_timeout_ms
        is_new = member.member_id not in self._target
        if member.update(request, pattern) or is_new:
            self.group_epoch += 1
            self._subscribe()
        self._follow(topics)
        target = self._target[member.member_id]
        member.reconcile(target, self.assignment_epoch, owned, self._holders, now_ms)
        if member.facts() != facts:
            self._moved.add(member.member_id)
        # Whoever says everything does so because it is new or unsure, and
        # whoever comes with an older epoch has missed our last answer.
        is_full = (
            owned is not None
            and request.rebalance_timeout_ms > 0
            and (
                request.subscribed_topic_names is not None
                or request.subscribed_topic_regex is not None
            )
        )
        shown = is_full or request.member_epoch != member.epoch or member.assigned != before
        return self._answer(member, by_topic(member.assigned) if shown else None)

    def _check_pattern(self, request: HeartbeatRequest, pattern: TopicPattern | None) -> None:
        """Refuse a pattern that takes too long, which may show only when topics are made.
        A member that keeps it is not heard until its session ends."""
        if request.subscribed_topic_regex is None:
            member = self._members.get(request.member_id)
            pattern = member.pattern if member is not None else None
        reason = self._interest.refusal(pattern) if pattern is not None else None
        if reason is not None:
            raise Refused(GroupError.INVALID_REGULAR_EXPRESSION, reason)

    def _join(self, request: HeartbeatRequest) -> ConsumerMember:
        old = self._members.get(self._instances.get(request.instance_id or "", ""))
        if old is None:
            old = self._members.get(request.member_id)
        if old is None:
            if len(self._members) >= self._members_max:
                raise Refused(
                    GroupError.GROUP_MAX_SIZE_REACHED,
                    f"the group {self.name!r} has {self._members_max} members, the most allowed",
                )
            return self._add(ConsumerMember(request.member_id, request.instance_id))
        if old.member_id == request.member_id and old.instance_id == request.instance_id:
            # It says that it has nothing, so whatever it should give up is free,
            # and what it should have is granted to it again.
            return old
        if old.instance_id != request.instance_id:
            raise Refused(
                GroupError.INVALID_REQUEST,
                f"the member {old.member_id} joined with another instance id",
            )
        if not old.is_away and old.classic is None:
            raise Refused(
                GroupError.UNRELEASED_INSTANCE_ID,
                f"the instance id {request.instance_id!r} is in use by member {old.member_id}",
            )
        # A static member is back under a new id: it inherits the old one's part,
        # and since nothing is asked for anew, nobody else notices.
        target = self._target.get(old.member_id)
        member = ConsumerMember(request.member_id, request.instance_id)
        member.names, member.pattern, member.assignor = old.names, old.pattern, old.assignor
        self._forget(old)
        if target is not None:
            self._target[member.member_id] = target
        return self._add(member)

    def _on_leave(self, request: HeartbeatRequest, topics: Topics, now_ms: int) -> HeartbeatAnswer:
        member = self._find(request.member_id, request.instance_id)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            member.epoch = member.heard_epoch = STATIC_LEAVE_EPOCH
            member.state = STABLE
            member.revoke_deadline_ms = None
            member.expires_ms = now_ms + self._session_timeout_ms
            member.release(self._holders, member.revoking)
            self._moved.add(member.member_id)
        else:
            self._remove(member)
        self._follow(topics)
        return self._answer(member, None)._replace(member_epoch=request.member_epoch)

    def _answer(self, member: ConsumerMember, assignment: Assignment | None) -> HeartbeatAnswer:
        return HeartbeatAnswer(
            GroupError.NONE,
            None,
            member.member_id,
            member.epoch,
            self._heartbeat_interval_ms,
            assignment,
        )

    # Members.

    def _find(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is not None:
            holder = self._instances.get(instance_id)
            if holder is not None and holder != member_id:
                raise Refused(
                    GroupError.FENCED_INSTANCE_ID,
                    f"the instance id {instance_id!r} was taken over by member {holder}",
                )
            if holder is None:
                member_id = ""
        member = self._members.get(member_id)
        if member is None:
            raise Refused(
                GroupError.UNKNOWN_MEMBER_ID, f"the group {self.name!r} has no such member"
            )
        return member

    def _add(self, member: ConsumerMember) -> ConsumerMember:
        self._members[member.member_id] = member
        self._moved.add(member.member_id)
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        return member

    def _remove(self, member: ConsumerMember) -> None:
        self._forget(member)
        self.group_epoch += 1
        self._subscribe()

    def _forget(self, member: ConsumerMember) -> None:
        member.release(self._holders)
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._target.pop(member.member_id, None)

    # The target.

    def _subscribe(self) -> None:
        members = self._members.values()
        self._interest.subscribe(
            (name for member in members for name in member.names),
            [member.pattern for member in members if member.pattern is not None],
        )

    def _follow(self, topics: Topics) -> None:
        """Make a new target if anything that it depends on has changed."""
        changed = self._interest.refresh(topics)
        if changed and self.group_epoch == self.assignment_epoch:
            self.group_epoch += 1
        if self.group_epoch == self.assignment_epoch:
            return
        votes = Counter(m.assignor for m in self._members.values() if m.assignor is not None)
        self._assignor = max(
            votes, key=lambda assignor: (votes[assignor], assignor), default=DEFAULT_ASSIGNOR
        )
        # Static members go first and by their lasting names, so that a restart
        # does not change anybody's place in the order.
        seats = {
            f"1 {member_id}" if member.instance_id is None else f"0 {member.instance_id}": member
            for member_id, member in self._members.items()
        }
        target = ASSIGNORS[self._assignor](
            {
                seat: self._interest.topic_ids(member.names, member.pattern)
                for seat, member in seats.items()
            },
            self._interest.sizes(),
            {seat: self._target.get(m.member_id, NOTHING) for seat, m in seats.items()},
        )
        self._target = {member.member_id: frozenset(target[seat]) for seat, member in seats.items()}
        self.assignment_epoch = self.group_epoch
        for member in self._members.values():
            if member.is_away:
                # It reads nothing, so what it will not get back is free at once.
                member.release(self._holders, member.assigned - self._target[member.member_id])
                self._moved.add(member.member_id)


def _deadline_ms(member: ConsumerMember) -> int:
    deadlines = (member.expires_ms, member.revoke_deadline_ms, member.join_deadline_ms)
    return min(deadline for deadline in deadlines if deadline is not None)
