"""What a share consumer is sent: batches that cover the ranges it acquired.

A batch goes out as it lies on disk when a good part of it is the member's own.
When less than a quarter is, a batch is cut that has only those records, at their
own offsets, so that a few urgent messages do not drag thousands along.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.ports import Buffer
from headrace.engine.partition import Partition
from headrace.record import build_sparse_batch, check_batch, read_records
from headrace.record.batch import BatchHeader

READ_BYTES = 1024 * 1024
RECUT_BELOW = 4


def read_acquired(partition: Partition, ranges: Sequence[tuple[int, int, int]]) -> Buffer:
    """Batches that hold the ranges, which ascend."""
    parts: list[Buffer] = []
    end = partition.high_watermark
    number = 0
    while number < len(ranges):
        data = partition.log.read(ranges[number][0], READ_BYTES, min(end, ranges[-1][1]))
        if not data:
            break
        position = 0
        while position < len(data) and number < len(ranges):
            header = check_batch(data, position)
            batch = data[position : position + header.size_bytes]
            position += header.size_bytes
            own = _own(header, ranges)
            if own:
                parts.append(_cut(batch, header, own))
            while number < len(ranges) and ranges[number][1] <= header.next_offset:
                number += 1
        if number < len(ranges) and ranges[number][0] < header.next_offset:
            # A range goes on in the next batch.
            first, last, count = ranges[number]
            ranges = [*ranges[:number], (header.next_offset, last, count), *ranges[number + 1 :]]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _own(header: BatchHeader, ranges: Sequence[tuple[int, int, int]]) -> list[tuple[int, int]]:
    return [
        (max(start, header.base_offset), min(end, header.next_offset))
        for start, end, _ in ranges
        if start < header.next_offset and end > header.base_offset
    ]


def _cut(batch: Buffer, header: BatchHeader, own: list[tuple[int, int]]) -> Buffer:
    count = sum(end - start for start, end in own)
    if count * RECUT_BELOW >= header.count:
        return batch
    records = [
        record
        for record in read_records(batch, header)
        if any(start <= record.offset < end for start, end in own)
    ]
    return build_sparse_batch(records, header)
