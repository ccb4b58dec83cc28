"""Reading records by offset, decoded once for neighbours.

Workers lease in small bites from large batches, so the last few decoded blocks
are kept: a batch of a thousand records is opened once for ten leases of a hundred.

A batch of kilobytes can hold millions of records or headers, so a block has a bound
in memory: it may end in the middle of a batch. Such a batch is kept uncompressed,
for the next block of it. What all partitions keep has a bound too (`KeptBlocks`).

Messages of several priorities lie between one another:

    lane      2 2 2 0 2 2 2 2 2 2 2 2 0 2 2 2
    wanted          ^                 ^           the others are for later leases

Who wants scattered records gets those alone: the batch is kept uncompressed and no
block is made of it. What lies between is stepped over by its lengths.

Rejected: blocks for these as well. Each of five lanes goes through the log at its own
pace, so each would decode every batch again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from headrace.core import limits
from headrace.core.errors import CorruptBatch, CorruptLog
from headrace.core.ports import Buffer
from headrace.engine.runs import Runs, pairs
from headrace.engine.unreadable import Unreadable
from headrace.log import AbortedTransaction, Log
from headrace.log.aborted import covers
from headrace.record import BatchHeader, BatchParts, NewRecord, Record, check_batch

BLOCKS_MAX = 8
# A lease of a hundred goes through some of them, and each lane comes back to its last.
OPENED_MAX = 32
READ_BYTES_MIN = 4 * 1024
READ_BYTES_MAX = 256 * 1024
# A batch that holds so much is kept open, uncompressed.
KEPT_OPEN_BYTES_MIN = 1024 * 1024
# Of a batch that does not fit into a block, about what is decoded at a time.
PART_BYTES = 512 * 1024
# A guess that only decides how far to read ahead.
_RECORD_BYTES_GUESS = 256

_offset_of = attrgetter("offset")


class _Block(NamedTuple):
    start: int
    end: int
    records: list[Record]
    # Start, end and producer of every transactional batch in it.
    transactional: list[tuple[int, int, int]]
    # About what it takes in memory.
    cost: int


class Allowance:
    """How many bytes of records one call may have, from however many partitions, and how
    many it may open beyond that, where it wants little of much.

    Records are measured only when what is known of their blocks says that they may
    be too many.
    """

    def __init__(self, bytes_max: int, opened_bytes_max: int | None = None) -> None:
        self._bytes_max = bytes_max
        self._opened_bytes_max = opened_bytes_max
        self._opened_bytes = 0
        self._measured = 0
        # No more than this is in those that were not measured.
        self._most = 0
        self._unmeasured: list[Sequence[Record]] = []
        self.is_spent = False

    @property
    def size_bytes(self) -> int:
        """No less than what was had of it."""
        return self._measured + self._most

    def on_opened(self, size_bytes: int) -> None:
        """A batch was opened for some of its records, which were admitted."""
        self._opened_bytes += size_bytes
        beyond = self._opened_bytes - self.size_bytes
        if self._opened_bytes_max is not None and beyond > self._opened_bytes_max:
            self.is_spent = self.size_bytes > 0

    def admit(self, records: Sequence[Record], most: int) -> int:
        """How many of these may be had; `most` is a bound on the bytes of all. The
        first record of a call may always be had."""
        if self._measured + self._most + most <= self._bytes_max:
            self._most += most
            self._unmeasured.append(records)
            return len(records)
        self._measured += sum(map(bytes_of, chain.from_iterable(self._unmeasured)))
        self._most = 0
        self._unmeasured.clear()
        for number, record in enumerate(records):
            size = bytes_of(record)
            if self._measured and self._measured + size > self._bytes_max:
                self.is_spent = True
                return number
            self._measured += size
        return len(records)


def bytes_of(record: Record | NewRecord) -> int:
    """With something for the record itself, so that no record is free."""
    size = 1 + len(record.value or b"") + len(record.key or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size


class KeptBlocks:
    """The blocks that several readers keep, by the order in which they were made:
    beyond the bound the oldest is forgotten, whichever reader has it."""

    def __init__(self, bytes_max: int = limits.DECODED_BYTES_KEPT_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[tuple[int, int], tuple[RecordReader, int]] = OrderedDict()
        self.size_bytes = 0

    def add(self, reader: RecordReader, start: int, cost: int) -> None:
        self.remove(reader, start)
        self._kept[id(reader), start] = reader, cost
        self.size_bytes += cost
        while self.size_bytes > self._bytes_max:
            (_, first), (oldest, _) = next(iter(self._kept.items()))
            oldest.drop(first)

    def remove(self, reader: RecordReader, start: int) -> None:
        _, cost = self._kept.pop((id(reader), start), (None, 0))
        self.size_bytes -= cost


class _Taken(NamedTuple):
    """Some of the records that were asked for, those before `end`."""

    records: list[Record]
    end: int
    # No less than the bytes of the records.
    cost: int
    # Of the batch that had to be opened for them alone.
    opened_bytes: int = 0


def _place_of(parts: BatchParts) -> int:
    """Where a batch that is kept open stands among the blocks that are kept: no block
    begins there."""
    return -1 - parts.header.base_offset


class _Ahead:
    """Batches for one call: those that follow one another are read together, since many
    have a record or two."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._data: Buffer = b""
        self._position = 0
        self._next_offset = -1

    def batch_at(self, offset: int, count: int, end: int) -> tuple[Buffer, BatchHeader] | None:
        """The batch that holds this offset, or the next that exists below `end`. `count`
        records are wanted from there on."""
        if offset != self._next_offset or self._position >= len(self._data):
            self._data = self._log.read(offset, _bytes_of_records(count), end)
            self._position = 0
            if not self._data:
                return None
        try:
            header = check_batch(self._data, self._position)
        except CorruptBatch as error:
            raise _damaged(self._log, offset, error) from error
        stop = self._position + header.size_bytes
        batch = memoryview(self._data)[self._position : stop]
        self._position, self._next_offset = stop, header.next_offset
        return batch, header


