"""Cutting: the batches that hold some messages, as a share consumer gets them.

    runs      [3,5)          [9,12)                     [20,21)
    log     | 0 ....... 7 | 8 ...... 15 | 16 ........................ 99 |
    sent    | whole       | whole       | cut: 20 alone, at its offset   |

Whoever takes what comes next is given whole batches where there is room for that: a
batch that is given out in two parts is sent twice, or opened and cut.

A batch goes out as it lies on disk when a good part of it is asked for. When less
than a quarter is, a batch with only those records is made, so that a few urgent
messages, or one bite out of ten thousand, do not drag the rest along. A record's
bytes hold its offset and time relative to the batch, so they are copied as they
are, without reading what is in them; and the last batch that was opened stays open
for the next bite. How much one call opens has a bound (`Opening`): kilobytes on disk
may be megabytes.

Rejected: decoding the records and building them anew. It costs twenty times as
much, and again for every bite.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from headrace.core import limits
from headrace.core.errors import CorruptBatch, CorruptLog
from headrace.core.ports import Buffer
from headrace.engine.latency import Since, SinceBuilder
from headrace.engine.partition import Partition
from headrace.engine.runs import (
    Runs,
    above_ascending,
    below_ascending,
    count_of,
    merged,
    offsets_of,
    pairs,
    runs_of,
)
from headrace.log import Log
from headrace.record import (
    build_sparse_batch,
    check_batch,
    cut_batch,
    may_have_attributes,
    read_header,
)
from headrace.record.attributes import iterate_attributes
from headrace.record.batch import BatchHeader
from headrace.record.reader import read_block, read_raw_block
from headrace.record.varint import read_more

# A batch is cut when less than one in so many of its records is asked for.
CUT_BELOW = 4
READ_BYTES_MIN = 4 * 1024
READ_BYTES_MAX = 1024 * 1024
# Open batches of all partitions together.
OPEN_BYTES_MAX = 32 * 1024 * 1024


class Covered(NamedTuple):
    """Batches, and what of the runs they hold; `missing` is nowhere in the log.
    What is in neither did not fit."""

    batches: list[Buffer]
    held: Runs
    missing: Runs
    # Since when what they hold waits: mostly, since the first record of its batch.
    since: Since

    def reaches(self, offset: int) -> bool:
        return any(bisect_right(runs, offset) % 2 for runs in (self.held, self.missing))


class Opening:
    """How many bytes one call may open, uncompressed, beyond those that it sends."""

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max

    def on_opened(self, size_bytes: int) -> None:
        self._left -= size_bytes

    def on_sent(self, size_bytes: int) -> None:
        self._left += size_bytes

    @property
    def is_spent(self) -> bool:
        return self._left < 0


class _Open:
    """A dense batch whose records can be had as slices of bytes."""

    def __init__(self, block: bytes, header: BatchHeader) -> None:
        self.header = header
        self._block = block
        # Where each record begins, as far as anybody asked.
        self._starts = array("I", (0,))

    @property
    def size_bytes(self) -> int:
        return len(self._block)

    def cut(self, runs: Runs) -> Buffer:
        base = self.header.base_offset
        parts = [
            self._block[self._start_of(start - base) : self._start_of(end - base)]
            for start, end in pairs(runs)
        ]
        return cut_batch(parts, count_of(runs), self.header)

    def _start_of(self, index: int) -> int:
        starts = self._starts
        if index >= len(starts):
            try:
                self._walk(index + 1 - len(starts))
            except IndexError:
                raise CorruptBatch("a record is cut off at the end of the batch") from None
            if starts[-1] > len(self._block):
                raise CorruptBatch("a record is longer than its batch")
        return starts[index]

    def _walk(self, count: int) -> None:
        """Find where the next `count` records end."""
        starts, block = self._starts, self._block
        position = starts[-1]
        while count > 0:
            raw = block[position]
            body = position + 1
            if raw > 127:
                raw, body = read_more(block, body, raw)
            size = body - position + (raw >> 1)
            same = 1
            if count > 1 and block.startswith(block[position:body], position + size):
                # Whatever begins with the same length is as long, and so on: the
                # first byte that differs is found at memory speed.
                same = _alike(block, position, body - position, size, count)
            position += size * same
            starts.extend(range(starts[-1] + size, position + 1, size))
            count -= same


def _alike(block: bytes, position: int, prefix_bytes: int, size: int, count: int) -> int:
    """How many records in a row, of at most `count`, say that they have this size."""
    end = min(len(block), position + size * count)
    for at in range(position, position + prefix_bytes):
        column = block[at:end:size]
        count = min(count, len(column) - len(column.lstrip(column[:1])))
    return count


class Cutter:
    def __init__(self) -> None:
        # The last batch that was cut of each partition, in its leader's epoch:
        # what an epoch wrote is never cut off while it lasts.
        self._open: OrderedDict[tuple[bytes, int, int], _Open] = OrderedDict()
        self._open_bytes = 0

    def cover(
        self,
        partition: Partition,
        runs: Runs,
        bytes_max: int,
        enough: int | None = None,
        opening: Opening | None = None,
    ) -> Covered:
        """Batches that hold these ascending runs, at most `bytes_max` of them and as
        far as the opening goes, but at least one. CorruptLog when the log has rotted
        there.

        One run may reach farther than is asked for, which is up to `enough`: then it
        is covered up to the end of the batch in which that is. Where the run does not
        reach so far, it is covered up to the batch before, if that is half of it, or
        as far as it reaches."""
        if enough is None:
            enough = runs[-1] if runs else 0
        if opening is None:
            opening = Opening(limits.LEASE_OPENED_BYTES_MAX)
        half = (runs[0] + enough) // 2 if runs else 0
        batches: list[Buffer] = []
        held: Runs = []
        missing: Runs = []
        since = SinceBuilder()
        size = 0
        while runs:
            before = runs
            for batch, header, opened in self._read(partition, runs, enough):
                next_offset = header.next_offset
                if next_offset <= runs[0]:
                    continue
                if enough < runs[-1] < next_offset:
                    if batches and runs[0] >= half:
                        return Covered(batches, merged(held), merged(missing), since.built())
                own = below_ascending(runs, next_offset)
                if not own:
                    continue
                if batches and opening.is_spent:
                    return Covered(batches, merged(held), merged(missing), since.built())
                there, absent = _present(batch, header, own, opening)
                if there:
                    part = self._part(partition, batch, header, opened, there, opening)
                    if batches and size + len(part) > bytes_max:
                        return Covered(batches, merged(held), merged(missing), since.built())
                    batches.append(part)
                    size += len(part)
                    opening.on_sent(len(part))
                    _note_times(since, partition, part, header, there[0], opening)
                held += there
                missing += absent
                runs = above_ascending(runs, next_offset) if next_offset < enough else []
                if not runs:
                    break
            if runs is before:
                # Compaction took all that there was from here on.
                missing += below_ascending(runs, enough)
                return Covered(batches, merged(held), merged(missing), since.built())
        return Covered(batches, merged(held), merged(missing), since.built())

    def _read(
        self, partition: Partition, runs: Runs, enough: int
    ) -> Iterator[tuple[Buffer, BatchHeader, _Open | None]]:
        """The batches from where the runs begin, as far as is enough: some of them,
        none if there are none."""
        start = runs[0]
        opened = self._open.get(_place(partition))
        if opened is not None and opened.header.base_offset <= start < opened.header.next_offset:
            yield b"", opened.header, opened
            return
        guess = count_of(below_ascending(runs, enough)) * _record_bytes(partition.log)
        wanted = min(READ_BYTES_MAX, max(READ_BYTES_MIN, guess))
        data = partition.log.read(start, wanted, min(partition.high_watermark, enough))
        view = memoryview(data)
        position = 0
        while position < len(view):
            header = read_header(view, position)
            yield view[position : position + header.size_bytes], header, None
            position += header.size_bytes

    def _part(
        self,
        partition: Partition,
        batch: Buffer,
        header: BatchHeader,
        opened: _Open | None,
        runs: Runs,
        opening: Opening,
    ) -> Buffer:
        if opened is not None:
            try:
                return opened.cut(runs)
            except CorruptBatch:
                self._open_bytes -= self._open.pop(_place(partition)).size_bytes
                return partition.log.read(header.base_offset, 1, header.next_offset)
        if count_of(runs) * CUT_BELOW >= header.count:
            return batch
        try:
            check_batch(batch)
        except CorruptBatch as error:
            # Its new checksum would make the damage look sound.
            raise CorruptLog(f"{partition.path} at {header.base_offset}: {error}") from error
        try:
            if not header.is_dense:
                wanted = set(offsets_of(runs))
                parts = read_raw_block(_block(batch, header, opening), header)
                records = [r for part in parts for r in part if r.offset in wanted]
                return build_sparse_batch(records, header)
            opened = _Open(_block(batch, header, opening), header)
            part = opened.cut(runs)
        except CorruptBatch:
            # Well sealed nonsense: its producer meant it so, and its consumer
            # will see for itself.
            return batch
        self._keep(_place(partition), opened)
        return part

    def _keep(self, place: tuple[bytes, int, int], opened: _Open) -> None:
        before = self._open.pop(place, None)
        if before is not None:
            self._open_bytes -= before.size_bytes
        self._open[place] = opened
        self._open_bytes += opened.size_bytes
        while self._open_bytes > OPEN_BYTES_MAX:
            _, oldest = self._open.popitem(last=False)
            self._open_bytes -= oldest.size_bytes


def _record_bytes(log: Log) -> int:
    """About how long a record is. It only decides how far to read at once: too little,
    and more is read; too much, and it is read for nobody."""
    active = log.segment_list.active
    return active.size_bytes // max(1, active.next_offset - active.base_offset) + 1


def _block(batch: Buffer, header: BatchHeader, opening: Opening) -> bytes:
    """The bytes of its records; CorruptBatch as in `read_block`."""
    try:
        block = read_block(batch, header)
    except CorruptBatch:
        # How far it came is not known.
        opening.on_opened(limits.DECOMPRESSED_BYTES_MAX)
        raise
    opening.on_opened(len(block))
    return block


def _note_times(
    since: SinceBuilder,
    partition: Partition,
    part: Buffer,
    header: BatchHeader,
    first: int,
    opening: Opening,
) -> None:
    """Since when the messages of a batch wait, from `first` on. It is not opened for that,
    unless some of the partition were delayed."""
    time_ms = partition.arrivals.believed(header.base_offset, header.first_timestamp_ms)
    since.add(first, time_ms)
    scanner = partition.scanner
    if scanner is None or not scanner.has_delays:
        return
    own = read_header(part)
    if not may_have_attributes(part, own):
        return
    with contextlib.suppress(CorruptBatch):
        for offset, found in iterate_attributes(_block(part, own, opening), own):
            if offset >= first and found.deliver_at_ms > time_ms:
                due_ms = scanner.due_ms(offset, found.deliver_at_ms, found.delay_ms)
                since.add(offset, max(time_ms, due_ms))
                since.add(offset + 1, time_ms)
                since.delayed.append(offset)


def _place(partition: Partition) -> tuple[bytes, int, int]:
    return partition.topic.id, partition.index, partition.epoch


def _present(batch: Buffer, header: BatchHeader, runs: Runs, opening: Opening) -> tuple[Runs, Runs]:
    """Which of the runs the batch holds records for, and which it does not."""
    if header.is_dense and runs[0] >= header.base_offset and not header.is_control:
        return runs, []
    present: set[int] = set()
    if not header.is_control:
        try:
            for part in read_raw_block(_block(batch, header, opening), header):
                present.update([record.offset for record in part])
        except CorruptBatch:
            present = set(range(header.base_offset, header.next_offset))
    offsets = list(offsets_of(runs))
    return (
        runs_of(offset for offset in offsets if offset in present),
        runs_of(offset for offset in offsets if offset not in present),
    )
