"""A stream for asyncio: the words of `Stream`, awaited.

It wraps a `Stream` and adds only how to wait. Records that were read ahead are
given without a thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Generic, TypeVar

from headrace.client.async_waiting import Calls, wait_for_some
from headrace.client.backend import Place
from headrace.client.connection import Connection
from headrace.client.positions import Position, Start
from headrace.client.queue import checked_count
from headrace.client.stream import POLL_RECORDS, Stream
from headrace.client.times import Duration, optional_duration_ms
from headrace.client.views import Record
from headrace.core.errors import Closed
from headrace.core.values import StreamRecord

T = TypeVar("T")


class AsyncStream(Generic[T]):
    def __init__(self, stream: Stream[T], calls: Calls, connection: Connection) -> None:
        self._stream = stream
        self._calls = calls
        self._connection = connection

    @property
    def group(self) -> str | None:
        return self._stream.group

    @property
    def blocking(self) -> Stream[T]:
        return self._stream

    @property
    def member(self) -> str:
        return self._stream.member

    @property
    def topics(self) -> tuple[str, ...]:
        return self._stream.topics

    @property
    def closed(self) -> bool:
        return self._stream.closed

    async def poll(self, max: int = POLL_RECORDS, wait: Duration | None = None) -> list[Record[T]]:
        """As `Stream.poll`. No thread is held while it waits."""
        count = checked_count("max", max)
        wait_ms = optional_duration_ms("wait", wait)
        await self._on_handled()
        self._stream.check()
        records = await self._wait(count, wait_ms)
        return [Record(record, self._stream.value_type) for record in records]

    async def __aiter__(self) -> AsyncIterator[Record[T]]:
        """Record after record, until the stream is closed."""
        while not self.closed:
            try:
                await self._on_handled()
                records = self._stream.take_ahead() or await self._wait(1, None)
            except Closed:
                if self.closed:
                    return
                raise
            for record in records:
                yield Record(record, self._stream.value_type)

    async def _on_handled(self) -> None:
        if self._stream.mark_handled():
            await self._calls.run(self._stream.commit_handled)

    async def _wait(self, count: int, wait_ms: int | None) -> list[StreamRecord]:
        async def attempt() -> tuple[list[StreamRecord], int | None]:
            return await self._calls.run(self._stream.take_nowait, count), None

        backend = self._connection.reach()
        return await wait_for_some(
            self._calls, backend, self._stream.bell, attempt, wait_ms, self.topics
        )

    async def commit(self) -> None:
        await self._calls.run(self._stream.commit)

    async def seek(
        self, position: Position, *, topic: str | None = None, partition: int | None = None
    ) -> None:
        await self._calls.run(self._stream.seek, position, topic=topic, partition=partition)

    async def position(self) -> dict[Place, int]:
        return await self._calls.run(self._stream.position)

    async def assignment(self) -> list[Place]:
        return await self._calls.run(self._stream.assignment)

    async def add_topics(self, *topics: str, start: Start = "earliest") -> None:
        await self._calls.run(self._stream.add_topics, *topics, start=start)

    async def remove_topics(self, *topics: str) -> None:
        await self._calls.run(self._stream.remove_topics, *topics)

    async def close(self) -> None:
        await self._end(failed=False)

    async def _end(self, *, failed: bool) -> None:
        if not self.closed:
            await self._calls.run(self._stream.end, failed=failed)

    async def __aenter__(self) -> AsyncStream[T]:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._end(failed=error is not None)

    def __repr__(self) -> str:
        return f"<AsyncStream {','.join(self.topics)} group={self.group}>"
