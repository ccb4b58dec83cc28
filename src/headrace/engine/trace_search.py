"""Searching traces: messages by key, header, group, outcome and time of publishing.

    topics by name, partitions in turn, offsets ascending

The retained records are gone over in pieces, up to a limit for each page, and the state
of those that match is looked up. What an uncompressed batch does not have anywhere in
its bytes, none of its records has, so most batches are not even opened.

Rejected: an index of keys. Tracing is for the few who ask; every publish would pay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import chain

from headrace.core import limits
from headrace.core.errors import CorruptBatch
from headrace.core.trace_values import MessageTrace, TracePage, TraceQuery
from headrace.core.values import MessageId
from headrace.engine.broker import Broker
from headrace.engine.partition import Partition
from headrace.engine.state_reading import SegmentTwins
from headrace.engine.trace_links import Steps
from headrace.engine.tracing import trace_many
from headrace.log.compaction import some
from headrace.record import BatchHeader, Record, read_header, read_parts

PIECE_BYTES = 256 * 1024


def search(
    broker: Broker, query: TraceQuery, after: MessageId | None, limit: int
) -> Steps[TracePage]:
    """`after` is where to go on: the first message that was not looked at."""
    found: list[MessageTrace] = []
    budget = limits.TRACE_SCAN_BYTES_MAX
    size = 0
    for partition, start in _places(broker, query, after):
        while True:
            scan = _Scan(partition, start, query, limit - len(found), budget)
            with contextlib.closing(scan):
                while (yield scan.step) is not None:
                    pass
            budget -= scan.gone_over
            start = scan.end
            traces = yield from trace_many(broker, partition, scan.matched)
            for each in traces:
                if _is_wanted(each, query):
                    size += _size_of(each)
                    if found and size > limits.REMOTE_ANSWER_BYTES_MAX:
                        return TracePage(found, str(each.id))
                    found.append(each)
            if scan.is_over:
                break
            if len(found) >= limit or budget <= 0:
                return TracePage(
                    found, str(MessageId(partition.topic.name, partition.index, start))
                )
    return TracePage(found, None)


def _places(
    broker: Broker, query: TraceQuery, after: MessageId | None
) -> Iterator[tuple[Partition, int]]:
    """Every partition that is left, and where to begin in it."""
    topics = broker.topics
    if query.topic is not None:
        names = [topics.named(query.topic).name]
    else:
        names = sorted(n for n, topic in topics.catalog.topics.items() if not topic.is_internal)
    for name in names:
        if after is not None and name < after.topic:
            continue
        topic = topics.catalog.topics.get(name)
        # One may be deleted between two steps.
        for partition in [] if topic is None else topics.partitions(topic):
            start = 0
            if after is not None and name == after.topic:
                if partition.index < after.partition:
                    continue
                start = after.offset if partition.index == after.partition else 0
            yield partition, max(start, partition.log.start_offset)


def _is_wanted(trace: MessageTrace, query: TraceQuery) -> bool:
    if query.group is None and query.outcome is None:
        return True
    return any(
        (query.group is None or each.group == query.group)
        and (each.state == query.outcome if query.outcome else each.state != "skipped")
        for each in trace.groups
    )


def _size_of(trace: MessageTrace) -> int:
    """About as much as it takes in an answer."""
    size = 256 + len(trace.key or b"") + 128 * (len(trace.events) + len(trace.groups))
    for name, value in trace.headers:
        size += len(name) + len(value or b"")
    return size + sum(len(event.error or "") for event in trace.events)


class _Scan:
    """Goes over the records of a partition. `matched` are offsets; `end` is where it
    stopped, and `is_over` whether that is the partition's end."""

    def __init__(
        self, partition: Partition, start: int, query: TraceQuery, most: int, most_bytes: int
    ) -> None:
        self._query = query
        self._most = most
        self._most_bytes = most_bytes
        self._high_watermark = partition.high_watermark
        self._twins = SegmentTwins(partition.log, start, partition.high_watermark)
        if query.since_ms is not None:
            # Read from the live ones, which have their indexes in memory.
            old = {
                segment.base_offset
                for segment in partition.log.segment_list
                if segment.size_bytes and segment.max_timestamp_ms < query.since_ms
            }
            self._twins.leave_out(old)
        # What a batch must have in its bytes; the longer, the more it tells.
        texts = [query.key or b"", (query.header[1] or b"") if query.header else b""]
        texts.append(query.header[0].encode() if query.header else b"")
        self._needles = [text for text in texts if text]
        self._work = self._run()
        self.matched: list[int] = []
        self.end = start
        self.gone_over = 0
        self.is_over = False

    def step(self, most_bytes: int) -> int | None:
        return some(self._work, most_bytes)

    def close(self) -> None:
        self._twins.close()

    def _run(self) -> Iterator[int]:
        for data in self._twins.pieces(PIECE_BYTES):
            position = 0
            while position < len(data):
                header = read_header(data, position)
                end = position + header.size_bytes
                if header.base_offset >= self._high_watermark:
                    break
                if not self._take(data, position, end, header):
                    return
                self.end = max(self.end, header.next_offset)
                position = end
            self.gone_over += len(data)
            if self.gone_over >= self._most_bytes:
                return
            yield len(data)
        self.end = self._high_watermark
        self.is_over = True

    def _take(self, data: bytes, start: int, end: int, header: BatchHeader) -> bool:
        """False when there are as many as were wanted."""
        if header.is_control or not self._may_match(data, start, end, header):
            return True
        # Nonsense that a producer sent under a good checksum holds no record.
        with contextlib.suppress(CorruptBatch):
            for record in chain.from_iterable(read_parts(data[start:end], header)):
                if record.offset >= self.end and self._matches(record):
                    if len(self.matched) >= self._most:
                        self.end = record.offset
                        return False
                    self.matched.append(record.offset)
        return True

    def _may_match(self, data: bytes, start: int, end: int, header: BatchHeader) -> bool:
        since_ms = self._query.since_ms
        if since_ms is not None and header.max_timestamp_ms < since_ms:
            return False
        return bool(header.codec) or all(data.find(n, start, end) >= 0 for n in self._needles)

    def _matches(self, record: Record) -> bool:
        query = self._query
        if query.key is not None and record.key != query.key:
            return False
        if query.since_ms is not None and record.timestamp_ms < query.since_ms:
            return False
        if query.until_ms is not None and record.timestamp_ms >= query.until_ms:
            return False
        if query.header is None:
            return True
        name, value = query.header
        return any(name == each and (value is None or value == its) for each, its in record.headers)
