"""A message under lease, and the words that settle it.

    with message:       acked at the end of the block
        ...             nacked with the error's text when the block raises, also by
                        sys.exit(); released when it is interrupted or cancelled

A message that was settled inside the block is left alone at its end. While the block
runs, its lease is extended and so are those of the messages that came with it; nothing is
begun on a lease that is over.
"""

from __future__ import annotations

import warnings
from asyncio import CancelledError
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeVar

from headrace.client.keeping import Leases, OnLost
from headrace.client.spans import processing
from headrace.client.times import Duration, datetime_of, optional_datetime_of
from headrace.client.views import UNREAD, RecordView
from headrace.core.errors import HeadraceError, InvalidArgument, StaleReceipt
from headrace.core.limits import ERROR_CHARACTERS_MAX
from headrace.core.values import Delivery, Receipt
from headrace.record.attribute_headers import LANES

if TYPE_CHECKING:
    from headrace.client.async_queue import AsyncQueue
    from headrace.client.queue import Queue

T = TypeVar("T")


# What ended a lease, by the one who held it.
Ending = Literal["acked", "nacked", "rejected", "released"]


class LeasedView(RecordView[T]):
    """A message and the lease on it."""

    __slots__ = ("_ending", "_leases", "_queue", "_span")

    _stored: Delivery
    # Those of the call that brought it.
    _leases: Leases
    _ending: Ending | None
    # Of the block that handles it.
    _span: AbstractContextManager[object] | None
    _queue: Queue[T] | AsyncQueue[T]

    @property
    def priority(self) -> str:
        return LANES[self._stored.lane]

    @property
    def attempt(self) -> int:
        """One for the first delivery."""
        return self._stored.attempt

    @property
    def max_attempts(self) -> int:
        return self._stored.max_attempts

    @property
    def created_at(self) -> datetime:
        return datetime_of(self._stored.created_at_ms)

    @property
    def delivered_at(self) -> datetime:
        return datetime_of(self._stored.delivered_at_ms)

    @property
    def deadline(self) -> datetime:
        """When the lease ends, as of its delivery; `extend` moves it on."""
        return datetime_of(self._stored.deadline_ms)

    @property
    def failed_at(self) -> datetime | None:
        """When the delivery before this one failed, if there was one."""
        return optional_datetime_of(self._stored.failed_at_ms)

    @property
    def error(self) -> str | None:
        """Why the delivery before this one failed, if it said so."""
        return self._stored.error

    @property
    def receipt(self) -> str:
        """An opaque token that settles this delivery from anywhere."""
        return self._stored.receipt.encode()

    @property
    def settled(self) -> bool:
        """Whether it was acked, nacked, rejected or given back through here."""
        return self._ending is not None

    @property
    def ending(self) -> Ending | None:
        """How it was settled through here."""
        return self._ending

    @property
    def lost(self) -> bool:
        """Whether its lease was lost while it was being handled: another consumer may
        have it by now, and settling it raises StaleReceipt."""
        return self._ending is None and self._leases.error_of(self._stored) is not None

    @property
    def delivery(self) -> Delivery:
        return self._stored

    @property
    def leases(self) -> Leases:
        return self._leases

    @property
    def group(self) -> str:
        """The group that it was leased in."""
        return self._queue.group

    def proof(self) -> Receipt:
        return self._stored.receipt

    def on_settled(self, ending: Ending) -> None:
        self._ending = ending
        self._leases.on_settled(self._stored)

    def needs_extension(self) -> bool:
        """Before it is handled: whether its lease has to be extended first. StaleReceipt
        when that is known to be too late."""
        error = self._leases.error_of(self._stored)
        if error is not None:
            raise StaleReceipt(f"the lease on {self.id} is over: {error}") from error
        return self._queue.auto_extend and self._leases.is_late(self._stored, self._queue.now_ms())

    def lease_seconds(self) -> float:
        """How long it is leased for, and extended by."""
        return self._leases.term_of(self._stored).lease_ms / 1000

    def _enter_span(self) -> None:
        self._span = processing(self)
        self._span.__enter__()

    def _exit_span(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        span, self._span = self._span, None
        if span is not None:
            span.__exit__(kind, error, traceback)

    def keep(self, on_lost: OnLost | None = None) -> None:
        """Extend its lease from now on, where its queue does so."""
        self._queue.keep(self._leases, self._stored, on_lost)

    def drop(self) -> None:
        self._queue.drop(self._leases, self._stored)


class Message(LeasedView[T]):
    """A message under lease. As a context it is acked at the end of the block,
    and nacked with the error's text when the block raises."""

    __slots__ = ()

    _queue: Queue[T]

    def __init__(self, delivery: Delivery, queue: Queue[T], leases: Leases) -> None:
        self._stored = delivery
        self._leases = leases
        self._type = queue.value_type
        self._value = UNREAD
        self._ending = None
        self._span = None
        self._queue = queue

    def ack(self) -> None:
        """Done: nobody sees it again. StaleReceipt when the lease is over."""
        self._queue.ack(self)

    def nack(self, *, delay: Duration | None = None, error: str | None = None) -> None:
        """Try again: after `delay`, or after the group's backoff."""
        self._queue.nack(self, delay=delay, error=error)

    def reject(self, error: str | None = None, *, reason: str | None = None) -> None:
        """To the dead letters, whatever attempts are left. `reason` is the former name
        of `error`."""
        self._queue.reject(self, error_of(error, reason))

    def release(self) -> None:
        """Give it back at once and without costing an attempt."""
        self._queue.release(self)

    def extend(self, seconds: Duration | None = None) -> None:
        """The lease ends that much from now, or the queue's visibility from now."""
        self._queue.extend(self, seconds)

    def __enter__(self) -> Message[T]:
        if self.needs_extension():
            self.extend(self.lease_seconds())
        self._enter_span()
        self.keep()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._exit_span(kind, error, traceback)
        self.drop()
        if self._ending is not None:
            return
        if error is None:
            self.ack()
            return
        try:
            if is_the_message_to_blame(error):
                self.nack(error=error_text(error))
            else:
                self.release()
        except HeadraceError as failure:
            # What went wrong inside is what the caller must see.
            error.add_note(f"and giving {self.id} back failed: {failure}")


class AsyncMessage(LeasedView[T]):
    """A message under lease, for asyncio: the same words, awaited."""

    __slots__ = ()

    _queue: AsyncQueue[T]

    def __init__(self, delivery: Delivery, queue: AsyncQueue[T], leases: Leases) -> None:
        self._stored = delivery
        self._leases = leases
        self._type = queue.value_type
        self._value = UNREAD
        self._ending = None
        self._span = None
        self._queue = queue

    async def ack(self) -> None:
        await self._queue.ack(self)

    async def nack(self, *, delay: Duration | None = None, error: str | None = None) -> None:
        await self._queue.nack(self, delay=delay, error=error)

    async def reject(self, error: str | None = None, *, reason: str | None = None) -> None:
        await self._queue.reject(self, error_of(error, reason))

    async def release(self) -> None:
        await self._queue.release(self)

    async def extend(self, seconds: Duration | None = None) -> None:
        await self._queue.extend(self, seconds)

    async def __aenter__(self) -> AsyncMessage[T]:
        if self.needs_extension():
            await self.extend(self.lease_seconds())
        self._enter_span()
        self.keep()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._exit_span(kind, error, traceback)
        self.drop()
        if self._ending is not None:
            return
        if error is None:
            await self.ack()
            return
        try:
            if is_the_message_to_blame(error):
                await self.nack(error=error_text(error))
            else:
                await self.release()
        except HeadraceError as failure:
            error.add_note(f"and giving {self.id} back failed: {failure}")


def is_the_message_to_blame(error: BaseException) -> bool:
    """Whether it costs the message an attempt. An interrupt by the operator, a cancelled
    task or a generator that is closed says nothing about the message. Everything else
    does, also `sys.exit()`: otherwise it would be delivered for the first time for ever."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_the_message_to_blame, error.exceptions))
    return not isinstance(error, KeyboardInterrupt | CancelledError | GeneratorExit)


def error_of(error: str | None, reason: str | None) -> str | None:
    """The text of a reject, which may come under its former name. The warning names the
    line that called `reject`."""
    if reason is None:
        return error
    if error is not None:
        raise InvalidArgument("error and reason are the same; leave reason out, its former name")
    warnings.warn(
        "reject(reason=...) is called reject(error=...) now, as in nack; reason goes with the "
        "next release",
        DeprecationWarning,
        stacklevel=3,
    )
    return reason


def error_text(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        # An error that cannot say what it is still has a name.
        text = ""
    return (f"{name}: {text}" if text else name)[:ERROR_CHARACTERS_MAX]
