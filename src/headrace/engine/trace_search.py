"""Searching traces: messages by key, header, group, outcome and time of publishing.

    topics by name, partitions in turn, offsets ascending

    records, in pieces --> those that match --> those in the right state --> histories
    (a thread)             (the thread)         (memory)                     (a thread)

What an uncompressed batch does not have anywhere in its bytes, none of its records has,
so most batches are not even opened; and histories are read of what is given out only.

A page is given when it is full, or when so much was looked at that others have waited
long enough (`Left`): then it may be empty, and says where the next one goes on.

Rejected: an index of keys. Tracing is for the few who ask; every publish would pay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from headrace.core import limits
from headrace.core.errors import CorruptBatch
from headrace.core.trace_values import MessageTrace, TracePage, TraceQuery
from headrace.core.values import MessageId
from headrace.engine.broker import Broker
from headrace.engine.partition import Partition
from headrace.engine.state_reading import SegmentTwins
from headrace.engine.trace_filter import StateFilter
from headrace.engine.trace_links import Steps
from headrace.engine.tracing import trace_many
from headrace.log.compaction import some
from headrace.record import BatchHeader, BatchParts, Record, read_header

PIECE_BYTES = 256 * 1024
# Where the broker is, others wait: so many states are looked up there at once, and so many
# messages traced, fewer where many groups read a topic.
STATES_AT_ONCE = 10_000
TRACED_AT_ONCE = 100
# What those may take of memory together, values and all; one alone may take more.
TRACED_BYTES = 4 * 1024 * 1024


class Left:
    """What one page may still look at. What is begun is finished, so each may fall a
    little below zero."""

    def __init__(self) -> None:
        self.records = limits.TRACE_SEARCH_RECORDS_MAX
        # Of batches, uncompressed where they are opened.
        self.batch_bytes = limits.TRACE_SEARCH_BYTES_MAX
        self.history_bytes = limits.TRACE_HISTORIES_BYTES_MAX

    @property
    def is_spent(self) -> bool:
        return min(self.records, self.batch_bytes, self.history_bytes) <= 0


class _Match(NamedTuple):
    offset: int
    size_bytes: int


def search(
    broker: Broker, query: TraceQuery, after: MessageId | None, limit: int
) -> Steps[TracePage]:
    """`after` is where to go on: the first message that was not looked at."""
    page = _Page(limit)
    left = Left()
    for partition, start in _places(broker, query, after):
        if page.is_full or left.is_spent:
            return page.ending_before(partition, start)
        states = StateFilter(broker, partition, query)
        with contextlib.closing(_Scan(partition, start, query, left)) as scan:
            is_over = False
            while not is_over:
                is_over = (yield scan.step) is None
                for matched in _some_at_once(scan.take_matched(), len(partition.views)):
                    while matched := _kept(states, matched):
                        # What was looked at is paid for: only reading more would cost more.
                        if page.is_full or left.history_bytes <= 0:
                            return page.ending_before(partition, matched[0].offset)
                        chosen = _fitting(matched, page.room, len(partition.views))
                        starts: dict[int, int] = {}
                        traces = yield from _counted(
                            trace_many(broker, partition, chosen, starts), left
                        )
                        # The first of a partition's histories reaches back the farthest.
                        states.starts = starts if states.starts is None else states.starts
                        for each in traces:
                            if _is_wanted(each, query) and not page.take(each):
                                return page.ending_before(partition, each.id.offset)
                        del matched[: len(chosen)]
                    yield _nothing
            if not scan.is_over:
                return page.ending_before(partition, scan.end)
    return TracePage(page.found, None)


class _Page:
    def __init__(self, limit: int) -> None:
        self.found: list[MessageTrace] = []
        self._limit = limit
        self._size_bytes = 0

    @property
    def room(self) -> int:
        return self._limit - len(self.found)

    @property
    def is_full(self) -> bool:
        return len(self.found) >= self._limit

    def take(self, trace: MessageTrace) -> bool:
        """False when the answer would be too large with it; the first always fits."""
        self._size_bytes += _size_of(trace)
        if self.found and self._size_bytes > limits.REMOTE_ANSWER_BYTES_MAX:
            return False
        self.found.append(trace)
        return True

    def ending_before(self, partition: Partition, offset: int) -> TracePage:
        return TracePage(self.found, str(MessageId(partition.topic.name, partition.index, offset)))


def _some_at_once(matched: list[_Match], group_count: int) -> Iterator[list[_Match]]:
    size = max(16, STATES_AT_ONCE // max(1, group_count))
    for start in range(0, len(matched), size):
        yield matched[start : start + size]


def _nothing(most_bytes: int) -> int:
    """A step that lets others have their turn."""
    return 0


def _kept(states: StateFilter, matched: list[_Match]) -> list[_Match]:
    kept = set(states.keep([each.offset for each in matched]))
    return [each for each in matched if each.offset in kept]


def _fitting(matched: list[_Match], room: int, group_count: int) -> list[int]:
    """The first of these, as many as are traced at once."""
    chosen: list[int] = []
    size_bytes = 0
    most = min(room, TRACED_AT_ONCE, max(1, STATES_AT_ONCE // max(1, group_count)))
    for each in matched[:most]:
        size_bytes += each.size_bytes
        if chosen and size_bytes > TRACED_BYTES:
            break
        chosen.append(each.offset)
    return chosen


def _counted(steps: Steps[list[MessageTrace]], left: Left) -> Steps[list[MessageTrace]]:
    """The same steps; what they read is taken from what is left."""
    done: int | None = None
    while True:
        try:
            step = steps.send(done)
        except StopIteration as end:
            traces: list[MessageTrace] = end.value
            return traces
        done = yield step
        left.history_bytes -= done or 0


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
    """Goes over the records of a partition, as far as what is left allows. `end` is where
    it came to, and `is_over` whether that is the partition's end."""

    def __init__(self, partition: Partition, start: int, query: TraceQuery, left: Left) -> None:
        self._query = query
        self._left = left
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
        self._matched: list[_Match] = []
        self.end = start
        self.is_over = False

    def step(self, most_bytes: int) -> int | None:
        return some(self._work, most_bytes)

    def take_matched(self) -> list[_Match]:
        """What was found since this was last called."""
        taken, self._matched = self._matched, []
        return taken

    def close(self) -> None:
        self._twins.close()

    def _run(self) -> Iterator[int]:
        for data in self._twins.pieces(PIECE_BYTES):
            position = unopened = 0
            while position < len(data):
                header = read_header(data, position)
                end = position + header.size_bytes
                if header.base_offset >= self._high_watermark:
                    break
                if header.is_control or not self._may_match(data, position, end, header):
                    unopened += header.size_bytes
                    self._left.batch_bytes -= header.size_bytes
                    self.end = max(self.end, header.next_offset)
                else:
                    # Nonsense that a producer sent under a good checksum holds no record.
                    with contextlib.suppress(CorruptBatch):
                        yield from self._look_into(data[position:end], header)
                        if self.end < header.next_offset:
                            return
                    self.end = max(self.end, header.next_offset)
                if self._left.is_spent:
                    self.is_over = self.end >= self._high_watermark
                    return
                position = end
            yield unopened
        self.end = self._high_watermark
        self.is_over = True

    def _look_into(self, batch: bytes, header: BatchHeader) -> Iterator[int]:
        """Until it is over or nothing is left, which `end` tells. It is taken in parts: a
        batch of kilobytes may hold a million records."""
        parts = BatchParts(batch, header)
        self._left.batch_bytes -= parts.size_bytes
        while not parts.is_over:
            records = parts.read(self.end, PIECE_BYTES)
            self._matched += [
                _Match(record.offset, _bytes_of(record))
                for record in records
                if record.offset >= self.end and self._matches(record)
            ]
            self._left.records -= len(records)
            self.end = max(self.end, parts.next_offset)
            yield parts.cost
            if self._left.is_spent:
                return

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


def _bytes_of(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")
