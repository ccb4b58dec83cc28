"""The members of groups on disk: written before they are answered, read when the node starts.

    a group has changed ──> write ──> a future, until it is safe ──> its members are answered
    the node starts ──────> restored ──> groups whose members go on as if nothing had been

Members of share groups join again after a restart: they have nothing to lose by that, since
leases and not membership decide who gets a message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from headrace.core.errors import HeadraceError
from headrace.core.event_log import log_event
from headrace.engine.coordinator.classic import ClassicGroup
from headrace.engine.coordinator.mixed import MixedGroup
from headrace.engine.coordinator.registry import CoordinatedGroup
from headrace.engine.coordinator.rules import GroupRules
from headrace.engine.coordinator.share import ShareGroup
from headrace.engine.coordinator.stored import (
    TOPOLOGY_KEY,
    ClassicRecord,
    ConsumerRecord,
    StoredMember,
    StreamsRecord,
    TopologyRecord,
)
from headrace.engine.coordinator.streams.group import StreamsGroup
from headrace.engine.coordinator.values import (
    Answer,
    GroupError,
    JoinAnswer,
    SyncAnswer,
    Topics,
)
from headrace.server.service import Service

KeptGroup = ClassicGroup | MixedGroup | StreamsGroup


class MemberJournal:
    def __init__(self, service: Service) -> None:
        self._service = service
        # By group: the members of whom something is written, and until when that is not safe.
        self._written: dict[str, set[str]] = {}
        self._under_way: dict[str, asyncio.Future[None]] = {}

    def restored(
        self, rules_of: Callable[[str], GroupRules], topics: Topics, now_ms: int
    ) -> Iterator[KeptGroup]:
        """Every group that had members when the node went."""
        broker = self._service.broker
        for name, members in broker.cursors.memberships.take():
            group = None
            if name not in broker.topics.catalog.groups:
                group = _restored(name, members, rules_of(name), topics, now_ms)
            if group is not None:
                self._written[name] = set(members)
                yield group
            elif members:
                # While no node ran, somebody made it a queue; or writing was cut short. On a
                # full disk that has to wait for the next start.
                with suppress(HeadraceError, OSError):
                    now = self._service.clock.now_ms()
                    broker.cursors.write_members(name, dict.fromkeys(members), now)

    def write(self, group: CoordinatedGroup) -> asyncio.Future[None] | None:
        """Write what is new about the group's members. Done when all that is written of them
        is safe, None if it is so already; it fails where it cannot be written."""
        if isinstance(group, ShareGroup):
            return None
        written = self._written.get(group.name, set())
        changed = group.unwritten(written)
        if not changed:
            return self._under_way.get(group.name)
        service = self._service
        commit = service.commit()
        try:
            end = service.broker.cursors.write_members(group.name, changed, service.clock.now_ms())
        except (HeadraceError, OSError) as error:
            log_event(
                service.logger,
                logging.ERROR,
                "members were not written",
                exc_info=True,
                group=group.name,
            )
            failed: asyncio.Future[None] = service.loop.create_future()
            failed.set_exception(error)
            failed.exception()
            return failed
        group.on_written()
        gone = {member for member, record in changed.items() if record is None}
        self._written[group.name] = (written | changed.keys()) - gone
        if not self._written[group.name]:
            del self._written[group.name]
        commit.data.append(end)
        waiting = service.submit(commit)
        if waiting is not None:
            self._under_way[group.name] = waiting
            waiting.add_done_callback(partial(self._on_safe, group.name))
        return waiting

    def forget(self, name: str) -> None:
        """The group is deleted. What could not be taken back when its members went goes now."""
        left = self._written.pop(name, None)
        if left:
            service = self._service
            commit = service.commit()
            with suppress(HeadraceError, OSError):
                gone, now_ms = dict.fromkeys(left), service.clock.now_ms()
                commit.data.append(service.broker.cursors.write_members(name, gone, now_ms))
            service.finish_later(commit)

    def _on_safe(self, name: str, done: asyncio.Future[None]) -> None:
        if self._under_way.get(name) is done:
            del self._under_way[name]
        # Nobody may wait for it; a failed sync is heard of elsewhere.
        _ = done.cancelled() or done.exception()


NOT_WRITTEN = "what the group agreed upon could not be written: try again"


async def is_written(waiting: asyncio.Future[None]) -> bool:
    """Wait for what is being written; whether it is safe now."""
    # Others may wait for it as well.
    await asyncio.wait([waiting])
    return not waiting.cancelled() and waiting.exception() is None


def told(answers: list[Answer], done: asyncio.Future[None]) -> list[Answer]:
    """The answers, or, where what they say was not written, that their members come again."""
    if not done.cancelled() and done.exception() is None:
        return answers
    error = GroupError.COORDINATOR_NOT_AVAILABLE
    return [
        Answer(
            reply,
            JoinAnswer(error, message.member_id)
            if isinstance(message, JoinAnswer)
            else SyncAnswer(error),
        )
        for reply, message in answers
    ]


def _restored(
    name: str, members: dict[str, StoredMember], rules: GroupRules, topics: Topics, now_ms: int
) -> KeptGroup | None:
    """The group as it was, or None if nothing of it can go on."""
    common = members.get(TOPOLOGY_KEY)
    streams = {key: each for key, each in members.items() if isinstance(each, StreamsRecord)}
    if streams and isinstance(common, TopologyRecord):
        application = StreamsGroup(name, rules=rules)
        application.restore(common, streams, topics, now_ms)
        return application
    classic = {key: each for key, each in members.items() if isinstance(each, ClassicRecord)}
    consumers = {key: each for key, each in members.items() if isinstance(each, ConsumerRecord)}
    # Both, where writing was cut short while a group went from one protocol to the other:
    # nobody was told of that, and those who are left out join again.
    if classic and not consumers:
        group = ClassicGroup(name)
        group.obey(rules)
        group.restore(classic, now_ms)
        return group
    if not consumers:
        return None
    mixed = MixedGroup(name)
    mixed.obey(rules)
    mixed.restore(consumers, topics, now_ms)
    return mixed
