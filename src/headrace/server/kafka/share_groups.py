"""Share groups that live: members, their sessions, and the end of either.

A share group is a queue group of the catalog; its members are its consumers. It is
made by its first heartbeat. A session says once which partitions a member asks;
it is the member's on this connection, and when it ends what the member holds goes
back at once, at no cost.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from headrace.core.errors import UnknownTopic
from headrace.engine.catalog import Group, Topic
from headrace.engine.coordinator.share import ShareGroup
from headrace.engine.coordinator.values import GroupError, HeartbeatAnswer, ShareRequest
from headrace.engine.partition import Partition
from headrace.server.kafka.errors import Error
from headrace.server.kafka.groups import LiveGroups
from headrace.server.service import Service

SESSIONS_MAX = 10_000
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1

Place = tuple[bytes, int]


class ShareSession:
    def __init__(self, group: str, member: str) -> None:
        self.group = group
        self.member = member
        self.epoch = 1
        self.places: OrderedDict[Place, None] = OrderedDict()

    def change(
        self,
        added: Iterable[tuple[bytes, Sequence[int]]],
        gone: Iterable[tuple[bytes, Sequence[int]]],
    ) -> None:
        for topic_id, partitions in added:
            for index in partitions:
                self.places[topic_id, index] = None
        for topic_id, partitions in gone:
            for index in partitions:
                self.places.pop((topic_id, index), None)


class LiveShares:
    def __init__(self, service: Service, groups: LiveGroups) -> None:
        self._service = service
        self._groups = groups
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # Members.

    async def heartbeat(self, name: str, request: ShareRequest) -> HeartbeatAnswer:
        group = self._find(name)
        if isinstance(group, GroupError):
            reason = f"{name!r} is the name of a group of another kind"
            return HeartbeatAnswer(group, reason, request.member_id, 0, 0, None)
        answer = group.on_heartbeat(request, self._groups.topics(), self._groups.now_ms())
        if request.member_epoch == FINAL_EPOCH:
            self.end_session(name, request.member_id)
        elif request.subscribed_topic_names is not None and answer.error == GroupError.NONE:
            await self._subscribe(name, request.subscribed_topic_names)
        self._arm(name, group)
        return answer

    def _find(self, name: str) -> ShareGroup | GroupError:
        known = self._service.broker.topics.catalog.groups.get(name)
        if known is None and self._service.broker.cursors.of(name):
            return GroupError.GROUP_ID_NOT_FOUND
        return self._groups.registry.share(name)

    async def _subscribe(self, name: str, topics: Sequence[str]) -> None:
        """The queue group begins to read what its members subscribe to. A group
        that nobody configured starts at the end, as Kafka's do."""
        broker, catalog = self._service.broker, self._service.broker.topics.catalog
        found = [
            catalog.topics[topic]
            for topic in topics
            if topic in catalog.topics and not catalog.topics[topic].is_internal
        ]
        group = catalog.groups.get(name)
        if found and (group is None or any(topic.id not in group.topics for topic in found)):
            commit = self._service.commit()
            settings = {"start": "latest"} if group is None else {}
            broker.groups.open(name, found, settings, self._service.clock.now_ms(), commit)
            await self._service.finish(commit)

    def describe(self, name: str) -> ShareGroup | None:
        found = self._groups.registry.find(name)
        return found if isinstance(found, ShareGroup) else None

    def _arm(self, name: str, group: ShareGroup) -> None:
        deadline_ms = group.next_deadline_ms()
        if deadline_ms is not None and name not in self._timers:
            self._timers[name] = self._service.loop.call_at(
                deadline_ms / 1000, self._on_timer, name, group
            )

    def _on_timer(self, name: str, group: ShareGroup) -> None:
        del self._timers[name]
        for member in group.tick(self._groups.now_ms(), self._groups.topics()):
            self.end_session(name, member)
        self._arm(name, group)

    # Sessions.

    def open_session(self, name: str, member: str) -> ShareSession | Error:
        if len(self._sessions) >= SESSIONS_MAX:
            return Error.SHARE_SESSION_LIMIT_REACHED
        session = self._sessions[name, member] = ShareSession(name, member)
        return session

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
        """Whatever the member holds is anybody's again."""
        session = self._sessions.pop((name, member), None)
        group = self._service.broker.topics.catalog.groups.get(name)
        if group is not None:
            now_ms = self._service.clock.now_ms()
            self._service.broker.sharing.release_all(group, member, now_ms)
        if session is not None:
            self._service.wake_partitions(self.partitions(session.places))

    # Finding.

    def group(self, name: str) -> Group | None:
        return self._service.broker.topics.catalog.groups.get(name)

    def partitions(self, places: Iterable[Place]) -> list[Partition]:
        topics = self._service.broker.topics
        return [found for place in places if (found := topics.find(*place)) is not None]

    def topic(self, topic_id: bytes) -> Topic:
        topic = self._service.broker.topics.catalog.topics_by_id.get(topic_id)
        if topic is None:
            raise UnknownTopic("there is no topic with this id")
        return topic
