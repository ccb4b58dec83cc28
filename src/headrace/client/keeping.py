"""Leases that are kept while a handler is at work on their messages.

    with message:    kept ........ extended at half of the lease ...... settled
                     '-- one thread for all messages of a queue, one call for all due --'

A lease that was lost all the same, because the node was away, is noticed when the
message is settled. A handler that never ends keeps its message for ever: whoever cannot
rule that out sets a time limit of their own.

Rejected: a timer for each message. Thousands of threads, or thousands of calls where one
would do.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from headrace.core.errors import HeadraceError
from headrace.core.ports import Clock
from headrace.core.values import Delivery, Receipt

Extend = Callable[[Sequence[Receipt]], object]


class LeaseKeeper:
    def __init__(self, clock: Clock, extend: Extend) -> None:
        self._clock = clock
        self._extend = extend
        self._changed = threading.Condition()
        # When each is to be extended, by the monotonic clock, and how long a lease lasts.
        self._kept: dict[Receipt, tuple[float, float]] = {}
        self._wakes_at: float | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def keep(self, delivery: Delivery) -> None:
        """From now on, until it is dropped."""
        left = max(0, delivery.deadline_ms - self._clock.now_ms()) / 1000
        due = time.monotonic() + left / 2
        with self._changed:
            if self._is_closed:
                return
            lease = (delivery.deadline_ms - delivery.delivered_at_ms) / 1000
            self._kept[delivery.receipt] = (due, lease)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="headrace-keeper", daemon=True
                )
                self._thread.start()
            elif self._wakes_at is None or due < self._wakes_at:
                self._changed.notify()

    def drop(self, delivery: Delivery) -> None:
        with self._changed:
            self._kept.pop(delivery.receipt, None)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._kept.clear()
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                now = time.monotonic()
                due = [receipt for receipt, (at, _) in self._kept.items() if at <= now]
                for receipt in due:
                    lease = self._kept[receipt][1]
                    self._kept[receipt] = (now + lease / 2, lease)
                if not due:
                    self._wakes_at = min((at for at, _ in self._kept.values()), default=None)
                    until = self._wakes_at
                    self._changed.wait(None if until is None else max(0.0, until - now))
                    continue
            # One that was lost is noticed when it is settled.
            with contextlib.suppress(HeadraceError):
                self._extend(due)
