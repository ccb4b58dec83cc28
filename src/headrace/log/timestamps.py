"""From a time to an offset, exactly.

The indexes and the batch headers only say where to look; the answer comes from
the records. A header's largest timestamp is an upper bound after compaction, so a
batch that promised a record may not have it, and the search goes on. One that cannot
be opened, though its checksum is right, is found as a whole by what its header says:
its producer wrote it so, and a reader who begins there sees for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from headrace.core.errors import CorruptBatch
from headrace.log.segment import Segment
from headrace.record.batch import BatchHeader
from headrace.record.reader import read_raw_parts


def find_timestamp(
    segments: list[Segment], timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    """The first record at or after `start_offset` with that timestamp or a
    later one."""
    for segment in segments:
        if segment.next_offset <= start_offset or segment.max_timestamp_ms < timestamp_ms:
            continue
        for position, header in segment.find_time(timestamp_ms):
            if header.last_offset < start_offset or header.is_control:
                continue
            for offset, its_ms in _records(segment, position, header):
                if its_ms >= timestamp_ms and offset >= start_offset:
                    return offset, its_ms
    return None


def find_latest(segments: list[Segment], start_offset: int) -> tuple[int, int] | None:
    """The first of the records that have the largest timestamp."""
    live = [segment for segment in segments if segment.next_offset > start_offset]
    largest = max((segment.max_timestamp_ms for segment in live), default=-1)
    if largest < 0:
        return None
    found = find_timestamp(live, largest, start_offset)
    if found is not None:
        return found
    # The record that the headers speak of was compacted away or lies below the
    # start: only the records themselves know the next largest.
    best: tuple[int, int] | None = None
    for segment in live:
        for position, header in segment.walk(0):
            if header.is_control or header.last_offset < start_offset:
                continue
            for offset, its_ms in _records(segment, position, header):
                if offset >= start_offset and (best is None or its_ms > best[1]):
                    best = (offset, its_ms)
    return best


def search(
    segments: list[Segment], timestamp_ms: int | None, start_offset: int
) -> tuple[int, int] | None:
    """For a time, or for the latest of all. The segments are closed behind it."""
    try:
        if timestamp_ms is None:
            return find_latest(segments, start_offset)
        return find_timestamp(segments, timestamp_ms, start_offset)
    finally:
        for segment in segments:
            segment.close()


def _records(segment: Segment, position: int, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each."""
    batch = segment.read_batch(position, header)
    try:
        for record in chain.from_iterable(read_raw_parts(batch, header)):
            yield record.offset, record.timestamp_ms
    except CorruptBatch:
        yield header.base_offset, header.max_timestamp_ms
