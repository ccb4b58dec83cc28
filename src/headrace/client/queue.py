"""A queue: a group's view of one or more topics, leased message by message.

    receive, lease, for ... in      a lease on each message, for its visibility
    ack                             done
    nack                            again later
    reject                          to the dead letters
    extend                          more time
    release                         back at once, at no cost

Every queue object is a consumer of its group. Threads may share one, or each
open its own; both ways every message goes to one of them. Closing gives back
what is still leased.
"""

from __future__ import annotations

import os
import platform
import secrets
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar, overload

from headrace.client.backend import Backend, LeaseAnswered, Lined, Outcomes
from headrace.client.connection import Connection
from headrace.client.group_settings import tell_of_changes
from headrace.client.in_hand import InHand
from headrace.client.keeping import Leases, OnLost
from headrace.client.message import (
    Ending,
    Message,
    error_of,
    error_text,
    is_the_message_to_blame,
)
from headrace.client.prefetch import Prefetch, is_late
from headrace.client.settling import Act, Settleable, Settleables, Settler
from headrace.client.times import Duration, duration_ms, optional_duration_ms
from headrace.client.values import ValueType
from headrace.client.waiting import (
    Bell,
    endured,
    has_line,
    on_away,
    pause_away,
    wait_for_some,
    wait_in_line,
)
from headrace.core.errors import (
    Closed,
    HeadraceError,
    InvalidArgument,
    UnknownGroup,
    UnknownTopic,
)
from headrace.core.limits import ERROR_CHARACTERS_MAX, LEASE_MESSAGES_MAX, NAME_CHARACTERS_MAX
from headrace.core.name_lists import distinct_topics
from headrace.core.values import (
    Delivery,
    LeaseRequest,
    QueueStatistics,
    Receipt,
    check_name,
)
from headrace.core.wording import counted

T = TypeVar("T")

PREFETCH_DEFAULT = 16
# How long a node has to answer an extension, at least.
EXTENSION_SECONDS = 1.0
# How long a node has to hear of what failed when a block ends.
FAILING_SECONDS = 10.0

# Gets what returns, or raises, the answer.


def consumer_id(given: object) -> str:
    """The name that was given, or one that says where a consumer runs and is
    unique."""
    if given is None:
        return f"{platform.node() or 'unknown'}-{os.getpid()}-{secrets.token_hex(4)}"
    if not isinstance(given, str) or not 1 <= len(given) <= NAME_CHARACTERS_MAX:
        raise InvalidArgument(
            f"a consumer is named by 1 to {NAME_CHARACTERS_MAX} characters, not by {given!r:.80}"
        )
    return given


def topic_names(topics: str | Iterable[str]) -> tuple[str, ...]:
    """One name or several, checked, each once and in the order given."""
    given = (topics,) if isinstance(topics, str) else topics
    if not isinstance(given, Iterable):
        raise InvalidArgument(f"topics are names, not {type(topics).__name__}")
    names = tuple(dict.fromkeys(check_name("topic", name) for name in given))
    if not names:
        raise InvalidArgument("name at least one topic")
    return tuple(distinct_topics(names))


