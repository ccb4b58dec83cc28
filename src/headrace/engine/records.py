"""Reading records by offset, decoded once for neighbours.

Workers lease in small bites from large batches, so the last few decoded blocks
are kept: a batch of a thousand records is opened once for ten leases of a hundred.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from headrace.core.errors import CorruptBatch, CorruptLog
from headrace.core.ports import Buffer
from headrace.engine.runs import Runs, pairs
from headrace.log import AbortedTransaction, Log
from headrace.log.aborted import covers
from headrace.record import Record, check_batch, read_records

BLOCKS_MAX = 8
BLOCK_BYTES_KEPT_MAX = 1024 * 1024
READ_BYTES_MIN = 4 * 1024
READ_BYTES_MAX = 256 * 1024
# A guess that only decides how far to read ahead.
_RECORD_BYTES_GUESS = 256

_offset_of = attrgetter("offset")


class _Block(NamedTuple):
    start: int
    end: int
    records: list[Record]
    # Start, end and producer of every transactional batch in it.
    transactional: list[tuple[int, int, int]]


class RecordReader:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._changes = log.segment_list.changes

    def read(
        self, runs: Runs, end: int, aborted: Sequence[AbortedTransaction] = ()
    ) -> list[Record]:
        """The records of these runs, which lie below `end`. Offsets that hold no
        record are left out, and so is what belongs to an aborted transaction."""
        self._note_changes()
        found: list[Record] = []
        for first, stop in pairs(runs):
            # What was deleted at the log's start is left out as well.
            start = max(first, self._log.start_offset)
            while start < stop:
                block = self._block(start, stop - start, end)
                if block is None:
                    break
                found += _taken(block, start, min(stop, block.end), aborted)
                start = block.end
        return found

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

    def _block(self, offset: int, count: int, end: int) -> _Block | None:
        for block in reversed(self._blocks.values()):
            if block.start <= offset < block.end:
                return block
        bytes_max = min(READ_BYTES_MAX, max(READ_BYTES_MIN, count * _RECORD_BYTES_GUESS))
        data = self._log.read(offset, bytes_max, end)
        if not data:
            return None
        block = _decode(self._log, data, offset)
        if len(data) <= BLOCK_BYTES_KEPT_MAX:
            self._blocks[block.start] = block
            if len(self._blocks) > BLOCKS_MAX:
                self._blocks.popitem(last=False)
        return block

    def forget(self) -> None:
        self._blocks.clear()


def _decode(log: Log, data: Buffer, offset: int) -> _Block:
    records: list[Record] = []
    transactional: list[tuple[int, int, int]] = []
    position = 0
    start = -1
    next_offset = offset
    while position < len(data):
        try:
            header = check_batch(data, position)
            batch = data[position : position + header.size_bytes]
        except CorruptBatch as error:
            raise _damaged(log, next_offset, error) from error
        if not header.is_control:
            # Behind a good checksum nonsense is its producer's, and holds no record.
            with contextlib.suppress(CorruptBatch):
                records += read_records(batch, header)
            if header.is_transactional:
                extent = header.base_offset, header.next_offset
                transactional.append((*extent, header.producer_id))
        if start < 0:
            # A gap before the first batch holds nothing: it belongs to the block.
            start = min(header.base_offset, offset)
        next_offset = header.next_offset
        position += header.size_bytes
    return _Block(start, next_offset, records, transactional)


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
