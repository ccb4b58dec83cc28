"""Fetch, versions 4 to 18.

Batches go out as they lie on disk, whole, from the one that holds the asked-for
offset on; the first goes out even when it is larger than the limit. Nothing above
the high watermark is shown. When there is less than min_bytes the answer waits for
more, at most max_wait_ms. Followers do not exist yet, so a replica id is ignored.
"""

from __future__ import annotations

import asyncio

from headrace.core.errors import CorruptLog, HeadraceError, UnknownPartition, UnknownTopic
from headrace.core.ports import Buffer
from headrace.engine.partition import Partition
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.fetch_session import FetchSession, Key, Told
from headrace.server.kafka.names import topic_of
from headrace.wire.kafka.generated.fetch_request import FetchPartition, FetchRequest
from headrace.wire.kafka.generated.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)

RESPONSE_BYTES_MAX = 64 * 1024 * 1024
WAIT_MS_MAX = 60_000


def handle(call: Call, request: FetchRequest) -> FetchResponse | asyncio.Future[FetchResponse]:
    session = call.door.fetch_sessions.find(request)
    if isinstance(session, Error):
        return FetchResponse(error_code=session)
    is_full = request.session_epoch <= 0
    reading = _Reading(call, request, session, is_full=is_full)
    if reading.is_enough() or request.max_wait_ms <= 0:
        return reading.response()
    return reading.wait()


class _Reading:
    """One fetch, which may look several times before it is answered."""

    def __init__(
        self, call: Call, request: FetchRequest, session: FetchSession, *, is_full: bool
    ) -> None:
        self._call = call
        self._request = request
        self._session = session
        self._is_full = is_full
        self._found: dict[Key, PartitionData] = {}
        self._partitions: list[Partition] = []
        self._size = 0
        self._has_errors = False
        self._answer: asyncio.Future[FetchResponse] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._read()

    def is_enough(self) -> bool:
        return self._has_errors or self._size >= self._request.min_bytes

    def wait(self) -> asyncio.Future[FetchResponse]:
        loop = self._call.service.loop
        self._answer = loop.create_future()
        self._call.service.wait_on(self._partitions, self._on_news)
        wait_ms = min(self._request.max_wait_ms, WAIT_MS_MAX)
        self._timer = loop.call_later(wait_ms / 1000, self._finish)
        self._call.connection.on_closed.append(self._finish)
        return self._answer

    def _on_news(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._read()
            if self.is_enough():
                self._finish()

    def _finish(self) -> None:
        if self._answer is None or self._answer.done():
            return
        self._call.service.stop_waiting(self._partitions, self._on_news)
        if self._timer is not None:
            self._timer.cancel()
        on_closed = self._call.connection.on_closed
        if self._finish in on_closed:
            on_closed.remove(self._finish)
        self._answer.set_result(self.response())

    # Reading.

    def _read(self) -> None:
        self._found = {}
        self._partitions = []
        self._size = 0
        left = min(self._request.max_bytes, RESPONSE_BYTES_MAX)
        for key, wanted in self._session.wanted.items():
            data, size = self._read_partition(key, wanted, left)
            self._found[key] = data
            self._has_errors |= data.error_code != 0
            self._size += size
            left = max(0, left - size)

    def _read_partition(
        self, key: Key, wanted: FetchPartition, left: int
    ) -> tuple[PartitionData, int]:
        name, topic_id, index = key
        broker = self._call.service.broker
        try:
            partition = broker.topics.partition(topic_of(self._call.service, name, topic_id), index)
        except UnknownTopic:
            by_id = self._call.version >= 13
            code = Error.UNKNOWN_TOPIC_ID if by_id else Error.UNKNOWN_TOPIC_OR_PARTITION
            return _failed(index, code), 0
        except UnknownPartition:
            return _failed(index, Error.UNKNOWN_TOPIC_OR_PARTITION), 0
        self._partitions.append(partition)
        stale = _check_epoch(partition, wanted.current_leader_epoch)
        if stale is not None:
            return stale, 0
        start, end = partition.log.start_offset, partition.high_watermark
        records: Buffer = b""
        if not start <= wanted.fetch_offset <= end:
            return _failed(index, Error.OFFSET_OUT_OF_RANGE, start, end), 0
        try:
            if partition.stopped is not None:
                raise partition.stopped
            # The first batch of an answer goes out whatever its size.
            if left > 0 or not self._size:
                limit = min(wanted.partition_max_bytes, left) if self._size else left
                limit = min(limit, max(wanted.partition_max_bytes, 1))
                records = partition.log.read(wanted.fetch_offset, max(limit, 1), end)
        except CorruptLog as error:
            partition.stopped = error
            return _failed(index, code_of(error), start, end), 0
        except HeadraceError as error:
            return _failed(index, code_of(error), start, end), 0
        if self._size and len(records) > left:
            # Not the first batch of this answer: it waits for the next one.
            records = b""
        data = PartitionData(index, 0, end, end, start, aborted_transactions=None, records=records)
        return data, len(records)

    # Answering.

    def response(self) -> FetchResponse:
        session = self._session
        topics: dict[tuple[str, bytes], list[PartitionData]] = {}
        for key, data in self._found.items():
            told = Told(data.high_watermark, data.log_start_offset)
            has_news = data.records or data.error_code or session.told.get(key) != told
            if self._is_full or has_news:
                topics.setdefault(key[:2], []).append(data)
            if session.id:
                session.told[key] = told
                if data.records:
                    session.wanted.move_to_end(key)
        return FetchResponse(
            session_id=session.id,
            responses=tuple(
                FetchableTopicResponse(name, topic_id, tuple(partitions))
                for (name, topic_id), partitions in topics.items()
            ),
        )


def _failed(index: int, code: int, start: int = -1, end: int = -1) -> PartitionData:
    return PartitionData(index, code, end, end, start, aborted_transactions=None, records=b"")


def _check_epoch(partition: Partition, epoch: int) -> PartitionData | None:
    """A client that knows an older or a newer leader than us has to look again."""
    if epoch in (-1, partition.epoch):
        return None
    code = Error.FENCED_LEADER_EPOCH if epoch < partition.epoch else Error.UNKNOWN_LEADER_EPOCH
    return _failed(partition.index, code)._replace(
        current_leader=LeaderIdAndEpoch(0, partition.epoch)
    )
