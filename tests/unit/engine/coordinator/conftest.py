"""Short ways to say what a member asks of its group."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import count
from typing import Any

from headrace.engine.coordinator.classic import ClassicGroup
from headrace.engine.coordinator.consumer import ConsumerGroup
from headrace.engine.coordinator.values import (
    Answer,
    Assignment,
    GroupError,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)

SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str, owned: bytes = b"") -> bytes:
    """A consumer's metadata: version 1, its topics, and what only assignors read."""
    parts = [struct.pack(">hi", 1, len(topics))]
    for topic in topics:
        parts.append(struct.pack(">h", len(topic.encode())) + topic.encode())
    return b"".join(parts) + owned


def join_request(member_id: str = "", **changes: Any) -> JoinRequest:
    request = JoinRequest(
        member_id=member_id,
        group_instance_id=None,
        client_id="client",
        client_host="/10.0.0.1",
        protocol_type="consumer",
        protocols=(("range", subscription("orders")),),
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        requires_known_member_id=False,
        new_member_id="made-up",
    )
    return request._replace(**changes)


class ClassicTalk:
    """A classic group and its members' side of the conversation. Every reply is
    filed here, and an answer that nobody asked for fails the test."""

    def __init__(self, **settings: Any) -> None:
        self.group = ClassicGroup("workers", **settings)
        self.now_ms = 1_000
        self.answered: dict[int, JoinAnswer | SyncAnswer] = {}
        self._asked: set[int] = set()
        self._replies = count(1)
        self._ids = count(1)

    def join(self, member_id: str = "", **changes: Any) -> int:
        """The number of the request; its answer may come later."""
        reply = self._ask()
        if not member_id:
            changes.setdefault("new_member_id", f"m{next(self._ids)}")
        self.file(self.group.on_join(reply, join_request(member_id, **changes), self.now_ms))
        return reply

    def sync(
        self,
        member_id: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        generation: int | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        reply = self._ask()
        request = SyncRequest(
            member_id,
            instance_id,
            self.group.generation if generation is None else generation,
            protocol_type,
            protocol_name,
            assignments or {},
        )
        self.file(self.group.on_sync(reply, request, self.now_ms))
        return reply

    def heartbeat(
        self, member_id: str, generation: int | None = None, instance_id: str | None = None
    ) -> GroupError:
        if generation is None:
            generation = self.group.generation
        return self.group.on_heartbeat(member_id, instance_id, generation, self.now_ms)

    def leave(self, *members: str | tuple[str, str | None]) -> tuple[GroupError, ...]:
        named = [(member, None) if isinstance(member, str) else member for member in members]
        outcome = self.group.on_leave(named, self.now_ms)
        self.file(outcome.answers)
        return outcome.errors

    def wait(self, milliseconds: int) -> None:
        """Time passes, and the group is woken whenever it asked to be."""
        end_ms = self.now_ms + milliseconds
        while True:
            deadline_ms = self.group.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            assert deadline_ms >= self.now_ms, "a deadline that passed was left standing"
            self.now_ms = deadline_ms
            self.file(self.group.tick(self.now_ms))
            following_ms = self.group.next_deadline_ms()
            assert following_ms is None or following_ms > self.now_ms, "a tick that changes nothing"
        self.now_ms = end_ms

    def joined(self, reply: int) -> JoinAnswer:
        answer = self.answered[reply]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, reply: int) -> SyncAnswer:
        answer = self.answered[reply]
        assert isinstance(answer, SyncAnswer)
        return answer

    def stable(self, size: int) -> list[str]:
        """A stable group of this many members m1, m2, ...; the first leads."""
        ids: list[str] = []
        for _ in range(size):
            reply = self.join()
            for member_id in ids:
                self.join(member_id)
            ids.append(self.joined(reply).member_id)
        for member_id in ids[1:]:
            self.sync(member_id)
        self.sync(ids[0], {member_id: member_id.encode() for member_id in ids})
        assert self.group.state == "Stable"
        return ids

    def file(self, answers: list[Answer]) -> None:
        for reply, message in answers:
            assert reply in self._asked and reply not in self.answered
            self.answered[reply] = message

    def _ask(self) -> int:
        reply = next(self._replies)
        self._asked.add(reply)
        return reply


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def topics(**sizes: int) -> dict[str, tuple[bytes, int]]:
    return {name: (topic_id(name), size) for name, size in sizes.items()}


class ConsumerTalk:
    """A consumer group, and members that do at once what they are told, unless
    a test has them say something else."""

    def __init__(self, catalog: dict[str, tuple[bytes, int]], **settings: Any) -> None:
        self.group = ConsumerGroup("readers", **settings)
        self.catalog = catalog
        self.now_ms = 1_000
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Assignment] = {}

    def join(self, member_id: str, /, *names: str, **changes: Any) -> HeartbeatAnswer:
        request = HeartbeatRequest(
            member_id,
            0,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=names or ("orders",),
            owned=(),
        )
        return self.send(request._replace(**changes))

    def beat(self, member_id: str, **changes: Any) -> HeartbeatAnswer:
        """A heartbeat that says what the member has."""
        request = HeartbeatRequest(
            member_id, self.epochs[member_id], owned=self.owned.get(member_id, ())
        )
        return self.send(request._replace(**changes))

    def leave(self, member_id: str, **changes: Any) -> HeartbeatAnswer:
        return self.send(HeartbeatRequest(member_id, -1)._replace(**changes))

    def send(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        answer = self.group.on_heartbeat(request, dict(self.catalog), self.now_ms)
        if answer.error is GroupError.NONE:
            self.epochs[answer.member_id] = answer.member_epoch
            if answer.assignment is not None:
                self.owned[answer.member_id] = answer.assignment
        return answer

    def settle(self, *member_ids: str) -> None:
        for _ in range(2 * len(member_ids) + 2):
            for member_id in member_ids:
                assert self.beat(member_id).error is GroupError.NONE
        assert self.group.state() == "Stable"

    def wait(self, milliseconds: int) -> list[str]:
        self.now_ms += milliseconds
        return self.group.tick(self.now_ms, dict(self.catalog))

    def numbers(self, member_id: str, name: str = "orders") -> tuple[int, ...]:
        return dict(self.owned[member_id]).get(topic_id(name), ())
