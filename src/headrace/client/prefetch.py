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
