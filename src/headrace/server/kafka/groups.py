"""Groups that live: the coordinators, driven by requests and by time.

    JoinGroup, SyncGroup ──> a reply number ──> ClassicGroup ──> answers, now or later
                                  |                                   |
                                  └── a future  <─────────────────────┘
    a timer for each group (group_timers.py) ──> tick ──> answers

A name means one group, whoever speaks of it: queue groups of the catalog, stream
groups with members inside this process, and groups of Kafka's protocols do not mix;
but the two protocols of consumers do (engine/coordinator/mixed.py). What a stream
group has committed is one table, though, so a program can go from the SDK to a Kafka
client and back under the same name.

What members know is on disk before they are told (member_journal.py): they outlive a restart.

Patterns of members are matched in turns of about a millisecond, one group at a time and
with pauses, however many groups have some to match.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from headrace.core import limits
from headrace.engine.catalog import Catalog
from headrace.engine.coordinator.budget import GroupBudget, growth
from headrace.engine.coordinator.classic import ClassicGroup
from headrace.engine.coordinator.consumer import ConsumerGroup
from headrace.engine.coordinator.mixed import MixedGroup, downgraded, upgraded
from headrace.engine.coordinator.refusals import is_sound
from headrace.engine.coordinator.registry import CoordinatedGroup, GroupRegistry
from headrace.engine.coordinator.share import ShareGroup
from headrace.engine.coordinator.sizes import protocols_bytes, text_bytes
from headrace.engine.coordinator.streams.group import StreamsGroup
from headrace.engine.coordinator.streams.values import StreamsAnswer, StreamsRequest
from headrace.engine.coordinator.values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    Answer,
    GroupError,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)
from headrace.server.kafka.group_timers import GroupTimers
from headrace.server.kafka.held import Held
from headrace.server.kafka.live_settings import LiveSettings
from headrace.server.kafka.member_journal import KeptGroup, MemberJournal, told
from headrace.server.kafka.names import is_listed, kafka_name
from headrace.server.service import Service

# Between two turns of matching patterns; others are served meanwhile.
_MATCHING_PAUSE_SECONDS = 0.002


class LiveGroups:
    def __init__(
        self,
        service: Service,
        settings: LiveSettings,
        memory_bytes_max: int = limits.GROUPS_MEMORY_BYTES,
    ) -> None:
        self.budget = GroupBudget(memory_bytes_max)
        # All that is kept for clients; what groups keep is part of it.
        self.held = Held(self.budget, service.new_id)
        self.settings = settings
        self.registry = GroupRegistry(rules_of=settings.rules, on_forgotten=self.budget.forget)
        self.service = service
        self._loop = service.loop
        self._last_reply = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._timers = GroupTimers(self._loop, self._on_due)
        # Groups with patterns to match, those that waited longest first.
        self._behind: dict[str, ConsumerGroup] = {}
        self._catalog: Catalog | None = None
        self._topics: Mapping[str, tuple[bytes, int]] = {}
        self._journal = MemberJournal(service)
        for group in self._journal.restored(settings.rules, self.topics(), self.now_ms()):
            self._replace(group)

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def new_id(self) -> str:
        """For a member's id: one that nobody ever had."""
        return str(UUID(bytes=self.service.entropy.random_bytes(16)))

    def _note_read(self, name: str) -> None:
        """A member was heard of: its group is read."""
        self.service.broker.readers.note(name, self.service.clock.now_ms())

    # The classic protocol.

    def join(self, name: str, request: JoinRequest) -> asyncio.Future[JoinAnswer]:
        reply, future = self._new_reply()
        size = protocols_bytes(request.protocols) + text_bytes(*request[:3])
        refusal = self._refuse(name) or self.refuse_size(name, size)
        mixed = None if refusal else self._mixed(name)
        if mixed is not None:
            mixed.obey(self.settings.rules(name))
            answer = mixed.on_join(request, self.topics(), self.now_ms())
            self._answer(mixed, [Answer(reply, answer)])
            self._note_read(name)
            self._on_changed(mixed)
            return future
        group = refusal or self.registry.classic(name)
        if isinstance(group, GroupError):
            self._release([Answer(reply, JoinAnswer(group, request.member_id))])
        else:
            self._answer(group, group.on_join(reply, request, self.now_ms()))
            self._note_read(name)
            self._arm(group)
        return future

    def sync(self, name: str, request: SyncRequest) -> asyncio.Future[SyncAnswer]:
        reply, future = self._new_reply()
        size = sum(map(len, request.assignments.values()))
        mixed = self._mixed(name)
        if mixed is not None:
            answer = mixed.on_sync(request, self.topics(), self.now_ms())
            self._answer(mixed, [Answer(reply, answer)])
            self._arm(mixed)
            return future
        group = self.refuse_size(name, size) or self._find_classic(name)
        if isinstance(group, GroupError):
            self._release([Answer(reply, SyncAnswer(group))])
        else:
            self._answer(group, group.on_sync(reply, request, self.now_ms()))
            self._arm(group)
        return future

    def heartbeat(
        self, name: str, member_id: str, instance_id: str | None, generation: int
    ) -> GroupError:
        mixed = self._mixed(name)
        if mixed is not None:
            self._note_read(name)
            error = mixed.on_classic_heartbeat(member_id, instance_id, generation, self.now_ms())
            self._arm(mixed)
            return error
        group = self._find_classic(name)
        if isinstance(group, GroupError):
            return group
        # It moves a deadline back at most: the timer will see when it goes off.
        self._note_read(name)
        return group.on_heartbeat(member_id, instance_id, generation, self.now_ms())

    def leave(
        self, name: str, members: Sequence[tuple[str, str | None]]
    ) -> GroupError | tuple[GroupError, ...]:
        """An error for all of them, or one for each. Members of a consumer group
        leave by themselves; here an administrator sends them away."""
        consumers = self.registry.find(name)
        if isinstance(consumers, ConsumerGroup):
            return self._send_away(consumers, members)
        group = self._find_classic(name)
        if isinstance(group, GroupError):
            return group
        outcome = group.on_leave(members, self.now_ms())
        self._answer(group, outcome.answers)
        self._arm(group)
        self._note_read(name)
        return outcome.errors

    def _find_classic(self, name: str) -> ClassicGroup | GroupError:
        if not is_group_id(name):
            return GroupError.INVALID_GROUP_ID
        group = self.registry.find(name)
        # A member of a group that this node does not know joined it before the
        # node was started; it has to join again.
        return group if isinstance(group, ClassicGroup) else GroupError.UNKNOWN_MEMBER_ID

    # From one protocol to the other.

    def _mixed(self, name: str) -> MixedGroup | None:
        """The group, where the broker assigns and members of the classic protocol may be
        among the others."""
        group = self.registry.find(name)
        return group if isinstance(group, MixedGroup) and not group.is_empty() else None

    def _upgrade(self, name: str) -> str | None:
        """Have a classic group with members go on with assignment by the broker. Returns
        why not, if it does not."""
        group = self.registry.find(name)
        if not isinstance(group, ClassicGroup) or group.is_empty():
            return None
        made = upgraded(group, self.settings.rules(name), self.topics(), self.now_ms())
        if isinstance(made, str):
            return made
        self._release(group.become_dead(GroupError.REBALANCE_IN_PROGRESS))
        self._replace(made)
        return None

    def _on_changed(self, group: ConsumerGroup) -> None:
        """Members may have come or gone. With the last one of the consumer protocol the
        group goes on as a classic one, if it may."""
        rules = self.settings.rules(group.name)
        if (
            isinstance(group, MixedGroup)
            and rules.migration in ("bidirectional", "downgrade")
            and group.has_only_classic()
        ):
            self._replace(downgraded(group, rules, self.topics(), self.now_ms()))
            return
        self.budget.note(group)
        self._match_later(group)
        self._arm(group)

    def _replace(self, group: KeptGroup) -> None:
        self.registry.replace(group)
        self._timers.cancel(group.name)
        self.budget.note(group)
        self._arm(group)

    # The consumer protocol.

    def consumer_heartbeat(
        self, name: str, request: HeartbeatRequest
    ) -> tuple[HeartbeatAnswer, asyncio.Future[None] | None]:
        """The answer, and what it has to wait for: what it says is being written."""
        refusal = self._refuse(name, GroupError.GROUP_ID_NOT_FOUND)
        names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
        more = growth(self.registry.find(name), request, self.topics())
        if more and not refusal:
            refusal = self.refuse_size(name, more)
        reason = None
        if not refusal and request.member_epoch == JOIN_EPOCH and is_sound(request):
            reason = self._upgrade(name)
        group = refusal or self.registry.consumer(name)
        if isinstance(group, GroupError):
            reason = reason or _REASONS[group]
            reason = f"{name!r} cannot be a group with assignment by the broker: {reason}"
            member, epoch = request.member_id, request.member_epoch
            return HeartbeatAnswer(group, reason, member, epoch, 0, None), None
        answer = group.on_heartbeat(request, self.topics(), self.now_ms())
        waiting = self._journal.write(group)
        self._note_read(name)
        if answer.assignment is not None or request.member_epoch <= 0:
            self._arm(group)
        if more or names is not None or pattern is not None or request.member_epoch <= 0:
            self._on_changed(group)
        self._match_later(group)
        return answer, waiting

    # Streams groups.

    def streams_heartbeat(
        self, name: str, request: StreamsRequest
    ) -> tuple[StreamsAnswer, asyncio.Future[None] | None]:
        """The answer, and what it has to wait for: what it says is being written."""
        refusal = self._refuse(name, GroupError.GROUP_ID_NOT_FOUND)
        more = growth(self.registry.find(name), request, self.topics())
        if more and not refusal:
            refusal = self.refuse_size(name, more)
        group = refusal or self._find_streams(name, request.member_epoch)
        if isinstance(group, GroupError):
            reason = f"{name!r} cannot be a streams group: {_REASONS[group]}"
            return StreamsAnswer(group, reason, request.member_id, request.member_epoch), None
        answer = group.on_heartbeat(request, self.topics(), self.now_ms())
        waiting = self._journal.write(group)
        self._note_read(name)
        if more or answer.assignment is not None or request.member_epoch <= 0:
            self.budget.note(group)
        if answer.assignment is not None or request.member_epoch <= 0:
            self._arm(group)
        return answer, waiting

    def _find_streams(self, name: str, member_epoch: int) -> StreamsGroup | GroupError:
        """Only a member that joins makes a group. Others have to join again: Kafka's client would
        give up if its group were not found."""
        if member_epoch != JOIN_EPOCH and self.registry.find(name) is None:
            return GroupError.UNKNOWN_MEMBER_ID
        return self.registry.streams(name)

    def topics(self) -> Mapping[str, tuple[bytes, int]]:
        """What members may subscribe to: name to id and number of partitions."""
        catalog = self.service.broker.topics.catalog
        if catalog is not self._catalog:
            self._catalog = catalog
            self._topics = {
                kafka_name(topic): (topic.id, topic.partitions)
                for topic in catalog.topics.values()
                if is_listed(topic)
            }
        return self._topics

    def _send_away(
        self, group: ConsumerGroup, members: Sequence[tuple[str, str | None]]
    ) -> tuple[GroupError, ...]:
        instances = {each.instance_id: each.member_id for each in group.describe().members}
        errors = []
        for member_id, instance_id in members:
            if not member_id and instance_id is not None:
                member_id = instances.get(instance_id, "")
            leaving = HeartbeatRequest(member_id or "-", LEAVE_EPOCH, instance_id)
            answer = group.on_heartbeat(leaving, self.topics(), self.now_ms())
            errors.append(answer.error)
        self._journal.write(group)
        self._on_changed(group)
        return tuple(errors)

    # Offsets.

    def check_commit(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        partitions: Callable[[], Iterable[tuple[str, int]]] = tuple,
        *,
        transactional: bool = False,
    ) -> GroupError:
        """Whether a caller with these credentials may commit for the group now, of these
        partitions by topic."""
        refusal = self._refuse(name, GroupError.GROUP_ID_NOT_FOUND, members=False)
        if refusal is not GroupError.NONE:
            return refusal
        if self.service.broker.cursors.members(name):
            return GroupError.UNKNOWN_MEMBER_ID
        group = self.registry.find(name)
        if isinstance(group, ClassicGroup):
            return group.check_commit(
                member_id, instance_id, generation, self.now_ms(), transactional=transactional
            )
        if isinstance(group, ConsumerGroup):
            return group.check_commit(member_id, generation, transactional=transactional)
        if isinstance(group, StreamsGroup):
            return group.check_commit(
                member_id, generation, partitions, transactional=transactional
            )
        return GroupError.UNKNOWN_MEMBER_ID if generation >= 0 else GroupError.NONE

    def check_fetch(self, name: str, member_id: str | None, member_epoch: int) -> GroupError:
        refusal = self._refuse(name, GroupError.GROUP_ID_NOT_FOUND, members=False)
        if refusal is not GroupError.NONE:
            return refusal
        group = self.registry.find(name)
        if isinstance(group, ConsumerGroup | StreamsGroup):
            return group.check_fetch(member_id, member_epoch)
        # Of a group that this node does not know, since it was started anew, every caller may
        # read what was committed. Kafka Streams would end if its task were refused that; it learns
        # by its next heartbeat that it has to join again, and may not commit before.
        return GroupError.NONE

    def has_members(self, name: str) -> bool:
        group = self.registry.find(name)
        return group is not None and not group.is_empty()

    def streams_with_members(self) -> list[str]:
        """Members of a share group are consumers of its queue, and known as such."""
        return [
            group.name
            for group in self.registry
            if not isinstance(group, ShareGroup) and not group.is_empty()
        ]

    # Kinds.

    def is_queue(self, name: str) -> bool:
        return name in self.service.broker.topics.catalog.groups

    def _refuse(
        self,
        name: str,
        other_kind: GroupError = GroupError.INCONSISTENT_GROUP_PROTOCOL,
        *,
        members: bool = True,
    ) -> GroupError:
        """Why the name cannot be that of a Kafka group; with `members`, also
        when members inside this process read as that group."""
        if not is_group_id(name):
            return GroupError.INVALID_GROUP_ID
        if self.is_queue(name):
            return other_kind
        if members and self.service.broker.cursors.members(name):
            return other_kind
        return GroupError.NONE

    def delete(self, name: str) -> GroupError:
        """Forget a group without members; its offsets are not touched."""
        error = self.registry.delete(name)
        if error is GroupError.NONE:
            self.budget.forget(name)
            self._timers.cancel(name)
            self._journal.forget(name)
        return error

    def refuse_size(self, name: str, more: int) -> GroupError:
        """Whether what a member says fits into the budget. If not, it is told to come
        again, unless groups that never got stable make room."""
        if self.held.has_room(more):
            return GroupError.NONE
        for idle in self.budget.idle():
            if idle != name:
                self.delete(idle)
                if self.held.has_room(more):
                    return GroupError.NONE
        for group in self.budget.unstable():
            if group.name != name:
                members = [(each, None) for each in group.member_ids()]
                outcome = group.on_leave(members, self.now_ms())
                self._answer(group, outcome.answers)
                self.budget.forget(group.name)
                self.delete(group.name)
                if self.held.has_room(more):
                    return GroupError.NONE
        return GroupError.COORDINATOR_LOAD_IN_PROGRESS

    # Replies and time.

    def _new_reply(self) -> tuple[int, asyncio.Future[Any]]:
        self._last_reply += 1
        future = self._waiting[self._last_reply] = self._loop.create_future()
        return self._last_reply, future

    def _release(self, answers: list[Answer]) -> None:
        for reply, message in answers:
            future = self._waiting.pop(reply, None)
            if future is not None and not future.done():
                future.set_result(message)

    def _answer(self, group: CoordinatedGroup, answers: list[Answer]) -> None:
        """Release these when what members know of the group is on disk."""
        waiting = self._journal.write(group)
        if waiting is None:
            self._release(answers)
        else:
            waiting.add_done_callback(lambda done: self._release(told(answers, done)))

    def _arm(self, group: CoordinatedGroup) -> None:
        if isinstance(group, ClassicGroup):
            self.budget.note(group)
        self._timers.arm(group)

    def close(self) -> None:
        """No time passes any more: what ends from now on is not written."""
        self._timers.close()
        self._behind.clear()

    def _on_due(self, group: CoordinatedGroup) -> None:
        if self.registry.find(group.name) is not group:
            return
        now_ms = self.now_ms()
        if isinstance(group, ClassicGroup):
            self._answer(group, group.tick(now_ms))
        elif isinstance(group, ConsumerGroup):
            group.tick(now_ms, self.topics())
            self._journal.write(group)
            self._on_changed(group)
            return
        elif isinstance(group, StreamsGroup):
            group.tick(now_ms)
            self._journal.write(group)
            self.budget.note(group)
        self._arm(group)

    def _match_later(self, group: ConsumerGroup) -> None:
        if group.is_behind() and group.name not in self._behind:
            self._behind[group.name] = group
            if len(self._behind) == 1:
                self._loop.call_later(_MATCHING_PAUSE_SECONDS, self._on_turn)

    def _on_turn(self) -> None:
        """Match patterns of one group for a while."""
        name = next(iter(self._behind), None)
        if name is None:
            return
        group = self._behind.pop(name)
        if self.registry.find(name) is group:
            group.tick(self.now_ms(), self.topics())
            self._journal.write(group)
            self.budget.note(group)
            self._arm(group)
            if group.is_behind():
                self._behind[name] = group
        if self._behind:
            self._loop.call_later(_MATCHING_PAUSE_SECONDS, self._on_turn)


_REASONS = {
    GroupError.INVALID_GROUP_ID: "that is no group id",
    GroupError.GROUP_ID_NOT_FOUND: "there is a group of another kind with this name",
    GroupError.UNKNOWN_MEMBER_ID: "there is no such group now: join again",
    GroupError.COORDINATOR_LOAD_IN_PROGRESS: "all groups together keep as much as they may",
    GroupError.POLICY_VIOLATION: f"there are {limits.GROUPS_MAX} groups, the most allowed",
}


def is_group_id(name: str) -> bool:
    # Kafka's clients are freer with groups than with topics: any characters do.
    return 0 < len(name) <= limits.NAME_CHARACTERS_MAX
