"""How many messages an iterator leases ahead.

A prefetched message's lease runs while the messages before it are handled. So
the size begins at one, doubles while whole batches are handled within a tenth of
their visibility, and falls back to one as soon as they are not:

    quick handlers    1 2 4 8 16 16 16 ...     few calls
    slow handlers     1 1 1 1 ...              nothing expires unhandled

Rejected: a fixed size. Ten messages of four seconds each outlive a lease of
thirty, and the last ones would lose attempts without ever being tried.
"""

from __future__ import annotations

from headrace.core.values import Delivery

WAITING_SECONDS_MAX = 1.0


class Prefetch:
    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self.size = 1

    def on_batch_handled(self, last: Delivery, now_ms: int) -> None:
        visibility_ms = last.deadline_ms - last.delivered_at_ms
        if (now_ms - last.delivered_at_ms) * 10 <= visibility_ms:
            self.size = min(self._size_max, self.size * 2)
        else:
            self.size = 1

    def on_late(self) -> None:
        self.size = 1


def is_late(delivery: Delivery, now_ms: int) -> bool:
    """Whether half of the lease is gone before the handler saw the message."""
    return 2 * now_ms >= delivery.delivered_at_ms + delivery.deadline_ms


class Ahead:
    """How many messages a worker leases beyond its free slots: as many as it will
    begin within a moment, judged by what its function took lately."""

    def __init__(self, size_max: int, slots: int) -> None:
        self._size_max = size_max
        self._slots = slots
        self._average_seconds: float | None = None
        self.size = 0

    def on_ended(self, seconds: float, lease_seconds: float) -> None:
        before = self._average_seconds
        average = seconds if before is None else 0.8 * before + 0.2 * seconds
        self._average_seconds = average
        moment = waiting_seconds_max(lease_seconds) / 2
        self.size = min(self._size_max, int(self._slots * moment / max(average, 1e-6)))

    def on_waited(self) -> None:
        """Something waited in vain: the functions are slower than they were."""
        self.size = 0


def waiting_seconds_max(lease_seconds: float) -> float:
    """How long a worker holds a message that it has not begun: then another may."""
    return min(WAITING_SECONDS_MAX, lease_seconds / 4)
