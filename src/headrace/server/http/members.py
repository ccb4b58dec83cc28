"""Members of stream groups that come by HTTP: sessions, and what they have read.

A member joins with `POST /subscribe` and is of its group until it leaves or is not
heard of for a session. Partitions are shared by range, anew in each generation; who
comes with an older one is refused, and told to ask for its assignment again.

    subscribe ──> generation 4        another joins ──> generation 5
    poll, commit, heartbeat (4)  ok                     409 stale-generation

Positions are kept here between polls, and are those of the group only once they are
committed: a member that is lost takes nothing with it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from headrace.core import limits
from headrace.core.errors import HeadraceError, LimitExceeded
from headrace.server.service import Service

SESSION_SECONDS = 30.0
HEARTBEAT_SECONDS = 3.0

Place = tuple[str, int]


class UnknownMember(HeadraceError, LookupError):
    code = "unknown-member"


class Member:
    def __init__(self, group: str, id: str, topics: Sequence[str]) -> None:
        self.group = group
        self.id = id
        self.topics = topics
        self.generation = 0
        # Where the next poll of this generation reads on.
        self.positions: dict[Place, int] = {}
        # Which of them comes first the next time.
        self.turn = 0
        self.timer: asyncio.TimerHandle | None = None
        # How many of its polls are under way.
        self.polls = 0


class Members:
    def __init__(self, service: Service, on_expired: Callable[[Member], None]) -> None:
        self._service = service
        self._on_expired = on_expired
        self._members: dict[tuple[str, str], Member] = {}

    def __len__(self) -> int:
        return len(self._members)

    def new_id(self, client_id: str) -> str:
        """`clientId-hex`, with what a name may hold of the client's own."""
        name = re.sub(r"[^a-zA-Z0-9._-]", "-", client_id)[:100] or "http"
        return f"{name}-{self._service.entropy.random_bytes(8).hex()}"

    def add(self, member: Member) -> None:
        if len(self._members) >= limits.HTTP_MEMBERS_MAX:
            raise LimitExceeded(
                f"there are {limits.HTTP_MEMBERS_MAX} members already; let some of them leave"
            )
        self._members[member.group, member.id] = member
        self.touch(member)

    def find(self, group: str, id: str) -> Member:
        member = self._members.get((group, id))
        if member is None:
            raise UnknownMember(
                f"{id!r} is no member of {group!r}, or was not heard of for "
                f"{SESSION_SECONDS:g} s; subscribe again"
            )
        return member

    def touch(self, member: Member) -> None:
        """It was heard of: its session begins anew, once it has no poll under way."""
        if member.timer is not None:
            member.timer.cancel()
            member.timer = None
        if not member.polls:
            member.timer = self._service.loop.call_later(SESSION_SECONDS, self._expire, member)

    @contextmanager
    def polling(self, member: Member) -> Iterator[None]:
        """It is there for as long as it waits: a poll may last as long as a session."""
        member.polls += 1
        self.touch(member)
        try:
            yield
        finally:
            member.polls -= 1
            if self._members.get((member.group, member.id)) is member:
                self.touch(member)

    def remove(self, member: Member) -> None:
        if member.timer is not None:
            member.timer.cancel()
        self._members.pop((member.group, member.id), None)

    def _expire(self, member: Member) -> None:
        self.remove(member)
        self._on_expired(member)

    def close(self) -> None:
        for member in list(self._members.values()):
            self.remove(member)
