"""The classic group: members that share out the work among themselves.

Everyone joins, one of them leads; the leader hands in who does what, and everyone
fetches its part. A generation is one such agreement: whoever speaks with an older
one is shut out.

              join                everyone joined, or time is up
    Empty ──────────> Preparing ──────────────────────────────> Completing
      ^               Rebalance <────────────────────────────── Rebalance
      |                 |   ^    a member came, left or changed      |
      └─────────────────┘   |                                        | the leader
       nobody is left       └─────────────────────────── Stable <────┘ assigned

    any of them ── become_dead ──> Dead

Every input returns the answers that it releases, not only its own. What waits is
bounded by three clocks: a member's session, the rebalance (the longest timeout of
any member, for joining and again for fetching the assignment) and the join of a
member that never had an answer.

Static members keep their place when they restart: the new process takes over the
old one's part within the same generation if it asks for the same work, and the old
one, should it still run, is fenced.

A generation that was handed its assignment is written down (stored.py), and answered when
that is done: its members go on when their coordinator starts anew.

Rejected: completing the very first join as soon as the first member is there, as
the only choice. `rebalance_delay_ms` lets a fleet that starts together share one
rebalance; with 0, which is the default, nobody waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from headrace.core import limits
from headrace.engine.coordinator.roster import CONSUMER_PROTOCOL_TYPE, ClassicMember, Roster
from headrace.engine.coordinator.rules import GroupRules
from headrace.engine.coordinator.sizes import text_bytes
from headrace.engine.coordinator.stored import ClassicRecord, Unwritten
from headrace.engine.coordinator.values import (
    Answer,
    ClassicDescription,
    GroupError,
    JoinAnswer,
    JoinRequest,
    LeaveOutcome,
    SyncAnswer,
    SyncRequest,
)

EMPTY = "Empty"
PREPARING = "PreparingRebalance"
COMPLETING = "CompletingRebalance"
STABLE = "Stable"
DEAD = "Dead"

# A client that gave up on its first join never learnt its id, so nothing but
# time can tell us that it is gone.
NEW_MEMBER_JOIN_MS = 5 * 60 * 1_000


class ClassicGroup:
    def __init__(
        self,
        name: str,
        *,
        rebalance_delay_ms: int = 0,
        session_ms_min: int = 6_000,
        session_ms_max: int = 1_800_000,
        members_max: int = limits.GROUP_MEMBERS_MAX,
        generation: int = 0,
    ) -> None:
        self.name = name
        self.state = EMPTY
        self.generation = generation
        self._rules = GroupRules(rebalance_delay_ms, session_ms_min, session_ms_max, members_max)
        self._roster = Roster()
        self._protocol: str | None = None
        # Ids that were given out and not used yet, and until when they hold.
        self._pending: dict[str, int] = {}
        # Members of this generation that have not fetched their assignment.
        self._unsynced: set[str] = set()
        self._join_deadline_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        # In a group's first rebalance: how much longer it may still be put off
        # for newcomers, and whether any came since it last was.
        self._delay_left_ms: int | None = None
        # Whether a generation was ever handed its assignment.
        self.was_stable = False
        self._came_since_delay = False
        # Whether members know of something that is not written down.
        self._is_unwritten = False

    def obey(self, rules: GroupRules) -> None:
        self._rules = rules

    # Inputs.

    def on_join(self, reply: int, request: JoinRequest, now_ms: int) -> list[Answer]:
        refusal = self._refuse_join(request)
        if refusal is not GroupError.NONE:
            return [Answer(reply, JoinAnswer(refusal, request.member_id))]
        if not request.member_id:
            old = self._roster.static_member(request.group_instance_id)
            if old is not None:
                return self._on_static_return(reply, old, request, now_ms)
            if request.group_instance_id is None and request.requires_known_member_id:
                # Having it come back with its id means that a client which gave
                # up and asks again does not count as two members.
                self._pending[request.new_member_id] = now_ms + request.session_timeout_ms
                refused = JoinAnswer(GroupError.MEMBER_ID_REQUIRED, request.new_member_id)
                return [Answer(reply, refused)]
            return self._add(reply, request.new_member_id, request, now_ms)
        if request.member_id in self._pending:
            del self._pending[request.member_id]
            return self._add(reply, request.member_id, request, now_ms)
        found = self._roster.find(request.member_id, request.group_instance_id)
        if isinstance(found, GroupError):
            return [Answer(reply, JoinAnswer(found, request.member_id))]
        return self._on_return(reply, found, request, now_ms)

    def on_sync(self, reply: int, request: SyncRequest, now_ms: int) -> list[Answer]:
        member = self._find_in_generation(
            request.member_id, request.group_instance_id, request.generation
        )
        if isinstance(member, GroupError):
            return [Answer(reply, SyncAnswer(member))]
        if self.state == PREPARING:
            return [Answer(reply, SyncAnswer(GroupError.REBALANCE_IN_PROGRESS))]
        is_kind = request.protocol_type in (None, self._roster.protocol_type)
        if not is_kind or request.protocol_name not in (None, self._protocol):
            return [Answer(reply, SyncAnswer(GroupError.INCONSISTENT_GROUP_PROTOCOL))]
        answers = member.end_sync(SyncAnswer(GroupError.REBALANCE_IN_PROGRESS))
        member.syncing = reply
        member.expires_ms = now_ms + member.session_timeout_ms
        self._unsynced.discard(member.member_id)
        if self.state == STABLE:
            answers += self._answer_sync(member, now_ms)
        elif member.member_id == self._roster.leader:
            self.state = STABLE
            self.was_stable = self._is_unwritten = True
            for other in self._roster:
                other.assignment = bytes(request.assignments.get(other.member_id, b""))
                answers += self._answer_sync(other, now_ms)
        if not self._unsynced:
            self._sync_deadline_ms = None
        return answers

    def on_heartbeat(
        self, member_id: str, group_instance_id: str | None, generation: int, now_ms: int
    ) -> GroupError:
        """REBALANCE_IN_PROGRESS tells a member to join again; it is alive all
        the same. A heartbeat never releases answers to others."""
        member = self._find_in_generation(member_id, group_instance_id, generation)
        if isinstance(member, GroupError):
            return member
        self._keep_alive(member, now_ms)
        return GroupError.REBALANCE_IN_PROGRESS if self.state == PREPARING else GroupError.NONE

    def member_sizes(self) -> Iterator[int]:
        """The bytes that each member said of itself, or was assigned."""
        yield from [*map(ClassicMember.size_bytes, self._roster), *map(text_bytes, self._pending)]

    def member_ids(self) -> list[str]:
        """Of members, and of those who were given an id to come back with."""
        return [member.member_id for member in self._roster] + list(self._pending)

    def on_leave(self, members: Sequence[tuple[str, str | None]], now_ms: int) -> LeaveOutcome:
        """Members by id, by instance id with an empty member id, or both."""
        errors = []
        answers: list[Answer] = []
        before = len(self._roster)
        for member_id, instance_id in members:
            if self.state == DEAD:
                errors.append(GroupError.COORDINATOR_NOT_AVAILABLE)
                continue
            if self._pending.pop(member_id, None) is not None:
                errors.append(GroupError.NONE)
                continue
            if not member_id and (static := self._roster.static_member(instance_id)) is not None:
                member_id = static.member_id
            found = self._roster.find(member_id, instance_id)
            if isinstance(found, GroupError):
                errors.append(found)
                continue
            answers += self._remove(found)
            errors.append(GroupError.NONE)
        answers += self._after_leaving(before, now_ms)
        return LeaveOutcome(tuple(errors), answers)

    def tick(self, now_ms: int) -> list[Answer]:
        answers: list[Answer] = []
        self._pending = {each: at_ms for each, at_ms in self._pending.items() if at_ms > now_ms}
        before = len(self._roster)
        for member in self._roster:
            if member.session_counts() and member.expires_ms <= now_ms:
                answers += self._remove(member)
        answers += self._after_leaving(before, now_ms)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            for member in self._roster:
                if member.member_id in self._unsynced:
                    answers += self._remove(member)
            answers += self._rebalance(now_ms)
        answers += self._on_join_deadline(now_ms)
        return answers

    def next_deadline_ms(self) -> int | None:
        deadlines = list(self._pending.values())
        deadlines += [member.expires_ms for member in self._roster if member.session_counts()]
        others = (self._join_deadline_ms, self._sync_deadline_ms)
        deadlines += [deadline_ms for deadline_ms in others if deadline_ms is not None]
        return min(deadlines, default=None)

    def become_dead(self, error: GroupError = GroupError.NOT_COORDINATOR) -> list[Answer]:
        """The group was deleted, or another node coordinates it from now on."""
        answers: list[Answer] = []
        for member in self._roster:
            answers += self._remove(member, error)
        self._pending.clear()
        self._join_deadline_ms = self._sync_deadline_ms = self._delay_left_ms = None
        self.state = DEAD
        return answers

    def roster(self) -> list[tuple[JoinRequest, bytes, int]]:
        """Every member that knows it is one, as Roster.known has it."""
        return self._roster.known()

    def take_over(self, members: Iterable[ClassicMember], now_ms: int) -> None:
        """Be the group of these members, which have their part and are told to join again."""
        for member in members:
            self._roster.add(member, CONSUMER_PROTOCOL_TYPE)
        self._protocol = self._roster.select_protocol()
        self.state, self.was_stable = STABLE, True
        self._become_preparing(now_ms)

    # What is written down.

    def unwritten(self, written: Set[str]) -> Unwritten:
        """What is to be written, where something is written of the members with these ids."""
        if not self._is_unwritten or self.state not in (STABLE, EMPTY):
            return {}
        gone: Unwritten = dict.fromkeys(each for each in written if each not in self._roster)
        return gone | dict(self._roster.records(self.generation, self._protocol or ""))

    def on_written(self) -> None:
        self._is_unwritten = False

    def restore(self, records: Mapping[str, ClassicRecord], now_ms: int) -> None:
        """Be the group that was written down. Where writing was cut short, all join again."""
        self.generation = max(record.generation for record in records.values())
        for member_id, record in records.items():
            if record.generation == self.generation:
                self._keep_alive(self._roster.restore(member_id, record), now_ms)
                self._protocol = record.protocol
        self.state, self.was_stable = STABLE, True
        if len(self._roster) < len(records):
            self._become_preparing(now_ms)

    # Questions.

    def check_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        now_ms: int | None = None,
        *,
        transactional: bool = False,
    ) -> GroupError:
        """Whether these credentials may commit offsets now. With `now_ms` a
        good commit also counts as a heartbeat."""
        if self.state == DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state == EMPTY:
            return GroupError.NONE
        if generation >= 0 or member_id or group_instance_id is not None:
            member = self._find_in_generation(member_id, group_instance_id, generation)
            if isinstance(member, GroupError):
                return member
            # What a member did before a rebalance it may still commit while the
            # others join; once the work is being shared out anew it is too late.
            if self.state == COMPLETING and not transactional:
                return GroupError.REBALANCE_IN_PROGRESS
            if now_ms is not None:
                self._keep_alive(member, now_ms)
            return GroupError.NONE
        # Old transactional producers do not say for which member they commit.
        return GroupError.NONE if transactional else GroupError.UNKNOWN_MEMBER_ID

    def is_empty(self) -> bool:
        return not len(self._roster) and not self._pending

    def subscribed_topics(self) -> frozenset[str] | None:
        """What the members read; None when that cannot be known."""
        return self._roster.subscribed_topics(self._protocol)

    def describe(self) -> ClassicDescription:
        # In a rebalance nobody can say what anyone does.
        protocol = self._protocol if self.state == STABLE else None
        members = self._roster.describe(protocol)
        protocol_type = self._roster.protocol_type or ""
        return ClassicDescription(
            self.state, self.generation, protocol_type, protocol or "", members
        )

    # Joining.

    def _refuse_join(self, request: JoinRequest) -> GroupError:
        if self.state == DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        rules = self._rules
        if not rules.session_ms_min <= request.session_timeout_ms <= rules.session_ms_max:
            return GroupError.INVALID_SESSION_TIMEOUT
        if not self._roster.supports(request):
            return GroupError.INCONSISTENT_GROUP_PROTOCOL
        has_place = (
            request.member_id != ""
            or self._roster.static_member(request.group_instance_id) is not None
        )
        if not has_place and len(self._roster) + len(self._pending) >= rules.members_max:
            return GroupError.GROUP_MAX_SIZE_REACHED
        return GroupError.NONE

    def _add(self, reply: int, member_id: str, request: JoinRequest, now_ms: int) -> list[Answer]:
        answers: list[Answer] = []
        old = self._roster.static_member(request.group_instance_id)
        if old is not None:
            answers += self._remove(old, GroupError.FENCED_INSTANCE_ID)
        member = ClassicMember(member_id, request)
        member.joining = reply
        member.expires_ms = now_ms + NEW_MEMBER_JOIN_MS
        self._roster.add(member, request.protocol_type)
        self._came_since_delay = True
        return answers + self._rebalance(now_ms)

    def _on_return(
        self, reply: int, member: ClassicMember, request: JoinRequest, now_ms: int
    ) -> list[Answer]:
        """A member joins that has an id: in a rebalance as it should, to ask
        for one, or because the answer to its last join was lost."""
        unchanged = member.protocols == request.protocols
        leads = member.member_id == self._roster.leader
        if unchanged and (self.state == COMPLETING or (self.state == STABLE and not leads)):
            self._roster.update(member, request)
            self._keep_alive(member, now_ms)
            return [Answer(reply, self._join_answer(member))]
        superseded = JoinAnswer(GroupError.REBALANCE_IN_PROGRESS, member.member_id)
        answers = member.end_join(superseded)
        answers += member.end_sync(SyncAnswer(GroupError.REBALANCE_IN_PROGRESS))
        self._roster.update(member, request)
        member.joining = reply
        return answers + self._rebalance(now_ms)

    def _on_static_return(
        self, reply: int, old: ClassicMember, request: JoinRequest, now_ms: int
    ) -> list[Answer]:
        fenced = GroupError.FENCED_INSTANCE_ID
        answers = old.end_join(JoinAnswer(fenced, old.member_id))
        answers += old.end_sync(SyncAnswer(fenced))
        member = ClassicMember(request.new_member_id, request)
        member.is_new = False
        member.expires_ms = now_ms + member.session_timeout_ms
        unchanged = self._roster.is_unchanged(old, request.protocols)
        leader_before = self._roster.leader
        self._roster.replace(old, member)
        if old.member_id in self._unsynced:
            self._unsynced.remove(old.member_id)
            self._unsynced.add(member.member_id)
        if self.state == STABLE and unchanged and self._roster.select_protocol() == self._protocol:
            self._is_unwritten = True
            answer = self._join_answer(member)
            if leader_before == old.member_id:
                # Told that it leads, it would share out the work anew. A client
                # that cannot be told otherwise is told that its old self leads.
                answer = (
                    answer._replace(skip_assignment=True)
                    if request.can_skip_assignment
                    else answer._replace(leader=old.member_id, members=())
                )
            return [*answers, Answer(reply, answer)]
        # The leader may be at work on an assignment that names the old self, so
        # in the midst of a rebalance there has to be another.
        member.joining = reply
        return answers + self._rebalance(now_ms)

    # Transitions.

    def _rebalance(self, now_ms: int) -> list[Answer]:
        answers: list[Answer] = []
        if self.state != PREPARING:
            answers = self._become_preparing(now_ms)
        return answers + self._complete_if_joined(now_ms)

    def _after_leaving(self, members_before: int, now_ms: int) -> list[Answer]:
        if self.state == PREPARING:
            return self._complete_if_joined(now_ms)
        return self._rebalance(now_ms) if len(self._roster) < members_before else []

    def _become_preparing(self, now_ms: int) -> list[Answer]:
        answers: list[Answer] = []
        for member in self._roster:
            if member.syncing is not None:
                self._keep_alive(member, now_ms)
                answers += member.end_sync(SyncAnswer(GroupError.REBALANCE_IN_PROGRESS))
        self._unsynced.clear()
        self._sync_deadline_ms = None
        rebalance_ms = self._roster.rebalance_timeout_ms()
        self._join_deadline_ms = now_ms + rebalance_ms
        if self.state == EMPTY:
            delay_ms = min(self._rules.rebalance_delay_ms, rebalance_ms)
            self._delay_left_ms = rebalance_ms - delay_ms
            self._came_since_delay = False
            self._join_deadline_ms = now_ms + delay_ms
        self.state = PREPARING
        return answers

    def _complete_if_joined(self, now_ms: int) -> list[Answer]:
        if self._delay_left_ms is not None:
            return self._on_join_deadline(now_ms)
        if self._pending or not self._roster.all_joined():
            return []
        return self._become_completing(now_ms)

    def _on_join_deadline(self, now_ms: int) -> list[Answer]:
        if self._join_deadline_ms is None or self._join_deadline_ms > now_ms:
            return []
        if self._delay_left_ms and self._came_since_delay:
            delay_ms = min(self._rules.rebalance_delay_ms, self._delay_left_ms)
            self._delay_left_ms -= delay_ms
            self._came_since_delay = False
            self._join_deadline_ms = now_ms + delay_ms
            return []
        return self._become_completing(now_ms)

    def _become_completing(self, now_ms: int) -> list[Answer]:
        """Those who joined make up the next generation; nobody, an empty one."""
        answers: list[Answer] = []
        for member in self._roster:
            # A static member may be restarting: its session decides, not this.
            if member.joining is None and member.instance_id is None:
                answers += self._remove(member)
        rebalance_ms = self._roster.rebalance_timeout_ms()
        if len(self._roster) and not self._roster.elect():
            # Static members that all are away: nobody is there to lead.
            self._join_deadline_ms = now_ms + rebalance_ms
            return answers
        self._join_deadline_ms = self._delay_left_ms = None
        self.generation += 1
        if not len(self._roster):
            self._protocol = None
            self.state = EMPTY
            self._is_unwritten = True
            return answers
        self._protocol = self._roster.select_protocol()
        self._sync_deadline_ms = now_ms + rebalance_ms
        self.state = COMPLETING
        for member in self._roster:
            if member.joining is not None:
                self._unsynced.add(member.member_id)
                member.is_new = False
                self._keep_alive(member, now_ms)
                answers += member.end_join(self._join_answer(member))
        return answers

    # What transitions are made of.

    def _find_in_generation(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ClassicMember | GroupError:
        if self.state == DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        found = self._roster.find(member_id, instance_id)
        if isinstance(found, ClassicMember) and generation != self.generation:
            return GroupError.ILLEGAL_GENERATION
        return found

    def _keep_alive(self, member: ClassicMember, now_ms: int) -> None:
        # A new member's time to join is not a session and is not prolonged.
        if not member.is_new:
            member.expires_ms = now_ms + member.session_timeout_ms

    def _remove(
        self, member: ClassicMember, error: GroupError = GroupError.UNKNOWN_MEMBER_ID
    ) -> list[Answer]:
        self._unsynced.discard(member.member_id)
        self._roster.remove(member)
        answers = member.end_join(JoinAnswer(error, member.member_id))
        return answers + member.end_sync(SyncAnswer(error))

    def _join_answer(self, member: ClassicMember) -> JoinAnswer:
        return self._roster.join_answer(member, self.generation, self._protocol)

    def _answer_sync(self, member: ClassicMember, now_ms: int) -> list[Answer]:
        if member.syncing is None:
            return []
        self._keep_alive(member, now_ms)
        kind, part = self._roster.protocol_type, member.assignment
        return member.end_sync(SyncAnswer(GroupError.NONE, kind, self._protocol, part))