def _bytes_of_records(count: int) -> int:
    """About what to read from the log for so many."""
    return min(READ_BYTES_MAX, max(READ_BYTES_MIN, count * _RECORD_BYTES_GUESS))


class RecordReader:
    def __init__(self, log: Log, on_unreadable: Callable[[], None] = lambda: None) -> None:
        self._log = log
        # By their places: the next records of these need no uncompressing.
        self._opened: OrderedDict[int, BatchParts] = OrderedDict()
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._kept = KeptBlocks()
        self.unreadable = Unreadable(on_unreadable)
        self._changes = log.segment_list.changes

    def share(self, kept: KeptBlocks) -> None:
        """From now on the bound on what is kept is that of many readers together."""
        self.forget()
        self._kept = kept

    def read(
        self, runs: Runs, end: int, aborted: Sequence[AbortedTransaction] = ()
    ) -> list[Record]:
        """The records of these runs, which lie below `end`, without their neighbours.
        Offsets that hold no record are left out, and so is what belongs to an aborted
        transaction."""
        return self.read_some(runs, end, None, aborted, is_scattered=True)[0]

    def read_some(
        self,
        runs: Runs,
        end: int,
        allowance: Allowance | None,
        aborted: Sequence[AbortedTransaction] = (),
        is_scattered: bool = False,
    ) -> tuple[list[Record], Runs]:
        """As `read`, as far as the allowance goes: the records, and the runs that
        were gone over. Of scattered records the neighbours are not wanted next."""
        self._note_changes()
        take = self._take_of_block
        if is_scattered or len(runs) > 2:
            take = partial(self._take_alone, _Ahead(self._log))
        found: list[Record] = []
        gone_over: Runs = []
        for first, stop in pairs(runs):
            if allowance is not None and allowance.is_spent:
                break
            # What was deleted at the log's start is left out as well.
            start = max(first, self._log.start_offset)
            while start < stop:
                taken = take(start, stop, end, aborted)
                if taken is None:
                    start = stop
                    break
                records = taken.records
                if allowance is not None:
                    count = allowance.admit(records, taken.cost)
                    if count < len(records):
                        start = records[count].offset
                        found += records[:count]
                        break
                    if taken.opened_bytes:
                        allowance.on_opened(taken.opened_bytes)
                found += records
                start = taken.end
            if start > first:
                gone_over += (first, min(start, stop))
        return found, gone_over

    def read_next(
        self,
        start: int,
        count: int,
        end: int,
        aborted_between: Callable[[int, int], Sequence[AbortedTransaction]],
    ) -> tuple[list[Record], int]:
        """The first records from `start` on, `count` of them at most, as far as one block
        has them; and the offset to go on from. There may be none in it, and a gap is one
        step however wide it is. Who wants more asks again: what is read at once has a bound
        in bytes, which a count alone has not."""
        self._note_changes()
        block = self._block(start, count, end)
        if block is None:
            return [], end
        last = min(block.end, end)
        aborted = aborted_between(start, last) if block.transactional else ()
        found = _taken(block, start, last, aborted)
        if len(found) > count:
            del found[count:]
            last = found[-1].offset + 1
        return found, last

    def _note_changes(self) -> None:
        if self._changes != self._log.segment_list.changes:
            # Compaction took records away, and forgot of the aborted ones that they were.
            self._changes = self._log.segment_list.changes
            self.forget()

    def _take_of_block(
        self, start: int, stop: int, end: int, aborted: Sequence[AbortedTransaction]
    ) -> _Taken | None:
        block = self._block(start, stop - start, end)
        if block is None:
            return None
        last = min(stop, block.end)
        return _Taken(_taken(block, start, last, aborted), last, block.cost)

    def _take_alone(
        self,
        ahead: _Ahead,
        start: int,
        stop: int,
        end: int,
        aborted: Sequence[AbortedTransaction],
    ) -> _Taken | None:
        """These records without their neighbours, as far as one batch has them."""
        batch: Buffer = b""
        parts = self._opened_at(start)
        header = None if parts is None else parts.header
        if header is None:
            found = ahead.batch_at(start, stop - start, end)
            if found is None:
                return None
            batch, header = found
        is_void = header.is_control or (
            header.is_transactional and covers(aborted, header.producer_id, header.base_offset)
        )
        if is_void:
            return _Taken([], min(stop, header.next_offset), 0)
        opened_bytes = 0
        try:
            if parts is None:
                parts = BatchParts(batch, header)
                opened_bytes = parts.size_bytes
            elif parts.next_offset > start:
                parts.rewind()
            records = parts.read(start, stop=stop)
        except CorruptBatch as error:
            self.unreadable.note(header.base_offset, header.next_offset, str(error))
            return _Taken([], min(stop, header.next_offset), 0)
        if not parts.is_over:
            self._keep_open(parts)
        return _Taken(records, min(stop, parts.next_offset), parts.cost, opened_bytes)

    def _opened_at(self, offset: int) -> BatchParts | None:
        for parts in reversed(self._opened.values()):
            if parts.header.base_offset <= offset < parts.header.next_offset:
                return parts
        return None

    def _block(self, offset: int, count: int, end: int) -> _Block | None:
        for block in reversed(self._blocks.values()):
            if block.start <= offset < block.end:
                return block
        data = self._log.read(offset, _bytes_of_records(count), end)
        if not data:
            return None
        block = self._decode(data, offset)
        if block.cost <= 2 * limits.DECODED_BYTES_MAX:
            self.drop(block.start)
            self._blocks[block.start] = block
            self._kept.add(self, block.start, block.cost)
            if len(self._blocks) > BLOCKS_MAX:
                self.drop(next(iter(self._blocks)))
        return block

    def _decode(self, data: Buffer, offset: int) -> _Block:
        """The batches in `data` from `offset` on, as far as they fit into a block; of one
        that does not a part."""
        records: list[Record] = []
        transactional: list[tuple[int, int, int]] = []
        position = 0
        start = -1
        next_offset = offset
        cost = 0
        while position < len(data) and cost < limits.DECODED_BYTES_MAX:
            try:
                header = check_batch(data, position)
                batch = data[position : position + header.size_bytes]
            except CorruptBatch as error:
                raise _damaged(self._log, next_offset, error) from error
            first = header.base_offset
            next_offset = header.next_offset
            if not header.is_control:
                found, first, next_offset, more = self._decode_batch(batch, header, offset)
                records += found
                cost += more
                if header.is_transactional:
                    transactional.append((first, next_offset, header.producer_id))
            if start < 0:
                # A gap before the first batch holds nothing: it belongs to the block.
                start = min(first, offset)
            position += header.size_bytes
            if next_offset < header.next_offset:
                break
        return _Block(start, next_offset, records, transactional, cost)

    def _decode_batch(
        self, batch: Buffer, header: BatchHeader, offset: int
    ) -> tuple[list[Record], int, int, int]:
        """The records of a batch that is not too large, or a part of it from `offset` on;
        from where to where they are, and what they cost."""
        try:
            parts = self._open(batch, header, offset)
            is_small = parts.cost_max <= limits.DECODED_BYTES_MAX and not parts.is_begun
            found = parts.read() if is_small else parts.read(offset, PART_BYTES)
            if not parts.is_over and parts.next_offset <= offset:
                # Few bytes that are many headers: what was asked for is behind them.
                is_small = False
                found = parts.read(offset, PART_BYTES)
            if parts.size_bytes >= KEPT_OPEN_BYTES_MIN:
                self._keep_open(parts)
        except CorruptBatch as error:
            # Behind a good checksum nonsense is its producer's, and holds no record.
            self.unreadable.note(header.base_offset, header.next_offset, str(error))
            return [], header.base_offset, header.next_offset, 0
        first = header.base_offset if is_small else max(offset, header.base_offset)
        return found, first, parts.next_offset, parts.cost

    def _open(self, batch: Buffer, header: BatchHeader, offset: int) -> BatchParts:
        """The batch, at its first record or at one that does not lie behind `offset`."""
        opened = self._opened.get(-1 - header.base_offset)
        # Compared with its checksum: another may have its place after a truncation.
        if opened is None or opened.header != header:
            return BatchParts(batch, header)
        if opened.next_offset > offset:
            opened.rewind()
        return opened

    def _keep_open(self, parts: BatchParts) -> None:
        place = _place_of(parts)
        if self._opened.get(place) is parts:
            self._opened.move_to_end(place)
            return
        self._opened[place] = parts
        self._kept.add(self, place, parts.size_bytes)
        if len(self._opened) > OPENED_MAX:
            self.drop(next(iter(self._opened)))

    def drop(self, start: int) -> None:
        """Keep the block that begins here, or the batch that has this place, no longer."""
        kept = self._opened if start < 0 else self._blocks
        if kept.pop(start, None) is not None:
            self._kept.remove(self, start)

    def forget(self) -> None:
        for start in [*self._opened, *self._blocks]:
            self.drop(start)


