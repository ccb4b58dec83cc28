"""The share group (KIP-932): who is in it, and which partitions each should ask.

Here a partition may have many members, since leases and not membership decide who
gets a message. So there is nothing to hand over: a member takes on its new part with
its next heartbeat, whatever the others do.

    epoch 0 joins ──> group epoch rises ──> target ──> each member, when next heard
    epoch -1 leaves, silence for a session too: `tick` returns who went that way, and
    the caller ends that member's leases
    its connection breaks, or it misses three heartbeats: it is away, and its part is
    given to others until it is heard of again; it stays a member for its session

A member may come again with the epoch of its last heartbeat, because our answer may
have been lost; with any other it is fenced and joins anew.

Rejected: waiting until a former member let go, as a consumer group does. It would
cost time at every change and protect nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.core import limits
from headrace.engine.coordinator.assignors import assign_simple
from headrace.engine.coordinator.interest import Interest
from headrace.engine.coordinator.rules import GroupRules
from headrace.engine.coordinator.sizes import MEMBER_BYTES, more_said, text_bytes
from headrace.engine.coordinator.values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    GroupError,
    HeartbeatAnswer,
    ShareDescription,
    ShareMemberDescription,
    ShareRequest,
    TopicPartition,
    Topics,
    by_topic,
)

ASSIGNOR = "simple"
# A process that is stopped keeps its connections. One that only pauses for long has its part
# again when it is back, and meanwhile nobody waits for it.
MISSED_HEARTBEATS = 3


class _Member:
    __slots__ = (
        "assigned",
        "away_ms",
        "client_host",
        "client_id",
        "epoch",
        "expires_ms",
        "heard_epoch",
        "is_away",
        "member_id",
        "names",
        "names_bytes",
        "rack_id",
    )

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.names: tuple[str, ...] | None = None
        self.names_bytes = 0
        self.epoch = self.heard_epoch = JOIN_EPOCH
        # What it was last told, not what it should be told next.
        self.assigned: frozenset[TopicPartition] = frozenset()
        self.expires_ms = self.away_ms = 0
        self.is_away = False

    def size_bytes(self) -> int:
        said = text_bytes(self.member_id, self.rack_id, self.client_id, self.client_host)
        return said + self.names_bytes


class ShareGroup:
    def __init__(
        self,
        name: str,
        *,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 5_000,
        members_max: int = limits.SHARE_GROUP_MEMBERS_MAX,
        epoch: int = 0,
    ) -> None:
        self.name = name
        self.group_epoch = epoch
        self.assignment_epoch = epoch
        self._session_timeout_ms = session_timeout_ms
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._members_max = members_max
        self._members: dict[str, _Member] = {}
        self._interest = Interest()
        self._target: dict[str, frozenset[TopicPartition]] = {}

    def obey(self, rules: GroupRules) -> None:
        """Sessions that are running keep their length until their member is heard of."""
        self._session_timeout_ms = rules.share_session_timeout_ms
        self._heartbeat_interval_ms = rules.share_heartbeat_interval_ms
        self._members_max = rules.share_members_max

    # Inputs.

    def on_heartbeat(self, request: ShareRequest, topics: Topics, now_ms: int) -> HeartbeatAnswer:
        """After an answer to epoch -1 the member is gone, and its leases are
        the caller's to end."""
        member = self._members.get(request.member_id)
        error, reason = self._refuse(request, member)
        if error is not GroupError.NONE:
            return self._answer(request.member_id, request.member_epoch, error, reason)
        if request.member_epoch == LEAVE_EPOCH:
            self._remove(request.member_id)
            self._follow(topics)
            return self._answer(request.member_id, LEAVE_EPOCH)
        if member is None:
            member = self._members[request.member_id] = _Member(request.member_id)
        self._update(member, request, now_ms)
        self._follow(topics)
        target = self._target[member.member_id]
        answer = self._answer(member.member_id, self.assignment_epoch)
        if target != member.assigned or request.member_epoch != self.assignment_epoch:
            answer = answer._replace(assignment=by_topic(target))
        member.assigned = target
        member.epoch = self.assignment_epoch
        return answer

    def on_away(self, member_id: str, topics: Topics) -> None:
        """Its connection broke. Until it is heard of others have its part: most clients
        that lose their connection do not come back."""
        member = self._members.get(member_id)
        if member is not None and not member.is_away:
            self._leave_out(member)
            self._follow(topics)

    def tick(self, now_ms: int, topics: Topics) -> list[str]:
        """Who was not heard from for a whole session, and is no member now."""
        silent = [m.member_id for m in self._members.values() if m.expires_ms <= now_ms]
        for member_id in silent:
            self._remove(member_id)
        for member in self._members.values():
            if member.away_ms <= now_ms and not member.is_away:
                self._leave_out(member)
        self._follow(topics)
        return silent

    def next_deadline_ms(self) -> int | None:
        return min(
            (
                member.expires_ms if member.is_away else min(member.away_ms, member.expires_ms)
                for member in self._members.values()
            ),
            default=None,
        )

    # Questions.

    def has_member(self, member_id: str) -> bool:
        return member_id in self._members

    def is_empty(self) -> bool:
        return not self._members

    def member_sizes(self) -> Iterator[int]:
        """The bytes that each member said of itself."""
        return (member.size_bytes() for member in self._members.values())

    def assigned_bytes(self) -> int:
        """About what is remembered of the members' partitions."""
        return self._interest.held_bytes()

    def growth(self, request: ShareRequest, topics: Topics) -> int:
        """About how many bytes more are kept when this was heard."""
        member = self._members.get(request.member_id)
        if member is None and request.member_epoch != JOIN_EPOCH:
            return 0
        more = self._interest.growth(request.subscribed_topic_names or (), None, topics)
        if member is None:
            member = _Member("")
            more += MEMBER_BYTES + text_bytes(request.member_id)
        return more + more_said(member, request)

    def subscribed_topics(self) -> frozenset[str]:
        return self._interest.names()

    def state(self) -> str:
        return "Stable" if self._members else "Empty"

    def describe(self) -> ShareDescription:
        members = tuple(
            ShareMemberDescription(
                member.member_id,
                member.rack_id,
                member.epoch,
                member.client_id,
                member.client_host,
                member.names or (),
                by_topic(member.assigned),
            )
            for member in self._members.values()
        )
        return ShareDescription(
            self.state(), self.group_epoch, self.assignment_epoch, ASSIGNOR, members
        )

    # What inputs are made of.

    def _refuse(
        self, request: ShareRequest, member: _Member | None
    ) -> tuple[GroupError, str | None]:
        if not request.member_id:
            return GroupError.INVALID_REQUEST, "the member id is empty"
        if request.member_epoch < LEAVE_EPOCH:
            return (
                GroupError.INVALID_REQUEST,
                f"there is no member epoch {request.member_epoch}",
            )
        if request.member_epoch == JOIN_EPOCH:
            if request.subscribed_topic_names is None:
                return (
                    GroupError.INVALID_REQUEST,
                    "whoever joins has to say what it subscribes to",
                )
            if member is None and len(self._members) >= self._members_max:
                return (
                    GroupError.GROUP_MAX_SIZE_REACHED,
                    f"the group {self.name!r} has {self._members_max} members, the most allowed",
                )
            return GroupError.NONE, None
        if member is None:
            return GroupError.UNKNOWN_MEMBER_ID, f"the group {self.name!r} has no such member"
        if request.member_epoch not in (LEAVE_EPOCH, member.epoch, member.heard_epoch):
            return (
                GroupError.FENCED_MEMBER_EPOCH,
                f"the member's epoch is {member.epoch}, not {request.member_epoch}: join again",
            )
        return GroupError.NONE, None

    def _update(self, member: _Member, request: ShareRequest, now_ms: int) -> None:
        member.heard_epoch = request.member_epoch
        if member.is_away:
            member.is_away = False
            self.group_epoch += 1
        member.expires_ms = now_ms + self._session_timeout_ms
        member.away_ms = now_ms + MISSED_HEARTBEATS * self._heartbeat_interval_ms
        member.client_id = request.client_id
        member.client_host = request.client_host
        if request.rack_id is not None:
            member.rack_id = request.rack_id
        if request.subscribed_topic_names is not None:
            names = tuple(sorted(set(request.subscribed_topic_names)))
            if names != member.names:
                member.names, member.names_bytes = names, text_bytes(*names)
                self._change()

    def _leave_out(self, member: _Member) -> None:
        member.is_away = True
        self.group_epoch += 1

    def _remove(self, member_id: str) -> None:
        del self._members[member_id]
        self._target.pop(member_id, None)
        self._change()

    def _change(self) -> None:
        self.group_epoch += 1
        names = (name for member in self._members.values() for name in member.names or ())
        self._interest.subscribe(names, ())

    def _follow(self, topics: Topics) -> None:
        """Make a new target if anything that it depends on has changed."""
        changed = self._interest.refresh(topics)
        if changed and self.group_epoch == self.assignment_epoch:
            self.group_epoch += 1
        if self.group_epoch == self.assignment_epoch:
            return
        target = assign_simple(
            {
                member.member_id: self._interest.topic_ids(member.names or (), None)
                for member in self._members.values()
                if not member.is_away
            },
            self._interest.sizes(),
            self._target,
        )
        self._target = {member_id: frozenset(held) for member_id, held in target.items()}
        self.assignment_epoch = self.group_epoch

    def _answer(
        self,
        member_id: str,
        member_epoch: int,
        error: GroupError = GroupError.NONE,
        reason: str | None = None,
    ) -> HeartbeatAnswer:
        return HeartbeatAnswer(
            error, reason, member_id, member_epoch, self._heartbeat_interval_ms, None
        )
