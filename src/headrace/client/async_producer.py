"""A producer for asyncio: the words of `Producer`, awaited.

    async with handle.producer() as producer:
        pending = await producer.publish("orders", {"id": 7})   # taken
        print(await pending)                                    # published

Awaiting `publish` waits for room in the buffer, which is there at once as a rule;
awaiting what it returns waits for the disk. No task holds a thread while it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from types import TracebackType
from typing import Any, Unpack

from headrace.client.async_waiting import Calls
from headrace.client.buffer import Buffer
from headrace.client.outgoing import PublishedMessage, PublishedMessages, PublishOptions
from headrace.client.parcel import Parcel
from headrace.client.producer import PendingPublish, PendingPublishes, Producer
from headrace.core.errors import HeadraceError


class AsyncPendingPublish:
    """A message that was taken; await it to know where it is."""

    __slots__ = ("_buffer", "_pending")

    def __init__(self, pending: PendingPublish, buffer: Buffer) -> None:
        self._pending = pending
        self._buffer = buffer

    def done(self) -> bool:
        return self._pending.done()

    def __await__(self) -> Generator[Any, None, PublishedMessage]:
        yield from wait_over(self._buffer, self._pending.parcel).__await__()
        return self._pending.result()

    def __repr__(self) -> str:
        return repr(self._pending).replace("<Pending", "<AsyncPending")


class AsyncPendingPublishes:
    """Many of them."""

    __slots__ = ("_buffer", "_pending")

    def __init__(self, pending: PendingPublishes, buffer: Buffer) -> None:
        self._pending = pending
        self._buffer = buffer

    def __len__(self) -> int:
        return len(self._pending)

    def done(self) -> bool:
        return self._pending.done()

    def __await__(self) -> Generator[Any, None, PublishedMessages]:
        for parcel in self._pending.parcels:
            yield from wait_over(self._buffer, parcel).__await__()
        return self._pending.places()


class AsyncProducer:
    def __init__(self, producer: Producer, calls: Calls) -> None:
        self._producer = producer
        self._buffer = producer.buffer
        self._calls = calls

    # Publishing.

    async def publish(
        self, topic: str, value: Any, **options: Unpack[PublishOptions]
    ) -> AsyncPendingPublish:
        """Take a message; waits while the buffer is full, and raises BufferFull when
        that takes longer than the timeout."""
        producer, buffer = self._producer, self._buffer
        route = producer.known_route(topic)
        if route is None:
            route = await self._calls.run(producer.route, topic)
        message, block, size = producer.prepare(route, value, options)
        while (taken := buffer.offer(route, message, block, size)) is None:
            await self._wait_for_room(size)
        return AsyncPendingPublish(PendingPublish(topic, *taken, buffer), buffer)

    async def publish_many(
        self, topic: str, values: Iterable[Any], **options: Unpack[PublishOptions]
    ) -> AsyncPendingPublishes:
        await self._calls.run(self._producer.route, topic)
        parts: list[tuple[Parcel, int, int]] = []
        for size in self._producer.take_many(topic, values, options, parts):
            await self._wait_for_room(size)
        return AsyncPendingPublishes(PendingPublishes(topic, parts), self._buffer)

    async def _wait_for_room(self, size: int) -> None:
        wake, event = _waker()
        if not self._buffer.wake_for_room(size, wake):
            return
        try:
            async with asyncio.timeout(self._producer.timeout):
                await event.wait()
        except TimeoutError:
            raise self._buffer.full() from None

    # Waiting, and the end.

    async def flush(self) -> None:
        """Send what was taken so far now, and wait until all of it is over. Raises the
        first error that nobody has asked about."""
        for parcel in self._producer.begin_flush():
            await wait_over(self._buffer, parcel, is_heard=False)
        failure = self._buffer.failure()
        if failure is not None:
            raise failure

    @property
    def closed(self) -> bool:
        return self._producer.closed

    async def close(self) -> None:
        """Flush, and take nothing more. Fine when closed."""
        await self._calls.run(self._producer.close)

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except HeadraceError:
            # An error in the block is the more interesting one.
            if kind is None:
                raise

    def __repr__(self) -> str:
        return repr(self._producer).replace("<Producer", "<AsyncProducer")


async def wait_over(buffer: Buffer, parcel: Parcel, *, is_heard: bool = True) -> None:
    """Until the parcel is over."""
    if not parcel.is_over:
        wake, event = _waker()
        buffer.add_callback(parcel, wake, is_heard=is_heard)
        await event.wait()


def _waker() -> tuple[Callable[[], None], asyncio.Event]:
    """An event of this loop, and a way for any thread to set it."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()

    def wake() -> None:
        try:
            loop.call_soon_threadsafe(event.set)
        except RuntimeError:
            # The loop is closed and nobody waits in it; whoever woke us must not
            # suffer for that.
            return

    return wake, event