def _taken(
    block: _Block, start: int, end: int, aborted: Sequence[AbortedTransaction]
) -> list[Record]:
    records = block.records
    if aborted and block.transactional:
        return _committed(block, start, end, aborted)
    if len(records) == block.end - block.start:
        return records[start - block.start : end - block.start]
    first = bisect_left(records, start, key=_offset_of)
    return records[first : bisect_left(records, end, key=_offset_of)]


def _committed(
    block: _Block, start: int, end: int, aborted: Sequence[AbortedTransaction]
) -> list[Record]:
    """The block's records from `start` to `end` without those that are void."""
    void = [
        (first, stop)
        for first, stop, producer_id in block.transactional
        if first < end and stop > start and covers(aborted, producer_id, first)
    ]
    found: list[Record] = []
    # Between the void batches everything is taken.
    for first, stop in (*void, (end, end)):
        low = bisect_left(block.records, start, key=_offset_of)
        high = bisect_left(block.records, min(first, end), key=_offset_of)
        found += block.records[low:high]
        start = max(start, stop)
    return found


def _damaged(log: Log, offset: int, error: CorruptBatch) -> CorruptLog:
    return CorruptLog(
        f"{log.path}: the batch at or after offset {offset} is damaged ({error}); "
        "run `headrace log verify` to see where"
    )


def iterate_batches(log: Log, start: int, end: int) -> Iterator[tuple[Buffer, int]]:
    """(bytes, position) of every checked batch from `start` up to `end`."""
    while start < end:
        data = log.read(start, 1024 * 1024, end)
        if not data:
            return
        position = 0
        while position < len(data):
            try:
                header = check_batch(data, position)
            except CorruptBatch as error:
                raise _damaged(log, start, error) from error
            yield data, position
            position += header.size_bytes
            start = header.next_offset
