"""A crew: an app's workers at work, on one event loop.

    queue --lease--> slot --> middleware --> function --> settle
                      |  a coroutine on the loop, or a call on a thread
                      '- while it runs, its lease is extended at half its time

Acks are collected: while one call is on its way to the disk the next one fills, so
the quicker the functions are, the more of their acks share a sync.

Stopping is in three steps: nothing more is leased; what runs may end within the
grace; what still runs then is cancelled and its messages are given back at no cost.
A thread cannot be cancelled, so its message is given back and the thread left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace.client.app import App, Next, Reject, Retry, Worker
from headrace.client.async_queue import AsyncQueue
from headrace.client.asynchronous import AsyncHeadrace
from headrace.client.message import AsyncMessage, error_text
from headrace.client.spans import processing
from headrace.client.times import Duration, duration_ms
from headrace.core.errors import DecodeError, HeadraceError, InvalidArgument, StaleReceipt
from headrace.core.limits import ERROR_CHARACTERS_MAX

GRACE_SECONDS = 30.0
REPORT_SECONDS = 10.0

logger = logging.getLogger("headrace.work")


@dataclass
class Counts:
    """What became of the messages of one worker."""

    done: int = 0
    failed: int = 0
    rejected: int = 0
    # Settled too late: they come again.
    lost: int = 0


class Crew:
    """The workers of an app, on a handle that outlives it."""

    def __init__(self, app: App, handle: AsyncHeadrace) -> None:
        if not app.workers:
            raise InvalidArgument("this app has no workers; declare one with @app.worker(topic)")
        self._app = app
        self._handle = handle
        self._stopping = asyncio.Event()
        self._stations = [Station(worker, app) for worker in app.workers]

    def stop(self) -> None:
        """Lease nothing more; `run` returns when what runs has ended."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def counts(self) -> dict[str, Counts]:
        return {station.worker.name: station.counts for station in self._stations}

    async def run(self, *, grace: Duration = GRACE_SECONDS) -> None:
        """Work until `stop`. An error that is no message's fault ends it."""
        grace_seconds = duration_ms("grace", grace) / 1000
        async with AsyncExitStack() as stack:
            if self._app.lifespan is not None:
                await stack.enter_async_context(self._app.lifespan(self._app))
            for station in self._stations:
                await station.open(self._handle, stack)
            reporting = asyncio.create_task(self._report())
            try:
                await self._work(grace_seconds)
            finally:
                reporting.cancel()
        self._say("stopped")

    async def _work(self, grace_seconds: float) -> None:
        self._say("working")
        feeding = [asyncio.create_task(station.feed()) for station in self._stations]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([stopping, *feeding], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            for task in feeding:
                task.cancel()
            ended = await asyncio.gather(*feeding, return_exceptions=True)
            await asyncio.gather(*(each.finish(grace_seconds) for each in self._stations))
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def drain(self, skip_to: Callable[[int], None], messages_max: int) -> None:
        """For tests: one message after the other, and where none is ready time is
        skipped to the next that will be; returns when none ever will."""
        async with AsyncExitStack() as stack:
            if self._app.lifespan is not None:
                await stack.enter_async_context(self._app.lifespan(self._app))
            for station in self._stations:
                await station.open(self._handle, stack)
            handled = 0
            while True:
                worked = 0
                for station in self._stations:
                    worked += await station.work_off()
                handled += worked
                if handled > messages_max:
                    raise InvalidArgument(
                        f"there was still work after {messages_max:,} messages; a worker may feed "
                        "itself, otherwise give a larger messages_max"
                    )
                if worked:
                    continue
                dues = [await station.next_due_ms() for station in self._stations]
                due_ms = min((due for due in dues if due is not None), default=None)
                if due_ms is None:
                    return
                skip_to(due_ms)

    async def _report(self) -> None:
        before = ""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            now = repr(self.counts)
            if now != before:
                before = now
                self._say("progress")

    def _say(self, event: str) -> None:
        for station in self._stations:
            worker, counts = station.worker, station.counts
            logger.info(
                event,
                extra={
                    "worker": worker.name,
                    "topics": ",".join(worker.topics),
                    "group": worker.group,
                    **vars(counts),
                    "running": station.running,
                },
            )


class Station:
    """One worker, its queue and what it is doing."""

    def __init__(self, worker: Worker, app: App) -> None:
        self.worker = worker
        self.counts = Counts()
        self._queue: AsyncQueue[Any]
        self._slots = asyncio.Semaphore(worker.concurrency)
        self._tasks: set[asyncio.Task[None]] = set()
        # What runs now, and when its lease was last known to be fresh.
        self._leases: dict[AsyncMessage[Any], float] = {}
        self._keeping: asyncio.Task[None] | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._acks: list[AsyncMessage[Any]] = []
        self._acking: asyncio.Task[None] | None = None
        self._handle: Next = self._call
        for middleware in reversed(app.middlewares):
            self._handle = partial(_wrapped, middleware, self._handle)

    @property
    def running(self) -> int:
        return len(self._leases)

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
        if not worker.is_async:
            self._threads = ThreadPoolExecutor(worker.concurrency, worker.name)
            stack.callback(self._threads.shutdown, wait=False, cancel_futures=True)

    # Feeding.

    async def feed(self) -> None:
        async with aclosing(self._queue.__aiter__()) as messages:  # type: ignore[type-var]
            async for message in messages:
                try:
                    await self._slots.acquire()
                except asyncio.CancelledError:
                    await self._give_back([message])
                    raise
                task = asyncio.create_task(self._occupy(message))
                self._tasks.add(task)
                task.add_done_callback(self._on_free)

    def _on_free(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slots.release()
        if not task.cancelled() and task.exception() is not None:
            logger.error("settling failed", exc_info=task.exception())

    async def _occupy(self, message: AsyncMessage[Any]) -> None:
        self._keep(message)
        try:
            await self.handle(message, self._ack_soon)
        finally:
            self._leases.pop(message, None)

    async def finish(self, grace_seconds: float) -> None:
        """Until nothing runs any more, one way or the other."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace_seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        if self._keeping is not None:
            self._keeping.cancel()
        while self._acking is not None:
            await self._acking

    async def work_off(self) -> int:
        """Handle what is ready now, one by one; how many there were."""
        messages = await self._queue.receive(self.worker.concurrency, wait=0)
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
        try:
            with processing(message):
                await self._handle(message)
        except asyncio.CancelledError:
            await self._give_back([message])
            raise
        except Exception as error:
            await self._settle(message, error)
            return
        if not message.settled:
            await ack(message)

    async def _call(self, message: AsyncMessage[Any]) -> None:
        call = self._call_async if self.worker.is_async else self._call_in_thread
        await call(message, [message.value] if self.worker.takes_value else [])

    async def _call_async(self, message: AsyncMessage[Any], values: list[Any]) -> None:
        name = self.worker.takes_message
        try:
            async with asyncio.timeout(self._timeout_seconds) as limit:
                await self.worker.function(*values, **({name: message} if name else {}))
        except TimeoutError as error:
            # One that the function raised itself is an error like any other.
            raise (self._timed_out() if limit.expired() else error) from error

    async def _call_in_thread(self, message: AsyncMessage[Any], values: list[Any]) -> None:
        name = self.worker.takes_message
        blocking = self._queue.blocking(message)
        function = partial(self.worker.function, *values, **({name: blocking} if name else {}))
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, copy_context().run, function)
        done, _ = await asyncio.wait([running], timeout=self._timeout_seconds)
        if blocking.settled:
            message.on_settled()
        if not done:
            await self._settle(message, self._timed_out())
            # Its thread goes on, and so its place is not free. What it says in the
            # end is of no interest any more.
            await asyncio.wait([running])
            running.exception()
            return
        running.result()

    @property
    def _timeout_seconds(self) -> float | None:
        return None if self.worker.timeout_ms is None else self.worker.timeout_ms / 1000

    def _timed_out(self) -> TimeoutError:
        return TimeoutError(f"not done after {self._timeout_seconds:g} s")

    async def _settle(self, message: AsyncMessage[Any], error: Exception) -> None:
        if message.settled:
            logger.warning("failed after settling", extra={"id": str(message.id)}, exc_info=error)
            return
        text = error_text(error)
        try:
            if isinstance(error, Reject | DecodeError):
                reason = str(error) if isinstance(error, Reject) else text
                await message.reject(reason=reason[:ERROR_CHARACTERS_MAX] or "rejected")
                self.counts.rejected += 1
                word = "rejected"
            else:
                delay_ms = error.delay_ms if isinstance(error, Retry) else None
                delay = None if delay_ms is None else delay_ms / 1000
                await message.nack(delay=delay, error=text)
                self.counts.failed += 1
                word = "failed"
        except StaleReceipt:
            self._on_lost(message)
            return
        logger.warning(
            word,
            extra={
                "worker": self.worker.name,
                "id": str(message.id),
                "attempt": f"{message.attempt}/{message.max_attempts}",
                "error": text,
            },
        )

    def _on_lost(self, message: AsyncMessage[Any]) -> None:
        self.counts.lost += 1
        logger.warning(
            "its lease was over before it was done; it will be delivered again",
            extra={"worker": self.worker.name, "id": str(message.id)},
        )

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
        except HeadraceError:
            # The leases end by themselves and the messages come again.
            logger.exception("acking failed")
        finally:
            self._acking = None

    async def _ack(self, messages: list[AsyncMessage[Any]]) -> None:
        outcomes = await self._queue.ack(messages)
        for message, error in zip(messages, outcomes, strict=True):
            if error is None:
                self.counts.done += 1
            else:
                self._on_lost(message)

    # Leases.

    def _keep(self, message: AsyncMessage[Any]) -> None:
        self._leases[message] = asyncio.get_running_loop().time()
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._extend_leases())

    async def _extend_leases(self) -> None:
        """Extend what has run for half of its lease, all of them with one call."""
        try:
            while self._leases:
                now = asyncio.get_running_loop().time()
                due = {each: at + _lease_seconds(each) / 2 for each, at in self._leases.items()}
                first = min(due.values())
                if first > now:
                    await asyncio.sleep(min(first - now, _lease_seconds(next(iter(due))) / 4))
                    continue
                late = [each for each, at in due.items() if at <= now]
                with contextlib.suppress(HeadraceError):
                    # One that was lost is noticed when it is settled.
                    await self._queue.extend(late)
                for each in late:
                    if each in self._leases:
                        self._leases[each] = now
        finally:
            self._keeping = None


async def _wrapped(middleware: Any, call_next: Next, message: AsyncMessage[Any]) -> None:
    await middleware(message, call_next)


def _lease_seconds(message: AsyncMessage[Any]) -> float:
    return (message.deadline - message.delivered_at).total_seconds()
