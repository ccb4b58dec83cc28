"""Fetch, versions 4 to 18.

Batches go out as they lie on disk, whole, from the one that holds the asked-for
offset on; the first goes out even when it is larger than the limit. Nothing above
the high watermark is shown, and to a reader of committed records nothing above the
last stable offset; such a reader gets the list of aborted transactions to leave out.
When there is less than min_bytes the answer waits for more, at most max_wait_ms, and not
while another request waits for its turn behind this one (see turns.py), nor for no
partitions, as clients ask that end their session.

A fetch of a replica is refused (replicas.py). One that says which epoch it fetched last, and
whose log went another way since, is told where that epoch ends here, and gets no records.

Records of the node's own topics that Kafka has, too, go out in Kafka's format
(coordinator_topics.py), in slices and so much at a time.

What is in memory is read at once, on the loop; for the rest a thread waits for the
disk, and the answer for the thread.

An answer holds at most so much (see the limits), whatever the client allows, and
one to a client that does not take its earlier answers holds no records: it asks
again when it has taken them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from headrace.core.errors import CorruptLog, HeadraceError, UnknownTopic
from headrace.core.limits import COORDINATOR_READ_BYTES_MAX, FETCH_BYTES_MAX
from headrace.core.ports import Buffer, WouldWait
from headrace.core.steps import Steps, run_to_end
from headrace.engine.partition import Partition
from headrace.server.kafka.coordinator_topics import (
    is_any_rewritten,
    is_rewritten,
    rewriting,
    sync_soon,
)
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of, code_of_failure
from headrace.server.kafka.fetch_data import aborted_in, check_epoch, failed, find_divergence
from headrace.server.kafka.fetch_session import FetchSession, Key, Told
from headrace.server.kafka.names import topic_of
from headrace.server.kafka.replicas import is_fetch_of_replica, refuse_fetch
from headrace.server.slices import Slices, answer, in_slices
from headrace.wire.kafka.generated.fetch_request import FetchPartition, FetchRequest
from headrace.wire.kafka.generated.fetch_response import (
    DEFAULT_EPOCH_END_OFFSET,
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

READ_COMMITTED = 1
WAIT_MS_MAX = 60_000
# More partitions than these are read in slices.
MANY = 256
# An index, where to look in the log, and the records: each may have to be brought
# into memory, and memory may be short.
WARMINGS_MAX = 8


def handle(
    call: Call, request: FetchRequest
) -> FetchResponse | asyncio.Future[FetchResponse] | Coroutine[Any, Any, FetchResponse]:
    if is_fetch_of_replica(request):
        size = sum(1 + len(topic.partitions) for topic in request.topics)
        return answer(size, refuse_fetch(request))
    session = call.door.fetch_sessions.find(request)
    if isinstance(session, Error):
        return FetchResponse(error_code=session)
    is_full = request.session_epoch <= 0
    reading = _Reading(call, request, session, is_full=is_full)
    catalog = call.broker.topics.catalog
    if len(session.wanted) <= MANY and not is_any_rewritten(catalog, session.wanted):
        return reading.start()
    return reading.answer_in_slices()


class _Reading:
    """One fetch, which may look several times before it is answered."""

    def __init__(
        self, call: Call, request: FetchRequest, session: FetchSession, *, is_full: bool
    ) -> None:
        self._call = call
        self._request = request
        self._session = session
        self._is_full = is_full
        # Its own once it waits: a request behind it may change the session.
        self._wanted: Mapping[Key, FetchPartition] = session.wanted
        self._found: dict[Key, PartitionData] = {}
        # Of the partitions with records: the topic, and how many offsets go out.
        self._passed: dict[Key, tuple[str, int]] = {}
        # What was read from at the last look, and how much there was to read then.
        self._partitions: list[Partition] = []
        # Those whose records are still in the node's own format.
        self._unwritten: dict[Key, Partition] = {}
        # How many bytes of the answer are left.
        self._left = 0
        self._log_bytes = 0
        self._stable_ends: list[int] = []
        self._is_committed = request.isolation_level == READ_COMMITTED
        # Those whose news this fetch waits for.
        self._waited: list[Partition] = []
        self._size = 0
        # Errors, and logs that diverge: of these a client hears at once.
        self._has_errors = False
        # What is not in memory, and how often that was so.
        self._cold: list[WouldWait] = []
        self._warmings = 0
        # Of a fetch in slices: that there may be more to read, and that it has to end.
        self._news = asyncio.Event()
        self._is_over = False
        # What it was given of the budget to wait in.
        self._held_bytes = 0
        self._answer: asyncio.Future[FetchResponse] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> FetchResponse | asyncio.Future[FetchResponse]:
        self._read()
        if not self._cold and not self._may_wait():
            return self.response()
        self._answer = self._call.service.loop.create_future()
        self._wanted = dict(self._session.wanted)
        if self._cold:
            self._warm()
        else:
            self._wait()
        return self._answer

    def is_enough(self) -> bool:
        return self._has_errors or self._size >= self._request.min_bytes

    def _is_due(self) -> bool:
        return (
            self.is_enough()
            or not self._wanted
            or self._request.max_wait_ms <= 0
            or self._call.connection.is_hurried
        )

    def _may_wait(self) -> bool:
        """Whether there is a reason to wait, and room for one more who does: otherwise
        it is answered with what there is, and its client asks again."""
        if self._is_due():
            return False
        self._held_bytes = self._call.door.held.wait(len(self._wanted))
        return self._held_bytes > 0

    def _stop_holding(self) -> None:
        self._call.door.held.end_wait(self._held_bytes)
        self._held_bytes = 0

    def _warm(self) -> None:
        """Let a thread wait for the disk, and look again. An answer without what is
        cold would do for now, but its readers would never get on."""
        self._warmings += 1
        self._call.service.read_in_thread(self._cold).add_done_callback(self._on_warm)

    def _on_warm(self, done: asyncio.Future[None]) -> None:
        if self._answer is None or self._answer.done():
            return
        if self._call.connection.is_closed or done.cancelled():
            self._answer.cancel()
            return
        self._read()
        if self._cold:
            self._warm()
        elif self._may_wait():
            self._wait()
        else:
            self._answer.set_result(self.response())

    def _wait(self) -> None:
        service = self._call.service
        self._waited = self._partitions
        service.wait_on(self._waited, self._on_news)
        wait_ms = min(self._request.max_wait_ms, WAIT_MS_MAX)
        self._timer = service.loop.call_later(wait_ms / 1000, self._finish)
        self._call.door.polls.add(self._finish)
        self._call.connection.polls.add(self._finish)
        self._call.connection.on_closed.append(self._finish)

    def _on_news(self) -> None:
        if self._answer is None or self._answer.done() or not self._may_be_enough():
            return
        self._read()
        if self.is_enough():
            self._end()

    def _may_be_enough(self) -> bool:
        """False when even all that was appended since the last look is too little:
        then looking would read the same bytes again for nothing."""
        if self._request.min_bytes <= 1 or any(each.is_led_elsewhere for each in self._partitions):
            return True
        if self._is_committed and self._stable_ends != self._find_stable_ends():
            # A marker shows more than what was appended since.
            return True
        grown = sum(partition.log.size_bytes for partition in self._partitions) - self._log_bytes
        # Less than before: segments, or a whole topic, are gone.
        return grown < 0 or self._size + grown >= self._request.min_bytes

    def _find_stable_ends(self) -> list[int]:
        return [partition.last_stable_offset for partition in self._partitions]

    def _finish(self) -> None:
        """The time is over, or the connection, or the node's own; or a request waits
        behind this one."""
        if self._answer is not None and not self._answer.done():
            # What came meanwhile was too little to wake up for, and is due now.
            if not self._call.connection.is_closed:
                self._read()
            self._end()

    def _end(self) -> None:
        assert self._answer is not None
        self._stop_holding()
        if self._timer is not None:
            self._timer.cancel()
        self._call.service.stop_waiting(self._waited, self._on_news)
        self._call.door.polls.discard(self._finish)
        self._call.connection.polls.discard(self._finish)
        on_closed = self._call.connection.on_closed
        if self._finish in on_closed:
            on_closed.remove(self._finish)
        if self._call.connection.is_closed:
            self._answer.cancel()
        else:
            self._answer.set_result(self.response())

    # Very many partitions, or records to be rewritten.

    async def answer_in_slices(self) -> FetchResponse:
        """`start` with turns for others while it looks. It listens before it looks for
        the last time, so nothing that comes between the two is missed."""
        service, connection = self._call.service, self._call.connection
        wait_ms = min(max(self._request.max_wait_ms, 0), WAIT_MS_MAX)
        deadline = service.loop.time() + wait_ms / 1000
        self._wanted = dict(self._session.wanted)
        self._held_bytes = self._call.door.held.wait(len(self._wanted))
        if not self._held_bytes:
            # There is no room for one more who waits.
            deadline = service.loop.time()
        self._call.door.polls.add(self._on_over)
        connection.polls.add(self._news.set)
        connection.on_closed.append(self._on_over)
        try:
            while not self._is_over:
                await self._read_in_slices()
                if self._cold:
                    self._warmings += 1
                    await service.read_in_thread(self._cold)
                elif self._is_due() or service.loop.time() >= deadline:
                    break
                elif not self._waited:
                    await self._listen()
                elif not await self._wait_for_news(deadline):
                    break
        finally:
            self._stop_holding()
            service.stop_waiting(self._waited, self._news.set)
            self._call.door.polls.discard(self._on_over)
            connection.polls.discard(self._news.set)
            if self._on_over in connection.on_closed:
                connection.on_closed.remove(self._on_over)
        if connection.is_closed:
            raise asyncio.CancelledError
        return await in_slices(self._respond())

    def _on_over(self) -> None:
        """The connection is gone, or the node stops: nobody waits any more."""
        self._is_over = True
        self._news.set()

    async def _listen(self) -> None:
        self._waited = self._partitions
        slices = Slices()
        for partition in self._waited:
            self._call.service.wait_on((partition,), self._news.set)
            await slices.rest()

    async def _wait_for_news(self, deadline: float) -> bool:
        """Whether there may be enough now; False when the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while not self._is_over:
                    await self._news.wait()
                    self._news.clear()
                    if self._call.connection.is_hurried or self._may_be_enough():
                        return True
        # What came meanwhile was too little to wake up for, and is due now.
        await self._read_in_slices()
        return False

    # Reading.

    def _read(self) -> None:
        self._begin_look()
        with self._patience():
            for key, wanted in self._wanted.items():
                self._look_at(key, wanted)
        self._end_look()

    async def _read_in_slices(self) -> None:
        self._begin_look()
        slices = Slices()
        for key, wanted in self._wanted.items():
            with self._patience():
                self._look_at(key, wanted)
            if key in self._unwritten:
                await self._rewrite(key, wanted)
            await slices.rest()
        self._end_look()

    def _begin_look(self) -> None:
        self._found = {}
        self._passed = {}
        self._partitions = []
        self._unwritten = {}
        self._size = 0
        self._cold = []
        self._left = min(self._request.max_bytes, FETCH_BYTES_MAX)
        if self._call.connection.is_congested:
            self._left = -1

    def _look_at(self, key: Key, wanted: FetchPartition) -> None:
        data, size = self._read_partition(key, wanted, self._left)
        self._found[key] = data
        self._has_errors |= data.error_code != 0
        self._size += size
        self._left -= size

    def _end_look(self) -> None:
        if self._request.min_bytes > 1:
            self._log_bytes = sum(partition.log.size_bytes for partition in self._partitions)
            if self._is_committed:
                self._stable_ends = self._find_stable_ends()

    def _patience(self) -> AbstractContextManager[None]:
        """Who was promised memory and finds none again and again waits here."""
        if self._warmings >= WARMINGS_MAX:
            return nullcontext()
        return self._call.service.disk.without_waiting()

    def _read_partition(
        self, key: Key, wanted: FetchPartition, left: int
    ) -> tuple[PartitionData, int]:
        name, topic_id, index = key
        service = self._call.service
        try:
            topic = topic_of(service, name, topic_id)
            partition = self._call.broker.topics.partition(topic, index)
            partition.check_here()
        except UnknownTopic:
            by_id = self._call.version >= 13
            code = Error.UNKNOWN_TOPIC_ID if by_id else Error.UNKNOWN_TOPIC_OR_PARTITION
            return failed(index, code), 0
        except HeadraceError as error:
            return failed(index, code_of(error)), 0
        self._partitions.append(partition)
        if is_rewritten(topic.name):
            sync_soon(service, partition)
        stale = check_epoch(partition, wanted.current_leader_epoch, service.node_id)
        if stale is not None:
            return stale, 0
        start, end = partition.log.start_offset, partition.high_watermark
        if partition.stopped is not None:
            # Not that its offset is out of range: it would begin elsewhere.
            return failed(index, code_of(partition.stopped), start, end), 0
        if wanted.last_fetched_epoch >= 0:
            diverged = find_divergence(partition, wanted)
            if diverged is not None:
                self._has_errors = True
                return diverged, 0
        if not start <= wanted.fetch_offset <= max(end, partition.log.end_offset):
            return failed(index, Error.OFFSET_OUT_OF_RANGE, start, end), 0
        stable = partition.last_stable_offset
        # Null says "did not ask"; a reader of committed records asks.
        aborted: Sequence[AbortedTransaction] | None = None
        try:
            records, behind = self._read_records(
                partition, wanted, left, stable if self._is_committed else end
            )
            if records:
                self._passed[key] = (topic.name, behind - wanted.fetch_offset)
                if is_rewritten(topic.name):
                    self._unwritten[key] = partition
            if self._is_committed:
                aborted = aborted_in(partition, wanted.fetch_offset, records)
        except WouldWait as cold:
            self._cold.append(cold)
            records, aborted = b"", () if self._is_committed else None
        except CorruptLog as error:
            partition.stop(error)
            return failed(index, code_of(error), start, end), 0
        except (HeadraceError, OSError) as error:
            return failed(index, code_of_failure(error), start, end), 0
        data = PartitionData(
            index, 0, end, stable, start, aborted_transactions=aborted, records=records
        )
        return data, len(records)

    def _read_records(
        self, partition: Partition, wanted: FetchPartition, left: int, end: int
    ) -> tuple[Buffer, int]:
        """And the offset behind them."""
        is_first = not self._size and left >= 0
        if wanted.fetch_offset >= end or (left <= 0 and not is_first):
            return b"", 0
        limit = max(1, min(wanted.partition_max_bytes, left))
        if is_rewritten(partition.topic.name):
            limit = min(limit, COORDINATOR_READ_BYTES_MAX)
        records, behind = partition.log.read_to(wanted.fetch_offset, limit, end)
        # The first batch of an answer goes out whatever its size, so that whoever
        # asks for little still gets on. Any other waits for the next answer.
        return (records, behind) if is_first or len(records) <= left else (b"", 0)

    async def _rewrite(self, key: Key, wanted: FetchPartition) -> None:
        """Put what was read of a partition into Kafka's format. It may be larger then, and
        less of it fit."""
        partition, data = self._unwritten.pop(key), self._found[key]
        batches = data.records or b""
        self._size -= len(batches)
        self._left += len(batches)
        try:
            records, behind = await in_slices(
                rewriting(
                    self._call.broker.topics.catalog,
                    partition.topic.name,
                    batches,
                    wanted.fetch_offset,
                    min(wanted.partition_max_bytes, self._left),
                    force=not self._size,
                )
            )
        except CorruptLog as error:
            partition.stop(error)
            records, behind = b"", wanted.fetch_offset
            data = failed(
                partition.index, code_of(error), data.log_start_offset, data.high_watermark
            )
            self._has_errors = True
        self._found[key] = data._replace(records=records)
        self._passed[key] = (partition.topic.name, behind - wanted.fetch_offset)
        self._size += len(records)
        self._left -= len(records)

    # Answering.

    def response(self) -> FetchResponse:
        return run_to_end(self._respond())

    def _respond(self) -> Steps[FetchResponse]:
        session = self._session
        counts = self._call.service.counts
        for key, (topic, passed) in self._passed.items():
            counts.traffic(topic, "kafka").add_out(passed, len(self._found[key].records or b""))
        topics: dict[tuple[str, bytes], list[PartitionData]] = {}
        for key, data in self._found.items():
            told = Told(data.high_watermark, data.last_stable_offset, data.log_start_offset)
            has_news = (
                data.records
                or data.error_code
                or data.diverging_epoch is not DEFAULT_EPOCH_END_OFFSET
                or session.told.get(key) != told
            )
            if self._is_full or has_news:
                topics.setdefault(key[:2], []).append(data)
            if session.id:
                session.told[key] = told
                if data.records and key in session.wanted:
                    session.wanted.move_to_end(key)
            yield
        return FetchResponse(
            session_id=session.id,
            responses=tuple(
                FetchableTopicResponse(name, topic_id, tuple(partitions))
                for (name, topic_id), partitions in topics.items()
            ),
        )
