"""A queue for asyncio: the words of `Queue`, awaited.

    async with handle.queue("orders") as queue:
        async for message in queue:
            async with message:
                ...

It wraps a `Queue` and adds only how to wait. A task that is cancelled while it
leases gives back what it would have got.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Generic, TypeVar, overload

from headrace.client.async_waiting import Calls, wait_for_some
from headrace.client.backend import Lined, Outcomes
from headrace.client.connection import Connection
from headrace.client.keeping import Leases
from headrace.client.message import AsyncMessage, Message, error_of, is_the_message_to_blame
from headrace.client.prefetch import Prefetch, is_late
from headrace.client.queue import Queue, checked_count
from headrace.client.settling import Settleable, Settleables
from headrace.client.times import Duration, optional_duration_ms
from headrace.client.waiting import (
    AWAY_SECONDS,
    endured,
    has_line,
    line_ms,
    new_nonce,
    on_away,
)
from headrace.core.errors import Closed, Disconnected, HeadraceError
from headrace.core.values import Delivery, QueueStatistics

T = TypeVar("T")


class AsyncQueue(Generic[T]):
    def __init__(self, queue: Queue[T], calls: Calls, connection: Connection) -> None:
        self._queue = queue
        self._calls = calls
        self._connection = connection
        self.value_type = queue.value_type
        self.auto_extend = queue.auto_extend
        self.keep = queue.keep
        self.drop = queue.drop
        self.now_ms = queue.now_ms

    @property
    def group(self) -> str:
        return self._queue.group

    @property
    def consumer(self) -> str:
        return self._queue.consumer

    @property
    def topics(self) -> tuple[str, ...]:
        return self._queue.topics

    @property
    def closed(self) -> bool:
        return self._queue.closed

    # Receiving.

    async def receive(self, max: int = 10, wait: Duration | None = None) -> list[AsyncMessage[T]]:
        """As `Queue.receive`. No thread is held while it waits."""
        count = checked_count("max", max)
        wait_ms = optional_duration_ms("wait", wait)
        self._queue.check()
        return self._messages(await self._wait(count, wait_ms))

    async def lease(self, count: int = 10) -> list[AsyncMessage[T]]:
        deliveries, _ = await self._lease(checked_count("count", count))
        return self._messages(deliveries)

    def _messages(self, deliveries: list[Delivery]) -> list[AsyncMessage[T]]:
        leases = Leases(deliveries)
        return [AsyncMessage(each, self, leases) for each in deliveries]

    async def __aiter__(self) -> AsyncIterator[AsyncMessage[T]]:
        """As `Queue.__iter__`."""
        prefetch = Prefetch(self._queue.prefetch_max)
        while not self.closed:
            ahead = deque(await self._wait_or_end(prefetch.size))
            if not ahead:
                continue
            last = ahead[-1]
            leases = Leases(tuple(ahead))
            self.keep(leases)
            self._queue.in_hand.add(leases)
            try:
                while ahead and not self.closed:
                    if is_late(ahead[0], self.now_ms()):
                        prefetch.on_late()
                        break
                    leases.handed += 1
                    yield AsyncMessage(ahead.popleft(), self, leases)
                else:
                    prefetch.on_batch_handled(last, self.now_ms())
            finally:
                self.drop(leases)
                await self._give_back(ahead)

    async def _wait(self, count: int, wait_ms: int | None) -> list[Delivery]:
        backend = self._connection.reach()
        bell = self._queue.bell
        while has_line(backend):
            try:
                return await self._wait_in_line(backend, count, wait_ms)
            except endured(backend, wait_ms) as error:
                on_away(backend, error)
                await asyncio.sleep(AWAY_SECONDS)
                if self.closed:
                    return []
        return await wait_for_some(
            self._calls, backend, bell, lambda: self._lease(count), wait_ms, self.topics
        )

    async def _wait_or_end(self, count: int) -> list[Delivery]:
        try:
            return await self._wait(count, None)
        except Closed:
            if self.closed:
                return []
            raise

    async def _wait_in_line(
        self, backend: Lined, count: int, wait_ms: int | None
    ) -> list[Delivery]:
        """As `waiting.wait_in_line`, and no thread waits."""
        end = None if wait_ms is None else time.monotonic() + wait_ms / 1000
        try:
            found, _ = await self._lease(count, is_due_wanted=False)
            while not found and not self.closed and (left_ms := line_ms(end)) > 0:
                found = await self._lease_in_line(backend, count, left_ms)
            return found
        except Closed:
            if self.closed:
                return []
            raise

    async def _lease_in_line(self, backend: Lined, count: int, wait_ms: int) -> list[Delivery]:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Callable[[], list[Delivery]]] = loop.create_future()
        nonce = new_nonce()

        def on_answered(answer: Callable[[], list[Delivery]]) -> None:
            # The loop may be closed, and nobody waits in it then.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, answered, answer)

        begun = self._calls.start(
            lambda: self._queue.begin_lease(backend, count, wait_ms, nonce, on_answered)
        )

        def give_back() -> None:
            with contextlib.suppress(HeadraceError):
                backend.give_back(self.group, self.consumer, [nonce])

        try:
            await asyncio.shield(begun)
            answer = await answered
            return await self._calls.run(answer)
        except asyncio.CancelledError:
            # Nobody will see what it gets. It has to be asked for before it is given back.
            begun.add_done_callback(lambda _: None if self.closed else self._calls.start(give_back))
            raise
        except Disconnected:
            # The connection broke, and what was leased and never heard of is held.
            await self._calls.run(backend.give_back, self.group, self.consumer, [nonce])
            return []

    async def _lease(
        self, count: int, *, is_due_wanted: bool = True
    ) -> tuple[list[Delivery], int | None]:
        lease = self._calls.start(lambda: self._lease_in_thread(count, is_due_wanted))
        try:
            return await asyncio.shield(lease)
        except asyncio.CancelledError:
            # The thread goes on without us, and nobody will see what it gets.
            lease.add_done_callback(self._on_orphaned)
            raise

    def _lease_in_thread(
        self, count: int, is_due_wanted: bool
    ) -> tuple[list[Delivery], int | None]:
        deliveries = self._queue.lease_deliveries(count)
        is_due_wanted = is_due_wanted and not deliveries
        return deliveries, self._queue.next_due_ms() if is_due_wanted else None

    def _on_orphaned(self, lease: asyncio.Future[tuple[list[Delivery], int | None]]) -> None:
        if lease.cancelled() or lease.exception() is not None:
            return
        deliveries, _ = lease.result()
        if deliveries and not self.closed:
            self._calls.start(lambda: self._queue.give_back(deque(deliveries)))

    async def _give_back(self, ahead: deque[Delivery]) -> None:
        if ahead and not self.closed:
            await self._calls.run(self._queue.give_back, ahead)

    async def next_due_ms(self) -> int | None:
        """When time alone may make something ready."""
        return await self._calls.run(self._queue.next_due_ms)

    def blocking(self, message: AsyncMessage[T]) -> Message[T]:
        """The same message for a thread, where its words block."""
        return Message(message.delivery, self._queue, message.leases)

    # Settling.

    @overload
    async def ack(self, message: Settleable) -> None: ...
    @overload
    async def ack(self, message: Settleables) -> Outcomes: ...
    async def ack(self, message: Any) -> Outcomes | None:
        return await self._calls.run(self._queue.ack, message)

    @overload
    async def nack(
        self, message: Settleable, *, delay: Duration | None = None, error: str | None = None
    ) -> None: ...
    @overload
    async def nack(
        self, message: Settleables, *, delay: Duration | None = None, error: str | None = None
    ) -> Outcomes: ...
    async def nack(
        self, message: Any, *, delay: Duration | None = None, error: str | None = None
    ) -> Outcomes | None:
        return await self._calls.run(self._queue.nack, message, delay=delay, error=error)

    @overload
    async def reject(
        self, message: Settleable, error: str | None = None, *, reason: str | None = None
    ) -> None: ...
    @overload
    async def reject(
        self, message: Settleables, error: str | None = None, *, reason: str | None = None
    ) -> Outcomes: ...
    async def reject(
        self, message: Any, error: str | None = None, *, reason: str | None = None
    ) -> Outcomes | None:
        text = error_of(error, reason)
        return await self._calls.run(self._queue.reject, message, text)

    @overload
    async def release(self, message: Settleable) -> None: ...
    @overload
    async def release(self, message: Settleables) -> Outcomes: ...
    async def release(self, message: Any) -> Outcomes | None:
        return await self._calls.run(self._queue.release, message)

    @overload
    async def extend(self, message: Settleable, seconds: Duration | None = None) -> None: ...
    @overload
    async def extend(self, message: Settleables, seconds: Duration | None = None) -> Outcomes: ...
    async def extend(self, message: Any, seconds: Duration | None = None) -> Outcomes | None:
        return await self._calls.run(self._queue.extend, message, seconds)

    # Looking, changing, closing.

    async def depth(self) -> int:
        return await self._calls.run(self._queue.depth)

    async def stats(self) -> QueueStatistics:
        return await self._calls.run(self._queue.stats)

    async def add_topics(self, *topics: str) -> None:
        await self._calls.run(self._queue.add_topics, *topics)

    async def remove_topics(self, *topics: str) -> None:
        await self._calls.run(self._queue.remove_topics, *topics)

    async def close(self) -> None:
        """Give back every lease and end every loop and wait. Fine when closed."""
        if not self.closed:
            await self._calls.run(self._queue.close)

    async def __aenter__(self) -> AsyncQueue[T]:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            # A task that is cancelled is not kept waiting for nothing.
            if error is not None and is_the_message_to_blame(error) and not self.closed:
                await self._calls.run(self._queue.fail_in_hand, error)
        finally:
            await self.close()

    def __repr__(self) -> str:
        return f"<AsyncQueue {','.join(self.topics)} group={self.group}>"


def _resolve(future: asyncio.Future[Any], answer: object) -> None:
    if not future.done():
        future.set_result(answer)
