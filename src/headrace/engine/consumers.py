"""Who reads as a group, and when somebody last did.

    stays      opened the queue and says when it leaves: SDK, WebSocket, gRPC's streams,
               members of share groups
    visits     leases call by call, over HTTP or gRPC: it is there while it waits for
               messages or holds some

A visitor is forgotten when somebody lists the group, or when there are many of them:
nothing is written, and nobody has to watch the clock for it.

Rejected: one member for all visitors without an id. They would share what one consumer
may hold, and nobody could see whose a lease is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager

from headrace.core import limits

# When there are twice as many visitors as at the last look and so many more, it is looked
# again who holds something.
VISITORS_MORE = 32


class Consumers:
    """Of one queue group."""

    def __init__(self) -> None:
        self._staying: set[str] = set()
        # Those who were given a lease by a single call; they may hold it no more.
        self._visiting: set[str] = set()
        self._waiting: Counter[str] = Counter()
        self._looked_at = 0

    def __len__(self) -> int:
        """How many are kept in memory."""
        return len(self._staying) + len(self._visiting) + len(self._waiting)

    def stay(self, consumer: str) -> None:
        self._staying.add(consumer)

    def leave(self, consumer: str) -> None:
        self._staying.discard(consumer)
        self._visiting.discard(consumer)

    def on_leased(self, consumer: str, holders: Callable[[], Set[str]]) -> None:
        """It was given something. `holders` are the owners of leases that go on; they are
        asked for once in many calls."""
        if consumer in self._staying:
            return
        self._visiting.add(consumer)
        if len(self._visiting) > 2 * self._looked_at + VISITORS_MORE:
            self._forget(holders())

    @contextmanager
    def waiting(self, consumer: str) -> Iterator[None]:
        """A visitor is there while its call is."""
        self._waiting[consumer] += 1
        try:
            yield
        finally:
            self._waiting[consumer] -= 1
            if not self._waiting[consumer]:
                del self._waiting[consumer]

    def present(self, holders: Callable[[], Set[str]]) -> set[str]:
        if self._visiting:
            self._forget(holders())
        return {*self._staying, *self._visiting, *self._waiting}

    def _forget(self, holders: Set[str]) -> None:
        self._visiting &= holders
        self._looked_at = len(self._visiting)


class Readers:
    """When somebody last leased or polled, by group of either kind. What is older than
    GROUP_UNREAD_MS need not be remembered."""

    def __init__(self, now_ms: int) -> None:
        # Who read before the start has as long to come back.
        self._began_ms = now_ms
        self._last_ms: dict[str, int] = {}

    def note(self, group: str, now_ms: int) -> None:
        self._last_ms[group] = now_ms

    def read_lately(self, group: str, now_ms: int) -> bool:
        return is_lately(max(self._last_ms.get(group, 0), self._began_ms), now_ms)

    def forget(self, now_ms: int) -> None:
        self._last_ms = {
            name: at_ms for name, at_ms in self._last_ms.items() if is_lately(at_ms, now_ms)
        }

    def on_clock_set(self, by_ms: int) -> None:
        self._began_ms += by_ms
        self._last_ms = {name: at_ms + by_ms for name, at_ms in self._last_ms.items()}


def is_lately(at_ms: int, now_ms: int) -> bool:
    return now_ms - at_ms < limits.GROUP_UNREAD_MS
