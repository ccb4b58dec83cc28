"""One partition, read from an offset to an offset.

    ask 0 ── answer 0 ── ask 1 ─┬─ answer 1 ── ask 2 ─┬─ ...
                                └─ yield answer 0      └─ yield answer 1

The next answer is asked for before the last one is given out, so that the broker
works while the caller decodes. Batches come as they lie in the log: the first may
begin before the start, the last may reach beyond the end, a control batch may be
among them. `Aborted` says which of them a reader of committed records leaves out.

A leader that moves or restarts is found again. An offset that is not there any more
is the caller's to judge: it is yielded as a Gap when that is allowed, else DataLost.

Rejected: fetch sessions. They save naming partitions again; here there is one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from headrace.client.kafka.cluster import EARLIEST, READ_COMMITTED, KafkaCluster, KafkaError
from headrace.client.kafka.connection import FETCH, KafkaConnection
from headrace.core.errors import BrokerUnreachable, CorruptBatch, DataLost
from headrace.core.ports import Buffer
from headrace.record import HEADER_BYTES, BatchHeader, ControlKind, read_control, read_header
from headrace.record.batch import LENGTH_OVERHEAD
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.generated.fetch_response import AbortedTransaction, PartitionData

# An answer that stays in the processor's cache from the socket to the columns costs a third
# less than one that does not.
FETCH_BYTES: Final = 2 * 1024 * 1024
_WAIT_MS: Final = 500
_BASE_AND_LENGTH: Final = Struct(">qi").unpack_from
_LAST_DELTA: Final = Struct(">i").unpack_from
_LAST_DELTA_AT: Final = 23
# From here on topics are named by their id.
_BY_ID_FROM: Final = 13
_GONE: Final = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Fetched(NamedTuple):
    """Whole batches, back to back, and the offset behind the last of them."""

    records: memoryview
    aborted: Sequence[AbortedTransaction]
    next_offset: int


class Gap(NamedTuple):
    """What was at these offsets is gone."""

    start: int
    end: int


@dataclass(slots=True)
class FetchNumbers:
    """What a fetch has taken so far."""

    bytes: int = 0
    answers: int = 0
    # How often the leader was looked for anew.
    retries: int = 0
    # Seconds in which the caller waited for answers.
    wait_s: float = 0.0


class PartitionFetch:
    """Iterate over it once. `topic_id` is what the topic had when the range was
    planned, as in TopicInfo; a topic of the same name with another id is another."""

    def __init__(
        self,
        cluster: KafkaCluster,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        topic_id: str = "",
        isolation_level: int = READ_COMMITTED,
        fetch_bytes: int = FETCH_BYTES,
        gaps_allowed: bool = False,
    ) -> None:
        self._cluster = cluster
        self._place = (topic, partition)
        self._shown = f"{topic}:{partition}"
        self._topic_id = bytes.fromhex(topic_id) if topic_id else bytes(16)
        self._position = start
        self._end = end
        self._isolation_level = isolation_level
        self._fetch_bytes = fetch_bytes
        self._gaps_allowed = gaps_allowed
        self.numbers = FetchNumbers()
        self._connection: KafkaConnection | None = None
        # When something was last received, for giving up.
        self._progress_at = time.monotonic()
        self._pause_s = 0.05

    def __iter__(self) -> Iterator[Fetched | Gap]:
        try:
            while self._position < self._end:
                try:
                    result = self._next()
                except (BrokerUnreachable, KafkaError) as error:
                    self._recover(error)
                    continue
                if result is None:
                    self._check_progress(None)
                    continue
                self._progress_at = time.monotonic()
                self._pause_s = 0.05
                yield result
        finally:
            self._disconnect()

    def _next(self) -> Fetched | Gap | None:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._connect()
        if not connection.waiting:
            self._ask(connection)
        asked_at = time.monotonic()
        data = self._answer(connection)
        numbers = self.numbers
        numbers.wait_s += time.monotonic() - asked_at
        numbers.answers += 1
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._skip_gap()
        if data.error_code:
            raise KafkaError(data.error_code, f"reading {self._shown}")
        records, next_offset = whole_batches(data.records or b"", self._position)
        if not records:
            return None
        numbers.bytes += len(records)
        self._position = next_offset
        if next_offset < self._end:
            try:
                self._ask(connection)
            except BrokerUnreachable:
                # What was received is good all the same; the next round connects anew.
                self._disconnect()
        return Fetched(records, data.aborted_transactions or (), next_offset)

    def _connect(self) -> KafkaConnection:
        cluster = self._cluster
        connection = cluster.connect(cluster.leader_address(self._place))
        known = cluster.topic_id(self._place[0])
        if any(self._topic_id) and known != self._topic_id:
            connection.close()
            raise self._replaced()
        return connection

    def _replaced(self) -> DataLost:
        return DataLost(
            f"topic {self._place[0]!r} was deleted and made again since the read was planned"
        )

    def _ask(self, connection: KafkaConnection) -> None:
        asked = FetchPartition(
            self._place[1],
            fetch_offset=self._position,
            partition_max_bytes=self._fetch_bytes,
        )
        topic = FetchTopic(self._place[0], self._cluster.topic_id(self._place[0]), (asked,))
        connection.send(
            FETCH,
            FetchRequest(
                max_wait_ms=_WAIT_MS,
                min_bytes=1,
                max_bytes=self._fetch_bytes,
                isolation_level=self._isolation_level,
                topics=(topic,),
            ),
        )

    def _answer(self, connection: KafkaConnection) -> PartitionData:
        answer = connection.receive()
        if answer.error_code:
            raise KafkaError(answer.error_code, f"reading {self._shown}")
        for topic in answer.responses:
            for data in topic.partitions:
                found: PartitionData = data
                return found
        return PartitionData(self._place[1], records=b"")

    def _skip_gap(self) -> Gap:
        """The log begins behind our position, or ends before it."""
        found = self._cluster.offsets({self._place: EARLIEST})[self._place].offset
        if found <= self._position:
            raise DataLost(
                f"{self._shown} has nothing at offset {self._position} any more, and ends before it"
            )
        if not self._gaps_allowed:
            raise DataLost(
                f"{self._shown} begins at offset {found}: the records from {self._position} on "
                "were deleted before they were read"
            )
        gap = Gap(self._position, min(found, self._end))
        self._position = gap.end
        return gap

    def _recover(self, error: BrokerUnreachable | KafkaError) -> None:
        """Find the leader anew, or give up."""
        if isinstance(error, KafkaError):
            if error.error in _GONE and self._was_replaced():
                raise self._replaced() from error
            if not error.passes:
                raise error
        self._check_progress(error)
        self.numbers.retries += 1
        self._disconnect()
        self._cluster.forget()
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, 2.0)

    def _was_replaced(self) -> bool:
        found = self._cluster.topics((self._place[0],)).get(self._place[0])
        return found is None or (any(self._topic_id) and found.id != self._topic_id.hex())

    def _check_progress(self, error: Exception | None) -> None:
        if (time.monotonic() - self._progress_at) * 1000 < self._cluster.timeout_ms:
            return
        if error is not None:
            raise error
        raise DataLost(
            f"{self._shown} gave nothing for {self._cluster.timeout_ms} ms at offset "
            f"{self._position}, although it was to be read up to {self._end}"
        )

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class AbortedFilter:
    """Which batches a reader of committed records leaves out. Ask for each batch of a
    partition that is transactional or a control batch, in order."""

    def __init__(self) -> None:
        self._aborted: set[int] = set()
        self._pending: list[AbortedTransaction] = []

    def expect(self, aborted: Sequence[AbortedTransaction]) -> None:
        """What the broker said about the batches that come next."""
        self._pending = sorted(aborted, key=lambda each: each.first_offset, reverse=True)

    def hides(self, batch: Buffer, header: BatchHeader) -> bool:
        """Control batches are hidden from everybody."""
        pending = self._pending
        while pending and pending[-1].first_offset <= header.last_offset:
            self._aborted.add(pending.pop().producer_id)
        if header.is_control:
            if (
                header.producer_id in self._aborted
                and read_control(batch, header).kind == ControlKind.ABORT
            ):
                self._aborted.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborted


def whole_batches(records: Buffer, position: int) -> tuple[memoryview, int]:
    """The batches that arrived whole, and the offset behind them. An answer may end
    in the middle of one. They are looked at no closer than it takes to count them:
    whoever opens them checks them."""
    view = memoryview(records)
    size = len(view)
    at = 0
    next_offset = position
    while size - at >= HEADER_BYTES:
        base_offset, length = _BASE_AND_LENGTH(view, at)
        end = at + LENGTH_OVERHEAD + length
        if length < HEADER_BYTES - LENGTH_OVERHEAD or base_offset < 0:
            # Not a batch, which is said with the reason.
            read_header(view, at)
            raise CorruptBatch(f"batch header at byte {at}: length {length} is impossible")
        if end > size:
            break
        next_offset = max(next_offset, base_offset + _LAST_DELTA(view, at + _LAST_DELTA_AT)[0] + 1)
        at = end
    return view[:at], next_offset
