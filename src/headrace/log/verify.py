"""Reading everything, to find rot before a consumer does.

Checks each batch's checksum, that offsets ascend and that each segment ends where
the next begins, and that the index files, if present, name batches where they
are. A wrong index is reported but harmless: it is rebuilt when it is met.

Verification stops inside a segment at the first bad batch, since nothing says
where the next one starts, and goes on with the next segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.core.errors import CorruptBatch
from headrace.core.ports import Disk
from headrace.log.epochs import Epochs
from headrace.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY, OffsetIndex, TimeIndex
from headrace.log.segment import Segment
from headrace.log.segment_index import INDEX_SUFFIX, TIME_INDEX_SUFFIX, read_index
from headrace.record.batch import check_batch, read_header

if TYPE_CHECKING:
    from headrace.log.log import Log

_CHUNK_BYTES: Final = 1024 * 1024


class Problem(NamedTuple):
    """Something that is not as it was written."""

    file: str
    position: int
    reason: str
    # Whether records are lost. False for indexes, which can be rebuilt.
    is_data: bool


class Progress(NamedTuple):
    """A slice is done."""

    file: str
    position: int
    batches: int


def verify(log: Log) -> Iterator[Problem | Progress]:
    segments = list(log.segment_list)
    for number, segment in enumerate(segments):
        last = number + 1 == len(segments)
        next_base = None if last else segments[number + 1].base_offset
        yield from _verify_segment(log.disk, segment, next_base, log.epochs)


def _verify_segment(
    disk: Disk, segment: Segment, next_base: int | None, epochs: Epochs
) -> Iterator[Problem | Progress]:
    name = segment.log_path
    size = segment.size_bytes
    position, expected, batches = 0, segment.base_offset, 0
    boundaries: dict[int, int] = {}
    timestamps: dict[int, int] = {}
    length = _CHUNK_BYTES
    while position < size:
        data = segment.file().read(min(length, size - position), position)
        length = _CHUNK_BYTES
        at = 0
        fault: str | None = None
        while at < len(data) and fault is None:
            try:
                header = check_batch(data, at)
            except CorruptBatch as error:
                fault = str(error)
                break
            if header.base_offset < expected or (
                segment.is_dense and header.base_offset > expected
            ):
                fault = f"offset {header.base_offset} follows {expected - 1}"
                break
            epoch = epochs.epoch_at(header.base_offset)
            if epoch is not None and header.leader_epoch != epoch:
                # The checksum covers neither this nor the offset: both are patched
                # in when the batch is appended.
                reason = f"has epoch {header.leader_epoch}, and the checkpoint says {epoch}"
                yield Problem(name, position + at, reason, False)
            boundaries[position + at] = header.last_offset
            timestamps[header.last_offset] = header.max_timestamp_ms
            expected = header.next_offset
            at += header.size_bytes
            batches += 1
        position += at
        if fault is not None and not at:
            needed = _needed_bytes(data)
            if len(data) < needed <= size - position:
                length = needed
                continue
            yield Problem(name, position, fault, True)
            return
        yield Progress(name, position, batches)
    end = segment.next_offset if next_base is None else next_base
    if expected != end:
        yield Problem(name, position, f"ends at offset {expected} instead of {end}", True)
    yield from _verify_indexes(disk, segment, boundaries, timestamps)


def _needed_bytes(data: bytes) -> int:
    try:
        return read_header(data).size_bytes
    except CorruptBatch:
        return 0


def _verify_indexes(
    disk: Disk, segment: Segment, boundaries: dict[int, int], timestamps: dict[int, int]
) -> Iterator[Problem]:
    base = segment.base_offset
    offsets = OffsetIndex.decode(read_index(disk, segment.path + INDEX_SUFFIX))
    if offsets is None:
        yield Problem(segment.path + INDEX_SUFFIX, 0, "is not an index", False)
    else:
        for number, position in enumerate(offsets.positions):
            if boundaries.get(position) != base + offsets.offsets[number]:
                at = number * OFFSET_ENTRY_BYTES
                reason = f"names no batch at byte {position}"
                yield Problem(segment.path + INDEX_SUFFIX, at, reason, False)
                break
    times = TimeIndex.decode(read_index(disk, segment.path + TIME_INDEX_SUFFIX))
    if times is None:
        yield Problem(segment.path + TIME_INDEX_SUFFIX, 0, "is not an index", False)
        return
    for number, relative in enumerate(times.offsets):
        if timestamps.get(base + relative) != times.timestamps[number]:
            at = number * TIME_ENTRY.size
            reason = f"has a wrong time for offset {base + relative}"
            yield Problem(segment.path + TIME_INDEX_SUFFIX, at, reason, False)
            break