class Queue(Generic[T]):
    def __init__(
        self,
        connection: Connection,
        topics: str | Iterable[str],
        group: str,
        *,
        consumer: str | None = None,
        visibility: Duration | None = None,
        prefetch: int = PREFETCH_DEFAULT,
        auto_extend: bool = True,
        value_type: ValueType | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.group = check_name("group", group)
        self.consumer = consumer_id(consumer)
        self.value_type = value_type
        self._topics = topic_names(topics)
        self._visibility_ms = optional_duration_ms("visibility", visibility, least_ms=1)
        self.prefetch_max = checked_count("prefetch", prefetch)
        self._connection = connection
        self._settler = Settler(group, self.consumer)
        self.bell = Bell()
        self.in_hand = InHand()
        # The last lease met a topic that did not exist.
        self._was_topic_gone = False
        backend = connection.reach()
        self._clock = backend.clock
        if settings:
            tell_of_changes(backend, self.group, settings)
        backend.open_queue(self.group, self._topics, self.consumer, settings or None)
        self.auto_extend = auto_extend
        connection.on_opened(self)

    @property
    def topics(self) -> tuple[str, ...]:
        return self._topics

    @property
    def closed(self) -> bool:
        return self.bell.rung

    # Receiving.

    def receive(self, max: int = 10, wait: Duration | None = None) -> list[Message[T]]:
        """At most `max` messages, as soon as there is one. Empty when `wait` is
        over, or when the queue is closed meanwhile; None waits without end."""
        count = checked_count("max", max)
        wait_ms = optional_duration_ms("wait", wait)
        return self._messages(self._wait(count, wait_ms))

    def lease(self, count: int = 10) -> list[Message[T]]:
        """At most `count` messages that are ready now; never waits."""
        return self._messages(self.lease_deliveries(count))

    def _messages(self, deliveries: list[Delivery]) -> list[Message[T]]:
        leases = Leases(deliveries)
        return [Message(delivery, self, leases) for delivery in deliveries]

    def __iter__(self) -> Iterator[Message[T]]:
        """Message after message, until the queue is closed. While one is handled, its
        lease and those of the messages leased ahead are extended. What was leased ahead
        is given back when half of a lease is over before it is its turn, and when the
        loop ends, however it ends."""
        prefetch = Prefetch(self.prefetch_max)
        while not self.closed:
            ahead = deque(self._wait_or_end(prefetch.size))
            if not ahead:
                continue
            last = ahead[-1]
            leases = Leases(tuple(ahead))
            self.keep(leases)
            self.in_hand.add(leases)
            try:
                while ahead and not self.closed:
                    if is_late(ahead[0], self._clock.now_ms()):
                        prefetch.on_late()
                        break
                    leases.handed += 1
                    yield Message(ahead.popleft(), self, leases)
                else:
                    prefetch.on_batch_handled(last, self._clock.now_ms())
            finally:
                self.drop(leases)
                self.give_back(ahead)

    def lease_deliveries(self, count: int, wait_ms: int = 0) -> list[Delivery]:
        """The tuples below `lease`, for whoever wraps them otherwise. Only what has a
        line waits for the first one."""
        backend = self.check()
        checked_count("count", count)
        try:
            deliveries = self._lease(backend, count, wait_ms)
        except UnknownTopic:
            self._was_topic_gone = True
            raise
        if (self._was_topic_gone or not deliveries) and self._subscribe_again(backend):
            deliveries = deliveries or self._lease(backend, count)
        return deliveries

    def _lease(self, backend: Backend, count: int, wait_ms: int = 0) -> list[Delivery]:
        if wait_ms and isinstance(backend, Lined):
            return backend.lease_in_line(self._wanted(count, wait_ms))
        return backend.lease(
            self.group, self._topics, self.consumer, count, visibility_ms=self._visibility_ms
        )

    def begin_lease(
        self, backend: Lined, count: int, wait_ms: int, nonce: int, on_answered: LeaseAnswered
    ) -> None:
        """As `Lined.begin_lease`, for this queue."""
        backend.begin_lease(self._wanted(count, wait_ms, nonce), on_answered)

    def _wanted(self, count: int, wait_ms: int, nonce: int | None = None) -> LeaseRequest:
        return LeaseRequest(
            self.group, self._topics, self.consumer, count, self._visibility_ms, wait_ms, nonce
        )

    def _subscribe_again(self, backend: Backend) -> bool:
        """A topic that was deleted and made again has this queue's name for it
        and not its group. Looked for when nothing was leased, which costs a
        fraction of the lease; whether there was one."""
        self._was_topic_gone = False
        subscribed = backend.group(self.group).topics
        missing = [name for name in self._topics if name not in subscribed]
        if missing:
            backend.open_queue(self.group, missing, self.consumer, None)
        return bool(missing)

    def next_due_ms(self) -> int | None:
        return self.check().next_due_ms(self.group, self._topics)

    def give_back(self, ahead: deque[Delivery]) -> None:
        """Release what nobody has seen yet. After a close there is nothing left
        to release, and a lease that ended meanwhile is back by itself."""
        receipts = [delivery.receipt for delivery in ahead]
        ahead.clear()
        if not receipts or self.closed:
            return
        try:
            self.check().release(self.group, receipts)
        except HeadraceError:
            # This runs while a loop is being left, often because of an error of
            # its own; the leases end with their visibility at the latest.
            return

    def _wait(self, count: int, wait_ms: int | None) -> list[Delivery]:
        backend = self.check()
        while has_line(backend):
            try:
                return wait_in_line(self.bell, partial(self.lease_deliveries, count), wait_ms)
            except endured(backend, wait_ms) as error:
                on_away(backend, error)
                pause_away(self.bell)
                if self.closed:
                    return []
        return wait_for_some(
            backend,
            self.bell,
            lambda: self.lease_deliveries(count),
            self.next_due_ms,
            wait_ms,
            self._topics,
        )

    def _wait_or_end(self, count: int) -> list[Delivery]:
        try:
            return self._wait(count, None)
        except Closed:
            # For a loop, a queue that is closed is the end and not an error.
            if self.closed:
                return []
            raise

    # Settling.

    @overload
    def ack(self, message: Settleable) -> None: ...
    @overload
    def ack(self, message: Settleables) -> Outcomes: ...
    def ack(self, message: Settleable | Settleables) -> Outcomes | None:
        """Done: the group does not see it again.

        One message, receipt or id raises StaleReceipt or InvalidReceipt; a list
        is one call and answers with None or the error for each.
        """
        return self._settle(message, lambda proofs: self.check().ack(self.group, proofs), "acked")

    @overload
    def nack(
        self, message: Settleable, *, delay: Duration | None = None, error: str | None = None
    ) -> None: ...
    @overload
    def nack(
        self,
        message: Settleables,
        *,
        delay: Duration | None = None,
        error: str | None = None,
    ) -> Outcomes: ...
    def nack(
        self,
        message: Settleable | Settleables,
        *,
        delay: Duration | None = None,
        error: str | None = None,
    ) -> Outcomes | None:
        """Again, after `delay` or the group's backoff; to the dead letters when
        this was the last attempt."""
        delay_ms = optional_duration_ms("delay", delay)
        text = checked_text("error", error)
        return self._settle(
            message,
            lambda proofs: self.check().nack(self.group, proofs, delay_ms=delay_ms, error=text),
            "nacked",
        )

    @overload
    def reject(
        self, message: Settleable, error: str | None = None, *, reason: str | None = None
    ) -> None: ...
    @overload
    def reject(
        self, message: Settleables, error: str | None = None, *, reason: str | None = None
    ) -> Outcomes: ...
    def reject(
        self,
        message: Settleable | Settleables,
        error: str | None = None,
        *,
        reason: str | None = None,
    ) -> Outcomes | None:
        """To the dead letters now, whatever attempts are left. `reason` is the former
        name of `error`."""
        text = checked_text("error", error_of(error, reason))
        return self._settle(
            message,
            lambda proofs: self.check().reject(self.group, proofs, reason=text),
            "rejected",
        )

    @overload
    def release(self, message: Settleable) -> None: ...
    @overload
    def release(self, message: Settleables) -> Outcomes: ...
    def release(self, message: Settleable | Settleables) -> Outcomes | None:
        """Back at once, and the attempt does not count."""
        return self._settle(
            message, lambda proofs: self.check().release(self.group, proofs), "released"
        )

    @overload
    def extend(self, message: Settleable, seconds: Duration | None = None) -> None: ...
    @overload
    def extend(self, message: Settleables, seconds: Duration | None = None) -> Outcomes: ...
    def extend(
        self, message: Settleable | Settleables, seconds: Duration | None = None
    ) -> Outcomes | None:
        """The lease ends `seconds` from now, or the queue's visibility from now."""
        visibility_ms = self._visibility_ms
        if seconds is not None:
            visibility_ms = duration_ms("seconds", seconds, least_ms=1)
        return self._settle(
            message,
            lambda proofs: self.check().extend(self.group, proofs, visibility_ms=visibility_ms),
            None,
        )

    # Keeping leases while their messages are handled.

    def now_ms(self) -> int:
        """By the clock that grants leases."""
        return self._clock.now_ms()

    def keep(
        self, leases: Leases, delivery: Delivery | None = None, on_lost: OnLost | None = None
    ) -> None:
        if self.auto_extend:
            self._connection.keeper.keep(leases, self, delivery, on_lost)

    def drop(self, leases: Leases, delivery: Delivery | None = None) -> None:
        if self.auto_extend:
            self._connection.keeper.drop(leases, delivery)

    def extend_kept(self, receipts: Sequence[Receipt], lease_ms: int) -> Outcomes:
        """For as long as they were leased for, which may be another time than the
        queue's; tried once, since the lease goes on meanwhile."""
        within = max(EXTENSION_SECONDS, lease_ms / 4000)
        return self.check().extend(
            self.group, receipts, visibility_ms=lease_ms, within_seconds=within
        )

    def _settle(self, given: Any, act: Act, ending: Ending | None) -> Outcomes | None:
        return self._settler.settle(self.check(), given, act, ending=ending)

    # Looking, and changing while it lives.

    def depth(self) -> int:
        """How many messages of these topics the group has not done yet."""
        return self.stats().depth

    def stats(self) -> QueueStatistics:
        return self.check().queue_statistics(self.group, self._topics)

    def add_topics(self, *topics: str) -> None:
        added = topic_names(topics)
        changed = topic_names((*self._topics, *added))
        self.check().open_queue(self.group, added, self.consumer, None)
        self._topics = changed

    def remove_topics(self, *topics: str) -> None:
        """Take nothing more from these. What is leased already stays leased."""
        removed = topic_names(topics)
        left = tuple(name for name in self._topics if name not in removed)
        if not left:
            raise InvalidArgument("a queue keeps at least one topic; close it instead")
        self.check()
        self._topics = left

    def close(self) -> None:
        """Give back every lease and end every loop and wait. Fine when closed."""
        if self._connection.is_forked or not self.bell.ring():
            return
        self._connection.keeper.forget(self)
        self._connection.on_closed(self)
        if self._connection.closed:
            return
        try:
            self._connection.reach().leave(self.group, self.consumer)
        except (UnknownGroup, UnknownTopic):
            # Deleted meanwhile, and the leases with it.
            return

    def fail_in_hand(self, error: BaseException) -> None:
        """A block around loops has ended with this error. What they have handed out and
        nobody has settled is nacked, where the error costs a message an attempt."""
        if self._connection.is_forked or self.closed or not is_the_message_to_blame(error):
            return
        receipts = self.in_hand.receipts()
        if not receipts:
            return
        try:
            # A node that is away counts them by itself: their connection broke.
            self.check().nack(
                self.group, receipts, error=error_text(error), within_seconds=FAILING_SECONDS
            )
        except HeadraceError as failure:
            # What went wrong inside is what the caller must see.
            error.add_note(f"and nacking {counted(len(receipts), 'message')} failed: {failure}")

    def __enter__(self) -> Queue[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is not None:
                self.fail_in_hand(error)
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<Queue {','.join(self._topics)} group={self.group}>"

    def check(self) -> Backend:
        """What serves us; Closed or Forked when nothing does any more."""
        backend = self._connection.reach()
        if self.bell.rung:
            raise Closed(f"this queue of group {self.group} is closed; open another one")
        return backend


def checked_count(name: str, count: object) -> int:
    if isinstance(count, bool) or not isinstance(count, int):
        raise InvalidArgument(f"{name} must be a whole number, not {count!r}")
    if not 1 <= count <= LEASE_MESSAGES_MAX:
        raise InvalidArgument(f"{name} must be from 1 to {LEASE_MESSAGES_MAX}, not {count}")
    return count


def checked_text(name: str, text: object) -> str | None:
    """Cut to its limit, and without what UTF-8 cannot hold: why something failed
    is worth less than that it did."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidArgument(f"{name} must be text, not {type(text).__name__}")
    return text[:ERROR_CHARACTERS_MAX].encode("utf-8", "replace").decode()
