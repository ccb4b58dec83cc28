"""A door as its contract sees it: what one can ask for, and what comes back.

    test  -->  Door  -->  the SDK, HTTP, a WebSocket or gRPC  -->  one and the same node

Values, keys and headers are bytes, times are seconds, moments are milliseconds since
1970. What a door refuses is `Refused` with the code that all doors share. Adapters
translate and decide nothing, so what a test finds is the door's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from headrace.core.trace_values import MessageTrace

Act = Literal["ack", "nack", "reject", "extend", "release"]


class Refused(Exception):
    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class New(NamedTuple):
    """A message to publish."""

    value: bytes | None
    key: bytes | None = None
    headers: Mapping[str, bytes] = {}
    # As every door names them: priority, delay, ttl, max_attempts, visibility, dedup_id.
    attributes: Mapping[str, Any] = {}
    partition: int | None = None


class Place(NamedTuple):
    partition: int
    offset: int
    duplicate: bool = False


class Seen(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes | None]


class Leased(NamedTuple):
    seen: Seen
    receipt: str
    attempt: int
    max_attempts: int
    error: str | None

    @property
    def value(self) -> bytes | None:
        return self.seen.value


class Letter(NamedTuple):
    # Its own place and the one it came from, as in orders.dlq:0:17.
    id: str
    source: str
    group: str
    value: bytes | None
    error: str | None
    attempts: int
    redrives: int


class Counts(NamedTuple):
    depth: int
    ready: int
    leased: int
    retrying: int
    delayed: int
    delivered: int
    acked: int
    nacked: int
    dead_lettered: int
    expired: int


class Door(Protocol):
    # Topics.

    def create_topic(self, name: str, partitions: int = 1, **settings: Any) -> None: ...

    def topics(self) -> list[str]: ...

    def bounds(self, topic: str) -> list[tuple[int, int]]:
        """The first offset and the one behind the last, of each partition."""

    def grow(self, topic: str, partitions: int) -> None: ...

    def delete_topic(self, name: str) -> None: ...

    # Messages.

    def publish(self, topic: str, *messages: New) -> list[Place]: ...

    def publish_headers(self, topic: str, headers: Mapping[str, bytes]) -> None:
        """A message `v` with headers of any name."""

    def transact(self, messages: Sequence[tuple[str, New]], acks: Sequence[str]) -> list[Place]:
        """All of it or nothing."""

    def read(
        self, topic: str, partition: int, offset: int, count: int
    ) -> tuple[list[Seen], int]: ...

    # Queues.

    def lease(
        self,
        topics: str | Sequence[str],
        group: str,
        count: int = 10,
        *,
        visibility: float | None = None,
        settings: Mapping[str, Any] = {},
    ) -> list[Leased]:
        """What is ready now."""

    def settle(self, act: Act, receipts: Sequence[str], **options: Any) -> list[str | None]:
        """For each the code with which it was refused, or None."""

    def status(self, topic: str, offset: int, group: str) -> tuple[str, int]:
        """The state of a message of partition 0, and its attempts."""

    def counts(self, group: str) -> Counts: ...

    # Delayed messages and dead letters.

    def delayed(self, topic: str) -> list[tuple[bytes | None, int]]:
        """Values, and when they come due."""

    def cancel(self, topic: str, place: Place) -> bool: ...

    def letters(self, topic: str, group: str | None = None) -> list[Letter]: ...

    def redrive(
        self, topic: str, letters: Sequence[Letter], *, dry_run: bool = False
    ) -> tuple[int, int, int]:
        """How many were found, sent back in place, and sent back as copies."""

    def purge(self, topic: str, letters: Sequence[Letter]) -> int: ...

    # Traces.

    def trace(self, what: str) -> MessageTrace:
        """By an id or a receipt."""

    def traces(self, **choice: Any) -> list[MessageTrace]:
        """By topic, key, header (a name and a value or None), group, outcome, and since
        and until, which are moments."""

    # Groups.

    def groups(self) -> dict[str, str]:
        """The kind of each, by name."""

    def delete_group(self, name: str) -> None: ...

    def seek(self, group: str, topic: str, offset: int) -> None:
        """A stream group goes on there, in partition 0."""

    def cursor(self, group: str, topic: str) -> int | None:
        """Where it goes on in partition 0."""

    def close(self) -> None: ...
