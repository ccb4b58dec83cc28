"""A station: one worker of an app, its slots, and the messages that it holds.

    queue --lease--> waiting --> slot --> middleware --> function --> settle
                        |          '- a coroutine on the loop, or a call on a thread
                        '- not begun after a moment: given back, at no cost

It leases for the slots that are free, and a few more where the function is quick. What is
begun has a lease that is extended until it is settled; a lease that is half over is
extended before the function is called, and one that is over is not begun.

A lease that is lost all the same cancels a coroutine; a function on a thread can look at
`message.lost`. Past its `timeout` a coroutine is cancelled; a thread cannot be, so it is
abandoned, and another takes its place.

Acks are collected: while one call is on its way to the disk the next one fills, so
the quicker the functions are, the more of their acks share a sync.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace.client.app import App, Next, Reject, Retry, Worker
from headrace.client.async_queue import AsyncQueue
from headrace.client.async_waiting import Alarm
from headrace.client.asynchronous import AsyncHeadrace
from headrace.client.message import AsyncMessage, error_text, is_the_message_to_blame
from headrace.client.prefetch import Ahead, waiting_seconds_max
from headrace.client.spans import processing
from headrace.client.threads import Threads
from headrace.core.errors import DecodeError, HeadraceError, StaleReceipt
from headrace.core.event_log import log_event
from headrace.core.limits import ERROR_CHARACTERS_MAX
from headrace.core.values import Delivery

logger = logging.getLogger("headrace.work")


@dataclass
class Counts:
    """What became of the messages of one worker."""

    done: int = 0
    failed: int = 0
    rejected: int = 0
    # Their leases were over before they were settled: they come again.
    lost: int = 0
    # Functions that went on past their timeout, on a thread that nobody can stop.
    hung: int = 0


class Station:
    def __init__(self, worker: Worker, app: App, on_hung: Callable[[], None]) -> None:
        self.worker = worker
        self.counts = Counts()
        self._on_hung = on_hung
        self._queue: AsyncQueue[Any]
        self._ahead = Ahead(worker.prefetch, worker.concurrency)
        # Leased and not begun, the oldest first.
        self._waiting: deque[AsyncMessage[Any]] = deque()
        self._waiting_too_long: Alarm
        self._tasks: set[asyncio.Task[None]] = set()
        # Coroutines that are cancelled when their lease is lost.
        self._calls: dict[AsyncMessage[Any], asyncio.Task[Any]] = {}
        # Calls that give messages back.
        self._returning: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._threads: Threads | None = None
        self._acks: list[AsyncMessage[Any]] = []
        self._acking: asyncio.Task[None] | None = None
        self._handle: Next = self._call
        for middleware in reversed(app.middlewares):
            self._handle = partial(_wrapped, middleware, self._handle)

    @property
    def running(self) -> int:
        return len(self._tasks)

    @property
    def hung(self) -> int:
        """Functions that are past their timeout and still run."""
        return 0 if self._threads is None else self._threads.hung

    async def open(self, handle: AsyncHeadrace, stack: AsyncExitStack) -> None:
        worker = self.worker
        visibility = None if worker.visibility_ms is None else worker.visibility_ms / 1000
        self._queue = await stack.enter_async_context(
            handle.queue(
                worker.topics,
                worker.group,
                type=worker.type,
                visibility=visibility,
                prefetch=worker.prefetch,
                **worker.settings,
            )
        )
        self._clock = handle.clock
        self._waiting_too_long = Alarm(handle.clock, self._on_waited)
        if not worker.is_async:
            self._threads = Threads(worker.name)
            stack.callback(self._threads.close)

    # Feeding.

    async def feed(self) -> None:
        while True:
            room = self._room()
            if not room:
                self._freed.clear()
                await self._freed.wait()
                continue
            self._waiting += await self._queue.receive(room)
            self._begin_waiting()

    def _room(self) -> int:
        """How many to lease now: none while enough wait."""
        free = self.worker.concurrency - len(self._tasks)
        if not free and len(self._waiting) > self._ahead.size // 2:
            return 0
        return max(0, free + self._ahead.size - len(self._waiting))

    def _begin_waiting(self) -> None:
        """As many of those that wait as there are free slots."""
        while self._waiting and len(self._tasks) < self.worker.concurrency:
            task = asyncio.create_task(self._occupy(self._waiting.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._on_free)
        if self._waiting:
            oldest = self._waiting[0]
            held_seconds = (self._clock.now_ms() - oldest.delivery.delivered_at_ms) / 1000
            limit_seconds = waiting_seconds_max(oldest.leases.lease_ms / 1000)
            self._waiting_too_long.set(max(0.0, limit_seconds - held_seconds))
        else:
            self._waiting_too_long.cancel()

    def _on_waited(self) -> None:
        self._ahead.on_waited()
        self._give_back_waiting()

    def _give_back_waiting(self) -> None:
        waiting, self._waiting = list(self._waiting), deque()
        if waiting:
            task = asyncio.create_task(self._give_back(waiting))
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)

    def _on_free(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._begin_waiting()
        self._freed.set()
        if not task.cancelled() and task.exception() is not None:
            log_event(
                logger,
                logging.ERROR,
                f"{self.worker.name}: a message was not settled: {task.exception()}",
                exc_info=task.exception(),
            )

    async def _occupy(self, message: AsyncMessage[Any]) -> None:
        begun_ms = self._clock.now_ms()
        try:
            await self.handle(message, self._ack_soon)
        finally:
            seconds = max(0, self._clock.now_ms() - begun_ms) / 1000
            self._ahead.on_ended(seconds, message.lease_seconds())

    async def finish(self, grace_seconds: float) -> None:
        """Until nothing runs any more, one way or the other."""
        self._waiting_too_long.cancel()
        # Not waited for here: the grace begins now, also while the node is away.
        self._give_back_waiting()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace_seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        if self._returning:
            await asyncio.wait(self._returning)
        while self._acking is not None:
            await self._acking

    async def work_off(self) -> int:
        """Handle one that is ready now; how many there were."""
        messages = await self._queue.receive(1, wait=0)
        for message in messages:
            await self.handle(message, self._ack_now)
        return len(messages)

    async def next_due_ms(self) -> int | None:
        return await self._queue.next_due_ms()

    # One message.

    async def handle(
        self,
        message: AsyncMessage[Any],
        ack: Callable[[AsyncMessage[Any]], Coroutine[Any, Any, None]],
    ) -> None:
        """Its whole life from here on: extended, handled, settled."""
        try:
            if message.needs_extension():
                await message.extend(message.lease_seconds())
        except StaleReceipt as error:
            self._on_lost(message, error)
            return
        loop = asyncio.get_running_loop()
        message.keep(partial(_call_in_loop, loop, self._on_lost_while_handled, message))
        try:
            with processing(message):
                await self._handle(message)
        except asyncio.CancelledError as error:
            if message.lost:
                # It is another consumer's by now.
                return
            if not _is_cancelled():
                # The function ended so by itself. Uncounted it would come again at once,
                # for ever.
                await self._settle(message, error)
                return
            await self._give_back([message])
            raise
        except BaseException as error:
            if self.worker.is_async and _is_interrupt(error):
                await self._give_back([message])
                raise
            await self._settle(message, error)
            return
        finally:
            message.drop()
        if message.settled:
            self._count_own(message)
        else:
            await ack(message)

    async def _call(self, message: AsyncMessage[Any]) -> None:
        call = self._call_async if self.worker.is_async else self._call_in_thread
        await call(message, [message.value] if self.worker.takes_value else [])

    async def _call_async(self, message: AsyncMessage[Any], values: list[Any]) -> None:
        name = self.worker.takes_message
        task = asyncio.current_task()
        assert task is not None
        self._calls[message] = task
        alarm = Alarm(self._clock, lambda: limit.reschedule(0))
        try:
            async with asyncio.timeout(None) as limit:
                self._set_limit(alarm)
                await self.worker.function(*values, **({name: message} if name else {}))
        except TimeoutError as error:
            # One that the function raised itself is an error like any other.
            raise (self._timed_out() if limit.expired() else error) from error
        finally:
            alarm.cancel()
            self._calls.pop(message, None)

    async def _call_in_thread(self, message: AsyncMessage[Any], values: list[Any]) -> None:
        assert self._threads is not None
        name = self.worker.takes_message
        blocking = self._queue.blocking(message)
        function = partial(self.worker.function, *values, **({name: blocking} if name else {}))
        job = self._threads.start(partial(copy_context().run, function))
        alarm = Alarm(self._clock, partial(self._threads.abandon, job))
        self._set_limit(alarm)
        try:
            await job.ended.wait()
        except asyncio.CancelledError:
            self._threads.abandon(job)
            raise
        finally:
            alarm.cancel()
        if blocking.ending is not None:
            message.on_settled(blocking.ending)
        if job.is_abandoned:
            self.counts.hung += 1
            self._on_hung()
            raise self._timed_out()
        if job.error is not None:
            raise job.error

    def _set_limit(self, alarm: Alarm) -> None:
        if self.worker.timeout_ms is not None:
            alarm.set(self.worker.timeout_ms / 1000)

    def _timed_out(self) -> TimeoutError:
        assert self.worker.timeout_ms is not None
        seconds = self.worker.timeout_ms / 1000
        if self.worker.is_async:
            return TimeoutError(f"not done after {seconds:g} s")
        return TimeoutError(
            f"not done after {seconds:g} s; its thread goes on and is replaced ({self.hung} of "
            f"{self.worker.name} hang)"
        )

    # Settling.

    async def _settle(self, message: AsyncMessage[Any], error: BaseException) -> None:
        text = error_text(error)
        if message.settled:
            self._count_own(message)
            self._say(message, f"failed after it was settled: {text}", error)
            return
        try:
            if isinstance(error, Reject | DecodeError):
                reason = str(error) if isinstance(error, Reject) else text
                await message.reject(error=reason[:ERROR_CHARACTERS_MAX] or "rejected")
                self.counts.rejected += 1
                self._say(message, f"rejected: {text}", None)
            else:
                delay_ms = error.delay_ms if isinstance(error, Retry) else None
                delay = None if delay_ms is None else delay_ms / 1000
                await message.nack(delay=delay, error=text)
                self.counts.failed += 1
                # Retry is a decision, and where it was taken says nothing.
                self._say(message, f"failed: {text}", None if isinstance(error, Retry) else error)
        except StaleReceipt as stale:
            self._say(message, f"failed: {text}", error)
            self._on_lost(message, stale)

    def _count_own(self, message: AsyncMessage[Any]) -> None:
        """What the function settled itself. What it gave back is none of these: it comes
        again as if it had not been delivered."""
        self.counts.done += message.ending == "acked"
        self.counts.failed += message.ending == "nacked"
        self.counts.rejected += message.ending == "rejected"

    def _say(self, message: AsyncMessage[Any], what: str, error: BaseException | None) -> None:
        attempt = f"attempt {message.attempt} of {message.max_attempts}"
        log_event(
            logger,
            logging.WARNING,
            f"{self.worker.name}: {message.id} ({attempt}) {what}",
            exc_info=error,
            in_text=False,
            worker=self.worker.name,
            topic=message.topic,
            id=str(message.id),
            attempt=message.attempt,
            max_attempts=message.max_attempts,
        )

    def _on_lost_while_handled(self, message: AsyncMessage[Any], error: HeadraceError) -> None:
        if message.settled:
            return
        self.counts.lost += 1
        call = self._calls.get(message)
        if call is not None:
            call.cancel()
        ends = "is cancelled" if call is not None else "goes on, with message.lost"
        self._say(
            message,
            f"lost its lease and will be delivered again; the function {ends}: {error}",
            None,
        )

    def _on_lost(self, message: AsyncMessage[Any], error: HeadraceError) -> None:
        # Known, counted and said already, where it was lost while it was handled.
        if not message.lost:
            self.counts.lost += 1
            self._say(message, f"was not settled and comes again: {error}", None)

    async def _give_back(self, messages: list[AsyncMessage[Any]]) -> None:
        held = [message for message in messages if not message.settled]
        if held and not self._queue.closed:
            # Whatever happens to it now, its lease ends by itself.
            with contextlib.suppress(HeadraceError):
                await asyncio.shield(self._queue.release(held))

    # Acks.

    async def _ack_now(self, message: AsyncMessage[Any]) -> None:
        await self._ack([message])

    async def _ack_soon(self, message: AsyncMessage[Any]) -> None:
        self._acks.append(message)
        if self._acking is None:
            self._acking = asyncio.create_task(self._ack_collected())

    async def _ack_collected(self) -> None:
        try:
            while self._acks:
                messages, self._acks = self._acks, []
                await self._ack(messages)
        except HeadraceError as error:
            # The leases end by themselves and the messages come again.
            log_event(
                logger,
                logging.ERROR,
                f"{self.worker.name}: {len(messages)} could not be acked and may be delivered "
                f"again: {error}",
                exc_info=error,
            )
        finally:
            self._acking = None

    async def _ack(self, messages: list[AsyncMessage[Any]]) -> None:
        outcomes = await self._queue.ack(messages)
        for message, error in zip(messages, outcomes, strict=True):
            if error is None:
                self.counts.done += 1
            else:
                self._on_lost(message, error)


def _is_interrupt(error: BaseException) -> bool:
    """Whether the operator has ended the function, which is on the loop's own thread."""
    return not isinstance(error, GeneratorExit) and not is_the_message_to_blame(error)


def _is_cancelled() -> bool:
    """Whether somebody has cancelled this task, and not only something in it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _wrapped(middleware: Any, call_next: Next, message: AsyncMessage[Any]) -> None:
    await middleware(message, call_next)


def _call_in_loop(
    loop: asyncio.AbstractEventLoop,
    call: Callable[[AsyncMessage[Any], HeadraceError], None],
    message: AsyncMessage[Any],
    delivery: Delivery,
    error: HeadraceError,
) -> None:
    """Called by the keeper's thread."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, message, error)
