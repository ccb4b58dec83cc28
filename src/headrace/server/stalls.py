"""Connections that take a place and get nowhere: when one is cut, and how many a client
address may have.

    head     a request's head has to come whole within the limit
    body     a body, or a frame, has to get on by a kilobyte within the limit
    answer   likewise what the client takes of its answers
    idle     a connection without a request may stay silent for longer

What waits for us is never cut: a long poll, a tail, a subscription that answers pings.

Answers that clients have not taken are bounded in sum, too, since a thousand who read
nothing would each hold some megabytes: when it is too much, those are cut who have got on
least lately ("memory"): once a second, and at HTTP, where hundreds of large answers can be made
in less, also at once, if they have taken nothing for as long as DEAF_SECONDS.

A client address may have so many connections at one door, so that one machine cannot
take all the places. Those of this machine are not counted, since a proxy, or every
client of a small installation, may be one of them.

Likewise large frames that are arriving at the Kafka door, and bodies and messages of WebSockets
at the HTTP door, which hold memory for as long as they take: when they have most of the room
that there is, those are cut that get on slowest, so that others find some.

Rejected: a limit on the whole time of a body. Large bodies over slow lines are honest, and
nobody minds them while there is room.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

# One byte now and then is not getting on.
PROGRESS_BYTES_MIN = 1024
# Who has taken nothing for so long may be cut between two sweeps. A client that reads takes
# some of its answer in a few thousandths of that.
DEAF_SECONDS = 0.1
# How long a frame has to have been arriving before it is called slow.
STEADY_SECONDS = 10.0
# Of the room for what is arriving, beyond which the slowest are cut.
ROOM_PART = 0.75


class Watch:
    """Whether something gets on while it is waited for."""

    __slots__ = ("_began", "_seen")

    def __init__(self) -> None:
        self._began: float | None = None
        self._seen = 0

    def is_stalled(self, now: float, limit_seconds: float, total: int, *, waits: bool) -> bool:
        """`total` is what has come so far, in bytes; it does not matter while nobody waits."""
        if not waits:
            self._began = None
        elif self._began is None or total - self._seen >= PROGRESS_BYTES_MIN:
            self._began, self._seen = now, total
        else:
            return now - self._began >= limit_seconds
        return False

    def reset(self) -> None:
        """Something else is waited for from now on."""
        self._began = None

    @property
    def began(self) -> float:
        """Since when it is waited for without getting on."""
        return float("inf") if self._began is None else self._began


class Taker(Protocol):
    """A connection, as far as it takes its answers."""

    answer_watch: Watch

    @property
    def untaken_bytes(self) -> int: ...


T = TypeVar("T", bound=Taker)


class Untaken(Generic[T]):
    """What clients have not taken of their answers, in sum, as of when each was noted."""

    def __init__(
        self, bytes_max: int, look: Callable[[T], object], cut: Callable[[T], None]
    ) -> None:
        """`look` brings the `answer_watch` of a connection up to now."""
        self._bytes_max = bytes_max
        self._look = look
        self._cut = cut
        self._sizes: dict[T, int] = {}
        self._total = 0

    @property
    def is_too_much(self) -> bool:
        return self._total > self._bytes_max

    def note(self, connection: T) -> None:
        size = connection.untaken_bytes
        if size and connection not in self._sizes:
            # From now on it is seen whether it gets on.
            self._look(connection)
        self._set(connection, size)

    def forget(self, connection: T) -> None:
        self._set(connection, 0)

    def bound(self, latest: float = float("inf")) -> None:
        """Cut some so that the others hold no more than is allowed: of those that have got
        nowhere since `latest`."""
        if not self.is_too_much:
            return
        for each in tuple(self._sizes):
            self._look(each)
            self._set(each, each.untaken_bytes)
        for each in sorted(self._sizes, key=lambda one: one.answer_watch.began):
            if not self.is_too_much or each.answer_watch.began > latest:
                return
            self.forget(each)
            self._cut(each)

    def _set(self, connection: T, size: int) -> None:
        self._total += size - self._sizes.get(connection, 0)
        if size:
            self._sizes[connection] = size
        else:
            self._sizes.pop(connection, None)


class Sender(Protocol):
    """A connection, as far as a large frame is arriving."""

    @property
    def large_began(self) -> float: ...

    @property
    def large_arrived(self) -> int: ...

    @property
    def room_bytes(self) -> int: ...


S = TypeVar("S", bound=Sender)


def find_slowest(connections: Iterable[S], now: float, surplus_bytes: int) -> list[S]:
    """Whom to cut so that so much less is held for large frames: those that got on by least a
    second, of those that have had time to show it."""
    if surplus_bytes <= 0:
        return []
    steady = [
        each for each in connections if each.room_bytes and now - each.large_began >= STEADY_SECONDS
    ]
    found = []
    for each in sorted(steady, key=lambda one: one.large_arrived / (now - one.large_began)):
        found.append(each)
        surplus_bytes -= each.room_bytes
        if surplus_bytes <= 0:
            break
    return found


class Addresses:
    """How many connections each client address has at a door."""

    def __init__(self, count_max: int) -> None:
        """0 allows any number. It may change."""
        self.count_max = count_max
        self._counts: Counter[str] = Counter()

    def admit(self, host: str) -> bool:
        """Count one more; every one that is counted `leave`s once."""
        if not _is_elsewhere(host):
            return True
        if self.count_max and self._counts[host] >= self.count_max:
            return False
        self._counts[host] += 1
        return True

    def leave(self, host: str) -> None:
        if _is_elsewhere(host):
            self._counts[host] -= 1
            if self._counts[host] <= 0:
                del self._counts[host]


@lru_cache(1_024)
def _is_elsewhere(host: str) -> bool:
    """Whether it is another machine's."""
    try:
        return not ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
