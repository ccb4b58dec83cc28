"""The handle for asyncio: the words of `Headrace`, awaited.

    async with headrace.open_async("data/") as handle:
        await handle.create_topic("orders")
        await handle.publish("orders", {"id": 7})
        async with handle.queue("orders") as queue:
            async for message in queue:
                async with message:
                    ...

What has to be opened can be awaited or entered: `queue = await handle.queue(...)`
and `async with handle.queue(...) as queue` are the same. A handle belongs to one
event loop.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar, Unpack, overload

from headrace.client.async_letters import AsyncDeadLetters, AsyncDelayed
from headrace.client.async_producer import AsyncProducer
from headrace.client.async_queue import AsyncQueue
from headrace.client.async_stream import AsyncStream
from headrace.client.async_waiting import Calls
from headrace.client.handle import DEFAULT_GROUP, Headrace, open_handle
from headrace.client.message import is_the_message_to_blame
from headrace.client.outgoing import PublishedMessage, PublishedMessages, PublishOptions
from headrace.client.positions import Start
from headrace.client.producer import (
    BATCH_BYTES,
    BATCH_MESSAGES,
    BUFFER_BYTES,
    LINGER_MS,
    TIMEOUT_SECONDS,
    Acks,
    Compression,
)
from headrace.client.queue import PREFETCH_DEFAULT
from headrace.client.stream import AUTO_COMMIT_SECONDS
from headrace.client.times import Duration
from headrace.client.traces import TraceChoice
from headrace.client.transaction import AsyncTransaction
from headrace.core.ports import Clock
from headrace.core.trace_values import MessageTrace
from headrace.core.values import (
    GroupInfo,
    MessageStatus,
    QueueStatistics,
    TopicInfo,
    TransactionInfo,
)

T = TypeVar("T")


class Leavable(Protocol):
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...


Opened = TypeVar("Opened", bound=Leavable)


class Opening(Generic[Opened]):
    """Something that is about to be opened: await it or enter it."""

    def __init__(self, start: Callable[[], Awaitable[Opened]]) -> None:
        self._start = start
        self._opened: Opened | None = None

    def __await__(self) -> Generator[Any, None, Opened]:
        return self._start().__await__()

    async def __aenter__(self) -> Opened:
        self._opened = await self._start()
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, traceback)


def open_async(
    path: str | os.PathLike[str], *, read_only: bool = False, auto_create: bool = False
) -> Opening[AsyncHeadrace]:
    """As `headrace.open`, for asyncio: await it or use it by `async with`."""

    async def start() -> AsyncHeadrace:
        calls = Calls()
        try:
            handle = await calls.run(
                open_handle, path, read_only=read_only, auto_create=auto_create
            )
        except BaseException:
            calls.close()
            raise
        return AsyncHeadrace(handle, calls)

    return Opening(start)


class AsyncHeadrace:
    def __init__(self, handle: Headrace, calls: Calls | None = None) -> None:
        self._handle = handle
        self._calls = Calls() if calls is None else calls
        self._run = self._calls.run

    # Topics.

    async def create_topic(
        self, name: str, partitions: int = 3, *, exist_ok: bool = False, **settings: Any
    ) -> TopicInfo:
        return await self._run(
            self._handle.create_topic, name, partitions, exist_ok=exist_ok, **settings
        )

    async def delete_topic(self, name: str) -> None:
        await self._run(self._handle.delete_topic, name)

    async def alter_topic(self, name: str, **settings: Any) -> TopicInfo:
        return await self._run(self._handle.alter_topic, name, **settings)

    async def grow_topic(
        self, name: str, partitions: int, *, break_key_order: bool = False
    ) -> TopicInfo:
        return await self._run(
            self._handle.grow_topic, name, partitions, break_key_order=break_key_order
        )

    async def topic(self, name: str) -> TopicInfo:
        return await self._run(self._handle.topic, name)

    async def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        return await self._run(self._handle.topics, internal=internal)

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        return await self._run(self._handle.delete_records, topic, partition, before_offset)

    # Publishing.

    async def publish(
        self, topic: str, value: Any, **options: Unpack[PublishOptions]
    ) -> PublishedMessage:
        return await self._run(self._handle.publish, topic, value, **options)

    async def publish_many(
        self, topic: str, values: Iterable[Any], **options: Unpack[PublishOptions]
    ) -> PublishedMessages:
        return await self._run(self._handle.publish_many, topic, values, **options)

    def producer(
        self,
        *,
        linger_ms: int = LINGER_MS,
        acks: Acks = "all",
        compression: Compression = "none",
        batch_messages: int = BATCH_MESSAGES,
        batch_bytes: int = BATCH_BYTES,
        buffer_bytes: int = BUFFER_BYTES,
        timeout: Duration = TIMEOUT_SECONDS,
    ) -> AsyncProducer:
        """As `Headrace.producer`, by `async with`."""
        producer = self._handle.producer(
            linger_ms=linger_ms,
            acks=acks,
            compression=compression,
            batch_messages=batch_messages,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            timeout=timeout,
        )
        return AsyncProducer(producer, self._calls)

    def transaction(self) -> AsyncTransaction:
        """As `Headrace.transaction`, by `async with`."""
        return AsyncTransaction(self._handle.connection, self._calls)

    async def transactions(self) -> list[TransactionInfo]:
        return await self._run(self._handle.transactions)

    # Consuming.

    @overload
    def queue(
        self,
        topics: str | Iterable[str],
        group: str = ...,
        *,
        type: type[T],
        consumer: str | None = ...,
        visibility: Duration | None = ...,
        prefetch: int = ...,
        auto_extend: bool = ...,
        **settings: Any,
    ) -> Opening[AsyncQueue[T]]: ...
    @overload
    def queue(
        self,
        topics: str | Iterable[str],
        group: str = ...,
        *,
        type: Any = ...,
        consumer: str | None = ...,
        visibility: Duration | None = ...,
        prefetch: int = ...,
        auto_extend: bool = ...,
        **settings: Any,
    ) -> Opening[AsyncQueue[Any]]: ...
    def queue(
        self,
        topics: str | Iterable[str],
        group: str = DEFAULT_GROUP,
        *,
        type: Any = None,
        consumer: str | None = None,
        visibility: Duration | None = None,
        prefetch: int = PREFETCH_DEFAULT,
        auto_extend: bool = True,
        **settings: Any,
    ) -> Opening[AsyncQueue[Any]]:
        async def start() -> AsyncQueue[Any]:
            queue = await self._run(
                lambda: self._handle.queue(
                    topics,
                    group,
                    type=type,
                    consumer=consumer,
                    visibility=visibility,
                    prefetch=prefetch,
                    auto_extend=auto_extend,
                    **settings,
                )
            )
            return AsyncQueue(queue, self._calls, self._handle.connection)

        return Opening(start)

    @overload
    def stream(
        self,
        topics: str | Iterable[str],
        group: str | None = ...,
        *,
        type: type[T],
        start: Start | None = ...,
        reset: str = ...,
        auto_commit: Duration | None = ...,
        partitions: Iterable[int] | None = ...,
        consumer: str | None = ...,
    ) -> Opening[AsyncStream[T]]: ...
    @overload
    def stream(
        self,
        topics: str | Iterable[str],
        group: str | None = ...,
        *,
        type: Any = ...,
        start: Start | None = ...,
        reset: str = ...,
        auto_commit: Duration | None = ...,
        partitions: Iterable[int] | None = ...,
        consumer: str | None = ...,
    ) -> Opening[AsyncStream[Any]]: ...
    def stream(
        self,
        topics: str | Iterable[str],
        group: str | None = None,
        *,
        type: Any = None,
        start: Start | None = None,
        reset: str = "earliest",
        auto_commit: Duration | None = AUTO_COMMIT_SECONDS,
        partitions: Iterable[int] | None = None,
        consumer: str | None = None,
    ) -> Opening[AsyncStream[Any]]:
        async def begin() -> AsyncStream[Any]:
            stream = await self._run(
                self._handle.stream,
                topics,
                group,
                type=type,
                start=start,
                reset=reset,
                auto_commit=auto_commit,
                partitions=partitions,
                consumer=consumer,
            )
            return AsyncStream(stream, self._calls, self._handle.connection)

        return Opening(begin)

    # Messages that are not on their way.

    def dead_letters(self, topic: str) -> AsyncDeadLetters:
        return AsyncDeadLetters(self._handle.dead_letters(topic), self._calls)

    def delayed(self, topic: str) -> AsyncDelayed:
        return AsyncDelayed(self._handle.delayed(topic), self._calls)

    async def cancel(self, id: object) -> bool:
        return await self._run(self._handle.cancel, id)

    async def status(self, id: object, group: str = DEFAULT_GROUP) -> MessageStatus:
        return await self._run(self._handle.status, id, group)

    async def trace(self, what: object) -> MessageTrace:
        return await self._run(self._handle.trace, what)

    def traces(self, **choice: Unpack[TraceChoice]) -> AsyncIterator[MessageTrace]:
        return self._calls.in_chunks(self._handle.traces(**choice))

    # Groups.

    async def groups(self) -> list[GroupInfo]:
        return await self._run(self._handle.groups)

    async def group(self, name: str) -> GroupInfo:
        return await self._run(self._handle.group, name)

    async def alter_group(self, name: str, **settings: Any) -> GroupInfo:
        return await self._run(self._handle.alter_group, name, **settings)

    async def delete_group(self, name: str) -> None:
        await self._run(self._handle.delete_group, name)

    @overload
    async def stats(self, group: None = ...) -> list[QueueStatistics]: ...
    @overload
    async def stats(self, group: str) -> QueueStatistics: ...
    async def stats(self, group: str | None = None) -> QueueStatistics | list[QueueStatistics]:
        if group is None:
            return await self._run(self._handle.stats, None)
        return await self._run(self._handle.stats, group)

    async def depth(self, topic: str | None = None, *, group: str | None = None) -> int:
        return await self._run(self._handle.depth, topic, group=group)

    # The end.

    @property
    def clock(self) -> Clock:
        return self._handle.connection.reach().clock

    def detach(self) -> None:
        """Give up the threads of this face, and leave what it stands on open."""
        self._calls.close()

    @property
    def closed(self) -> bool:
        return self._handle.closed

    async def close(self) -> None:
        """Close its queues and streams, then the directory. Fine when closed."""
        try:
            if not self._handle.closed:
                await self._run(self._handle.close)
        finally:
            self._calls.close()

    def give_up(self) -> None:
        """Wait for a node elsewhere no more: every call ends, and `close` is quick."""
        self._handle.give_up()

    def close_now(self) -> None:
        """Close from outside the loop, once the loop has ended."""
        try:
            self._handle.close()
        finally:
            self._calls.close()

    async def __aenter__(self) -> AsyncHeadrace:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is not None and is_the_message_to_blame(error) and not self.closed:
                await self._run(self._handle.fail_in_hand, error)
        finally:
            await self.close()

    def __repr__(self) -> str:
        return repr(self._handle).replace("<Headrace", "<AsyncHeadrace")
