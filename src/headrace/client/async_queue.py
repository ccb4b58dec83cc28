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
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Generic, TypeVar, overload

from headrace.client.async_waiting import Calls, wait_for_some
from headrace.client.backend import Outcomes
from headrace.client.connection import Connection
from headrace.client.keeping import Leases
from headrace.client.message import AsyncMessage, Message
from headrace.client.prefetch import Prefetch, is_late
from headrace.client.queue import Queue, checked_count
from headrace.client.settling import Settleable, Settleables
from headrace.client.times import Duration, optional_duration_ms
from headrace.core.errors import Closed
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
            try:
                while ahead and not self.closed:
                    if is_late(ahead[0], self.now_ms()):
                        prefetch.on_late()
                        break
                    yield AsyncMessage(ahead.popleft(), self, leases)
                else:
                    prefetch.on_batch_handled(last, self.now_ms())
            finally:
                self.drop(leases)
                await self._give_back(ahead)

    async def _wait(self, count: int, wait_ms: int | None) -> list[Delivery]:
        backend = self._connection.reach()
        bell = self._queue.bell
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

    async def _lease(self, count: int) -> tuple[list[Delivery], int | None]:
        lease = self._calls.start(lambda: self._lease_in_thread(count))
        try:
            return await asyncio.shield(lease)
        except asyncio.CancelledError:
            # The thread goes on without us, and nobody will see what it gets.
            lease.add_done_callback(self._on_orphaned)
            raise

    def _lease_in_thread(self, count: int) -> tuple[list[Delivery], int | None]:
        deliveries = self._queue.lease_deliveries(count)
        return deliveries, None if deliveries else self._queue.next_due_ms()

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
    async def reject(self, message: Settleable, *, reason: str | None = None) -> None: ...
    @overload
    async def reject(self, message: Settleables, *, reason: str | None = None) -> Outcomes: ...
    async def reject(self, message: Any, *, reason: str | None = None) -> Outcomes | None:
        return await self._calls.run(self._queue.reject, message, reason=reason)

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
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncQueue {','.join(self.topics)} group={self.group}>"
