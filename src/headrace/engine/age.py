"""Ages: since when messages wait for somebody.

A stream's next message is looked up by its batch, which is not opened: its time is
that of the batch's first record. A queue's next message may have been delayed, and
then it waits since it came due; so its record is read, if the batch is small. The
records of a large one are not unpacked for a number: its first record's time has to do.
A time that cannot be right counts as the one at which the node took the message (`arrivals`).

What has to be read is on disk: these raise WouldWait where the disk is asked not to
let anybody wait.
"""

from __future__ import annotations

from headrace.engine.delayed import due_ms_of
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.record import BatchHeader

# Larger batches are not opened.
OPENED_BYTES_MAX = 64 * 1024


def published_ms(partition: Partition, offset: int) -> int | None:
    """When the message at this offset, or the next that is left, was published; None
    when there is none."""
    header = _batch_of(partition, offset)
    return None if header is None else _taken_ms(partition, header)


def ready_offset(view: QueueView, lane: int) -> int | None:
    """The first message of the lane that could be had now, or could be but for others
    before it in its partition."""
    runs = view.window.find_ready(lane, 1) if view.window.ready_in(lane) else []
    return runs[0] if runs else None


def waiting_ms(partition: Partition, offset: int) -> int | None:
    """Since when the message at this offset could have been had."""
    header = _batch_of(partition, offset)
    if header is None:
        return None
    if header.size_bytes <= OPENED_BYTES_MAX:
        for record in partition.read([offset, offset + 1]):
            time_ms = partition.arrivals.believed(record.offset, record.timestamp_ms)
            return max(time_ms, due_ms_of(partition, record))
    return _taken_ms(partition, header)


def _taken_ms(partition: Partition, header: BatchHeader) -> int:
    return partition.arrivals.believed(header.base_offset, header.first_timestamp_ms)


def _batch_of(partition: Partition, offset: int) -> BatchHeader | None:
    """The header of the batch that holds the offset, or of the next one. Beside the
    readers' cursors: one that is taken here would be missing there."""
    log = partition.log
    offset = max(offset, log.start_offset)
    if offset >= log.end_offset:
        return None
    segments = log.segment_list
    number = segments.number_of(offset)
    while number < len(segments):
        segment = segments[number]
        if offset < segment.next_offset and segment.size_bytes:
            return segment.find(max(offset, segment.base_offset))[1]
        number += 1
    return None
