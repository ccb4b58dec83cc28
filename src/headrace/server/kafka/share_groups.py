"""Share groups that live: members, their sessions, and the end of either.

A share group is a queue group of the catalog; its members are its consumers. It is
made by its first heartbeat. A session says once which partitions a member asks.

    how a member goes                       what it held comes back
    it closes its session (epoch -1)        at once, at no cost
    its connection breaks                   at once; it was a delivery
    it is silent for a session              then; it was a delivery
    it leaves the group, and nothing else   after a moment, at no cost

The partitions of a member whose connection broke are others' with their next heartbeat,
unless it is heard of before: it stays a member for its session, as in Kafka.

A break counts as a delivery because a message that kills its worker must run out
of attempts at some time. A client that closes in good order leaves the group first
and sends its last acknowledgements behind that, so leaving alone ends nothing yet.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from headrace.core import limits
from headrace.core.errors import HeadraceError, InvalidName
from headrace.engine.catalog import Group, Topic
from headrace.engine.coordinator.budget import growth
from headrace.engine.coordinator.share import ShareGroup
from headrace.engine.coordinator.values import GroupError, HeartbeatAnswer, ShareRequest
from headrace.engine.partition import Partition
from headrace.server.kafka.connection import Connection
from headrace.server.kafka.errors import Error
from headrace.server.kafka.groups import LiveGroups
from headrace.server.kafka.held import SHARE_PLACE_BYTES, SHARE_SESSION_BYTES
from headrace.server.loop_calls import Calls
from headrace.server.scanning import scan_ahead
from headrace.server.service import Service
from headrace.server.slices import in_slices

FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1
# What a member may still say after it has left.
LEAVE_SECONDS = 1.0

Place = tuple[bytes, int]


class ShareSession:
    def __init__(self, group: str, member: str, connection: Connection) -> None:
        self.group = group
        self.member = member
        self.connection = connection
        self.epoch = 1
        self.is_over = False
        # It was given nothing yet.
        self.is_new = True
        self.places: OrderedDict[Place, None] = OrderedDict()
        # What it takes of the budget.
        self.held_bytes = 0
        # What ends the polls that wait for messages for it.
        self.waits: set[Callable[[], None]] = set()

    def change(
        self,
        added: Iterable[tuple[bytes, Sequence[int]]],
        gone: Iterable[tuple[bytes, Sequence[int]]],
    ) -> bool:
        """Ask these partitions too, and those no more; False when there are too
        many for one member."""
        for topic_id, partitions in gone:
            for index in partitions:
                self.places.pop((topic_id, index), None)
        for topic_id, partitions in added:
            for index in partitions:
                self.places[topic_id, index] = None
        return len(self.places) <= limits.SHARE_SESSION_PARTITIONS_MAX


class LiveShares:
    def __init__(self, service: Service, groups: LiveGroups) -> None:
        self._service = service
        self._groups = groups
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        # Whose sessions end with which connection, and by which each was last heard of.
        self._connections: dict[Connection, set[tuple[str, str]]] = {}
        self._heard_by: dict[tuple[str, str], Connection] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # Queue groups that begin to read something.
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.calls = Calls(service, door="kafka")

    # Members.

    async def heartbeat(
        self, name: str, request: ShareRequest, connection: Connection
    ) -> HeartbeatAnswer:
        more = growth(self.describe(name), request, self._groups.topics())
        no_room = self._groups.refuse_size(name, more) if more else GroupError.NONE
        group = no_room or self._find(name)
        if isinstance(group, GroupError):
            reason = f"{name!r} is the name of a group of another kind"
            if group is GroupError.COORDINATOR_LOAD_IN_PROGRESS:
                reason = "all groups together keep as much as they may; try again"
            return HeartbeatAnswer(group, reason, request.member_id, 0, 0, None)
        answer = group.on_heartbeat(request, self._groups.topics(), self._groups.now_ms())
        if more or request.subscribed_topic_names or request.member_epoch <= 0:
            self._groups.budget.note(group)
        if answer.error != GroupError.NONE:
            return answer
        self._note(name, request.member_id, connection, request.member_epoch == FINAL_EPOCH)
        if request.member_epoch == FINAL_EPOCH:
            self._service.loop.call_later(LEAVE_SECONDS, self._on_left, name, request.member_id)
        elif answer.assignment is not None:
            # Also when a topic was made, or has grown, since the member subscribed.
            refusal = await self._subscribe(name, group.subscribed_topics(), connection)
            if refusal is not None:
                return answer._replace(
                    error=GroupError.INVALID_GROUP_ID
                    if isinstance(refusal, InvalidName)
                    else GroupError.POLICY_VIOLATION,
                    message=str(refusal),
                    assignment=None,
                )
        self._arm(name, group)
        return answer

    def _find(self, name: str) -> ShareGroup | GroupError:
        known = self._service.broker.topics.catalog.groups.get(name)
        if known is None and self._service.broker.cursors.of(name):
            return GroupError.GROUP_ID_NOT_FOUND
        if known is not None and known.is_internal:
            return GroupError.GROUP_ID_NOT_FOUND
        return self._groups.registry.share(name)

    async def _subscribe(
        self, name: str, topics: Iterable[str], connection: Connection
    ) -> HeadraceError | None:
        """The queue group begins to read what its members subscribe to. A group
        that nobody configured is as Kafka's are."""
        if not self._missing(name, topics):
            return None
        # What a topic holds may take long to go through, and members ask again.
        opening = self._opening.setdefault(name, asyncio.Lock())
        async with opening:
            calls = self.calls.asked_by(connection.context)
            await scan_ahead(calls, [each.name for each in self._missing(name, topics)])
            missing = self._missing(name, topics)
            if not missing:
                return None
            broker, commit = self._service.broker, self._service.commit()
            settings, now_ms = self.first_settings(name), self._service.clock.now_ms()
            try:
                await in_slices(
                    broker.groups.opening(name, missing, settings, now_ms, commit, any_name=True),
                    self._service.wait_for,
                )
                await self._service.finish(commit)
            except HeadraceError as refusal:
                return refusal
        return None

    def _missing(self, name: str, topics: Iterable[str]) -> list[Topic]:
        """Of these topics, those that the queue group does not read everywhere."""
        broker, catalog = self._service.broker, self._service.broker.topics.catalog
        group = catalog.groups.get(name)
        return [
            topic
            for topic in map(catalog.topics.get, sorted(topics))
            if topic is not None
            and not topic.is_internal
            and (
                group is None
                or topic.id not in group.topics
                or any(group.id not in each.views for each in broker.topics.partitions(topic))
            )
        ]

    def describe(self, name: str) -> ShareGroup | None:
        found = self._groups.registry.find(name)
        return found if isinstance(found, ShareGroup) else None

    def _note(self, name: str, member: str, connection: Connection, has_left: bool) -> None:
        """By which connection a member is heard of: with it, it is away."""
        key = (name, member)
        before = self._heard_by.pop(key, None)
        if has_left or before is not connection:
            self._unlink(key, before)
        if not has_left and not connection.is_closed:
            self._heard_by[key] = connection
            self._keys_of(connection).add(key)

    def _unlink(self, key: tuple[str, str], connection: Connection | None) -> None:
        """The connection stands for this member no more, unless it does so otherwise."""
        session = self._sessions.get(key)
        if (
            connection in self._connections
            and self._heard_by.get(key) is not connection
            and (session is None or session.connection is not connection)
        ):
            self._connections[connection].discard(key)

    def _keys_of(self, connection: Connection) -> set[tuple[str, str]]:
        if connection not in self._connections:
            self._connections[connection] = set()
            connection.on_closed.append(lambda: self._on_connection_lost(connection))
        return self._connections[connection]

    def _is_member(self, name: str, member: str) -> bool:
        group = self.describe(name)
        return group is not None and group.has_member(member)

    def _on_left(self, name: str, member: str) -> None:
        if not self._is_member(name, member):
            self.end_session(name, member)

    def _arm(self, name: str, group: ShareGroup) -> None:
        deadline_ms = group.next_deadline_ms()
        if deadline_ms is None:
            return
        at, timer = deadline_ms / 1000, self._timers.get(name)
        if timer is not None:
            if timer.when() <= at:
                return
            timer.cancel()
        self._timers[name] = self._service.loop.call_at(at, self._on_timer, name, group)

    def _on_timer(self, name: str, group: ShareGroup) -> None:
        del self._timers[name]
        if self.describe(name) is not group:
            return
        gone = group.tick(self._groups.now_ms(), self._groups.topics())
        self._groups.budget.note(group)
        for member in gone:
            self._heard_by.pop((name, member), None)
            self._drop(name, member)
        self._arm(name, group)

    # Sessions.

    def open_session(self, name: str, member: str, connection: Connection) -> ShareSession | Error:
        """A new one, in place of an old one. What the member holds it keeps: it
        may have lost count of its epoch and nothing else."""
        key = (name, member)
        if key not in self._sessions and len(self._sessions) >= limits.SHARE_SESSIONS_MAX:
            return Error.SHARE_SESSION_LIMIT_REACHED
        self._forget(key)
        session = self._sessions[key] = ShareSession(name, member, connection)
        self._keys_of(connection).add(key)
        return session

    def has_room(self, session: ShareSession) -> bool:
        """Whether the session, which may have changed, fits into the budget."""
        size = SHARE_SESSION_BYTES + len(session.places) * SHARE_PLACE_BYTES
        self._groups.held.share_sessions_bytes += size - session.held_bytes
        session.held_bytes = size
        return self._groups.held.has_room(0)

    def session(self, name: str, member: str, epoch: int) -> ShareSession | Error:
        """The session that goes on, or ends, with this request."""
        found = self._sessions.get((name, member))
        if found is None:
            return Error.SHARE_SESSION_NOT_FOUND
        if epoch != FINAL_EPOCH:
            if epoch != found.epoch:
                return Error.INVALID_SHARE_SESSION_EPOCH
            found.epoch = found.epoch + 1 if found.epoch < _EPOCH_MAX else 1
        return found

    def end_session(self, name: str, member: str) -> None:
        """The member is done: whatever it holds is anybody's again."""
        self._forget((name, member))
        group = self.group(name)
        if group is not None:
            now_ms = self._service.clock.now_ms()
            freed = self._service.broker.sharing.release_all(group, member, now_ms)
            self._service.wake_partitions(freed)

    def _on_connection_lost(self, connection: Connection) -> None:
        for name, member in self._connections.pop(connection):
            session = self._sessions.get((name, member))
            # By now it may have come back over another one.
            if session is not None and session.connection is connection:
                self._drop(name, member)
            if self._heard_by.get((name, member)) is connection:
                del self._heard_by[name, member]
                group = self.describe(name)
                if group is not None:
                    group.on_away(member, self._groups.topics())

    def _drop(self, name: str, member: str) -> None:
        """The member is gone without a word: its leases are over."""
        self._forget((name, member))
        group = self.group(name)
        if group is not None:
            commit = self._service.commit()
            now_ms = self._service.clock.now_ms()
            freed = self._service.broker.sharing.end_leases(group, member, now_ms, commit)
            self._service.finish_later(commit)
            self._service.wake_partitions(freed)

    def _forget(self, key: tuple[str, str]) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            session.is_over = True
            self._groups.held.share_sessions_bytes -= session.held_bytes
            for stop in tuple(session.waits):
                stop()
            self._unlink(key, session.connection)

    # Finding.

    def group(self, name: str) -> Group | None:
        found = self._service.broker.topics.catalog.groups.get(name)
        return None if found is None or found.is_internal else found

    def idle_group(self, name: str) -> Group | Error:
        """A group that nobody reads as now, so that its offsets may change."""
        group = self.group(name)
        if group is None:
            return Error.GROUP_ID_NOT_FOUND
        live = self.describe(name)
        if (live is not None and not live.is_empty()) or (
            self._service.broker.groups.members(group, self._service.clock.now_ms())
        ):
            return Error.NON_EMPTY_GROUP
        return group

    def may_be_made(self, name: str) -> bool:
        """Whether no group of another kind has this name."""
        return not isinstance(self._find(name), GroupError)

    def first_settings(self, name: str) -> dict[str, Any]:
        """What the group begins with, as Kafka's do; nothing if it is there already."""
        if name in self._service.broker.topics.catalog.groups:
            return {}
        return self._groups.settings.share_group(name).to_mapping()

    def find(self, places: Iterable[Place]) -> tuple[list[Partition], list[Place]]:
        """The partitions that are there, and the places where there is none."""
        topics = self._service.broker.topics
        found: list[Partition] = []
        gone: list[Place] = []
        for place in places:
            partition = topics.find(*place)
            if partition is None:
                gone.append(place)
            else:
                found.append(partition)
        return found, gone
