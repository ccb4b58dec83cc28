"""Leases that are kept while their messages are being handled.

    lease of a call    [ a  b  c ]                         one `Leases`
    with a:            kept ....... extended at half of the lease, a, b and c .......
    with b:                                                kept .......  b and c .......

What one call has leased is kept as one: while a handler is at work on the first, those
that it will handle next do not come to somebody else. One thread a handle does it, one
call for all that are due and of one length; it is a thread, so a handler that blocks its
event loop keeps its lease too. On a clock that tests move the extension happens on the
way, by whoever moves it.

A node that was away is asked as soon as it is back: it may have ended what we hold.

A lease is lost when the node says so, or when it has ended by the clock because the node
could not be reached. Its message is told (`message.lost`), and so is `on_lost`.

A handler that never ends keeps its message for ever: a worker's `timeout` is for that.

Rejected: a timer for each message. Thousands of threads, or thousands of calls where one
would do.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.client.waiting import SteeredClock
from headrace.core.errors import Closed, HeadraceError, StaleReceipt
from headrace.core.ports import Clock
from headrace.core.values import Delivery

if TYPE_CHECKING:
    from headrace.client.queue import Queue

# How soon an extension that could not be sent is tried again, at the latest.
RETRY_SECONDS = 1.0

OnLost = Callable[[Delivery, HeadraceError], None]

logger = logging.getLogger("headrace.queue")


class Term:
    """Of what one call has leased, that which is leased for one length of time."""

    __slots__ = ("deadline_ms", "deliveries", "due", "lease_ms")

    def __init__(self, lease_ms: int, deliveries: Sequence[Delivery]) -> None:
        self.lease_ms = max(1, lease_ms)
        self.deliveries = deliveries
        self.deadline_ms = min([each.deadline_ms for each in deliveries])
        # When it is extended next, by the keeper's time.
        self.due = math.inf


class Leases:
    """What one call has leased, as far as nobody has settled it."""

    __slots__ = (
        "__weakref__", "_deliveries", "_over", "handed", "handled", "lease_ms", "lost", "terms",
    )  # fmt: skip

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self._deliveries = deliveries
        # Appended to by threads that settle; looked at when an extension is due.
        self._over: list[Delivery] = []
        # By length: messages may have a visibility of their own, which they keep.
        self.terms = _terms_of(deliveries)
        # The shortest.
        self.lease_ms = min((each.lease_ms for each in self.terms.values()), default=1)
        # By the identity of the delivery: those that a handler is at work on, and what to
        # call when they are lost; and why those that are lost are.
        self.handled: dict[int, OnLost | None] = {}
        self.lost: dict[int, HeadraceError] = {}
        # How many a loop has handed out, in their order.
        self.handed = 0

    def term_of(self, delivery: Delivery) -> Term:
        return self.terms[delivery.deadline_ms - delivery.delivered_at_ms]

    def is_late(self, delivery: Delivery, now_ms: int) -> bool:
        """Whether half of the lease on it is gone."""
        term = self.term_of(delivery)
        return 2 * (term.deadline_ms - now_ms) <= term.lease_ms

    def on_settled(self, delivery: Delivery) -> None:
        self._over.append(delivery)

    def left(self, term: Term | None = None) -> list[Delivery]:
        """Of one term, or of all."""
        return self._not_over(self._deliveries if term is None else term.deliveries)

    def in_hand(self) -> list[Delivery]:
        """What of it a loop has handed out and nobody has settled."""
        return self._not_over(self._deliveries[: self.handed])

    def _not_over(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        over = set(map(id, self._over))
        over.update(self.lost)
        return [each for each in deliveries if id(each) not in over]

    def error_of(self, delivery: Delivery) -> HeadraceError | None:
        """Why the lease on it was lost, if it was."""
        return self.lost.get(id(delivery))


def _terms_of(deliveries: Sequence[Delivery]) -> dict[int, Term]:
    lengths = [each.deadline_ms - each.delivered_at_ms for each in deliveries]
    if len(set(lengths)) == 1:
        # Nearly always.
        return {lengths[0]: Term(lengths[0], deliveries)}
    by_length: dict[int, list[Delivery]] = {}
    for length, each in zip(lengths, deliveries, strict=True):
        by_length.setdefault(length, []).append(each)
    return {length: Term(length, some) for length, some in by_length.items()}


class LeaseKeeper:
    """Extends what is kept. One for all queues of a handle."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steered = clock if isinstance(clock, SteeredClock) else None
        self._changed = threading.Condition()
        # What is kept, and its queue.
        self._kept: dict[Leases, Queue[Any]] = {}
        # When the thread wakes up, or the alarm of a steered clock rings.
        self._wakes_at: float | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def keep(
        self,
        leases: Leases,
        queue: Queue[Any],
        delivery: Delivery | None,
        on_lost: OnLost | None = None,
    ) -> None:
        """From now on, until the delivery is dropped. When the lease on it is lost,
        `on_lost` is called by any thread; without one the loss is logged. None stands for
        whatever a loop is at work on."""
        with self._changed:
            if self._is_closed:
                return
            leases.handled[id(delivery)] = on_lost
            if leases not in self._kept:
                self._kept[leases] = queue
                now_ms = self._clock.now_ms()
                for term in leases.terms.values():
                    left_ms = max(0, term.deadline_ms - now_ms)
                    self._plan(term, min(left_ms, term.lease_ms) / 2000)

    def drop(self, leases: Leases, delivery: Delivery | None) -> None:
        with self._changed:
            leases.handled.pop(id(delivery), None)
            if not leases.handled:
                self._forget([leases])

    def hurry(self) -> None:
        """Extend everything soon: the node was away, and may have ended it meanwhile. Not on
        a clock that is moved, whose owner says when."""
        with self._changed:
            if self._steered is None:
                for term in self._terms():
                    self._plan(term, 0)

    def forget(self, queue: object) -> None:
        """Keep nothing of a queue any more: it is closed."""
        with self._changed:
            self._forget([leases for leases, of in self._kept.items() if of is queue])

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._forget(list(self._kept))
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    # When.

    def _terms(self) -> Iterator[Term]:
        for leases in self._kept:
            yield from leases.terms.values()

    def _first_due(self) -> float | None:
        first = min((term.due for term in self._terms()), default=math.inf)
        return None if first == math.inf else first

    def _plan(self, term: Term, seconds: float) -> None:
        term.due = self._now() + max(0.001, seconds)
        if self._steered is not None:
            self._set_alarm(self._steered)
        elif self._thread is None:
            self._thread = threading.Thread(target=self._run, name="headrace-keeper", daemon=True)
            self._thread.start()
        elif self._wakes_at is None or term.due < self._wakes_at:
            self._changed.notify()

    def _forget(self, forgotten: Sequence[Leases]) -> None:
        for leases in forgotten:
            self._kept.pop(leases, None)
        if self._steered is not None:
            self._set_alarm(self._steered)

    def _now(self) -> float:
        return time.monotonic() if self._steered is None else self._steered.now_ms() / 1000

    def _set_alarm(self, clock: SteeredClock) -> None:
        first = self._first_due()
        if first != self._wakes_at:
            clock.remove_alarm(self._extend_due)
            self._wakes_at = first
            if first is not None:
                clock.add_alarm(math.ceil(first * 1000), self._extend_due)

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                now = time.monotonic()
                self._wakes_at = self._first_due()
                if self._wakes_at is None or self._wakes_at > now:
                    self._changed.wait(None if self._wakes_at is None else self._wakes_at - now)
                    continue
            self._extend_due()

    # What.

    def _extend_due(self) -> None:
        now = self._now()
        together: dict[tuple[Queue[Any], int], list[tuple[Leases, Term]]] = {}
        with self._changed:
            if self._steered is not None:
                # The alarm that rang.
                self._wakes_at = None
            for leases, queue in self._kept.items():
                for term in leases.terms.values():
                    if term.due <= now:
                        together.setdefault((queue, term.lease_ms), []).append((leases, term))
        for (queue, lease_ms), due in together.items():
            self._extend(queue, lease_ms, due)

    def _extend(self, queue: Queue[Any], lease_ms: int, due: list[tuple[Leases, Term]]) -> None:
        held = [(leases, term, each) for leases, term in due for each in leases.left(term)]
        handled = {each for leases, _ in due for each in list(leases.handled)}
        pause = lease_ms / 2000
        begun_ms = self._clock.now_ms()
        lost: list[tuple[Leases, Delivery, HeadraceError]] = []
        try:
            receipts = [each.receipt for _, _, each in held]
            outcomes = queue.extend_kept(receipts, lease_ms) if receipts else []
            for _, term in due:
                term.deadline_ms = begun_ms + lease_ms
            for (leases, _, delivery), outcome in zip(held, outcomes, strict=True):
                if outcome is not None:
                    lost.append((leases, delivery, outcome))
        except Closed:
            self.forget(queue)
            return
        except HeadraceError as error:
            # The node is away, and may be back before the lease is over.
            pause = min(RETRY_SECONDS, lease_ms / 10_000)
            now_ms = self._clock.now_ms()
            for leases, term, delivery in held:
                if term.deadline_ms <= now_ms:
                    lost.append((leases, delivery, _ended(delivery, error)))
        except Exception:
            # Whatever it is, other leases are not to suffer.
            logger.exception("extending leases of group %s failed", queue.group)
            pause = min(RETRY_SECONDS, lease_ms / 10_000)
        with self._changed:
            # What was being handled and is not any more is being settled right now, which
            # will say by itself whether it was lost.
            lost = [
                each
                for each in lost
                if id(each[1]) in each[0].handled or id(each[1]) not in handled
            ]
            tell = [
                (leases.handled[id(delivery)], delivery, reason)
                for leases, delivery, reason in lost
                if id(delivery) in leases.handled
            ]
            for leases, delivery, reason in lost:
                leases.lost[id(delivery)] = reason
            for leases, term in due:
                term.due = math.inf
                if leases in self._kept and leases.left(term):
                    self._plan(term, pause)
                elif not leases.left():
                    self._forget([leases])
            if self._steered is not None:
                self._set_alarm(self._steered)
        for on_lost, delivery, reason in tell:
            (on_lost or _log_loss)(delivery, reason)


def _ended(delivery: Delivery, reason: HeadraceError) -> StaleReceipt:
    return StaleReceipt(
        f"the lease on {delivery.topic}:{delivery.partition}:{delivery.offset} ended while the "
        f"node could not be asked to extend it: {reason}"
    )


def _log_loss(delivery: Delivery, error: HeadraceError) -> None:
    logger.warning(
        "the lease on %s:%d:%d (attempt %d of %d) was lost while it was being handled: %s",
        delivery.topic,
        delivery.partition,
        delivery.offset,
        delivery.attempt,
        delivery.max_attempts,
        error,
    )
