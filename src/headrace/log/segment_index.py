"""Both indexes of one segment, and what is known only of its end.

    log       |  .  .  .  |  .  .  .  |  .  .  .  |  .  .
    .index    ^           ^           ^
    files     |--- saved, believed once proven ---|
    walked                                        |------>  at load, by headers

Loading proves the files against the log: the last entry of each must name a batch
that is there. What follows the last entries is walked, so that the largest
timestamp is that of the whole segment even when the files end early.

Rejected: one entry per batch, so that nothing would have to be walked. For small
batches the index would be a tenth of the log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from headrace.core.errors import CorruptLog
from headrace.core.ports import Disk
from headrace.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY, OffsetIndex, TimeIndex
from headrace.record.batch import BatchHeader

INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
# The aborted transactions; see `headrace.log.aborted`.
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
# Every file beside a segment's data, all of which can be made again from it.
INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

# The batches from a position to the segment's end, with their positions.
Walk = Callable[[int], Iterator[tuple[int, BatchHeader]]]


class SegmentIndex:
    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._since_entry_bytes = 0
        self.offsets = OffsetIndex()
        self.times = TimeIndex()
        self.max_timestamp_ms = -1
        # The last offset of the batch that holds the largest timestamp.
        self.max_timestamp_offset = base_offset

    @classmethod
    def load(
        cls, disk: Disk, path: str, base_offset: int, interval_bytes: int, walk: Walk
    ) -> SegmentIndex:
        """From the files if they are true, from the log alone if not."""
        index = cls(base_offset, interval_bytes)
        offsets = OffsetIndex.decode(read_index(disk, path + INDEX_SUFFIX))
        times = TimeIndex.decode(read_index(disk, path + TIME_INDEX_SUFFIX))
        if offsets is not None and times is not None:
            index.offsets, index.times = offsets, times
            if index._complete(walk):
                return index
        return cls.build(base_offset, interval_bytes, walk)

    @classmethod
    def build(cls, base_offset: int, interval_bytes: int, walk: Walk) -> SegmentIndex:
        index = cls(base_offset, interval_bytes)
        for position, header in walk(0):
            index.note(header.last_offset, position, header.size_bytes, header.max_timestamp_ms)
        return index

    def note(self, last_offset: int, position: int, size: int, timestamp_ms: int) -> None:
        """A batch follows the last one."""
        if timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
            self.max_timestamp_offset = last_offset
        if self._since_entry_bytes > self._interval_bytes:
            self.offsets.append(last_offset - self._base_offset, position)
            self.note_time()
            self._since_entry_bytes = 0
        self._since_entry_bytes += size

    def note_time(self) -> None:
        """Let the time index end in the largest timestamp so far."""
        if self.max_timestamp_ms >= 0:
            self.times.append(self.max_timestamp_ms, self.max_timestamp_offset - self._base_offset)

    def save(self, disk: Disk, path: str) -> None:
        """Write the entries that are not in the files yet. Not synced."""
        self.note_time()
        for suffix, index, entry_bytes in (
            (TIME_INDEX_SUFFIX, self.times, TIME_ENTRY.size),
            (INDEX_SUFFIX, self.offsets, OFFSET_ENTRY_BYTES),
        ):
            if index.saved == len(index):
                continue
            with contextlib.closing(disk.open(path + suffix, create=True)) as file:
                if not index.saved:
                    file.truncate(0)
                file.write(index.encode(index.saved), index.saved * entry_bytes)
            index.saved = len(index)

    def _complete(self, walk: Walk) -> bool:
        """Prove the last entries and note what follows; False if one is wrong."""
        offsets, times = self.offsets, self.times
        base = self._base_offset
        indexed = offsets.positions[-1] if len(offsets) else -1
        position = max(indexed, 0)
        if len(times):
            number = offsets.floor(times.offsets[-1])
            position = min(position, offsets.positions[number] if number >= 0 else 0)
        else:
            position = 0
        offset_proven = not len(offsets)
        time_proven = not len(times)
        wanted_offset = base + times.offsets[-1] if len(times) else -1
        # The walk notes what lies behind the loaded entries, so their number and
        # the last time must be those of the files.
        wanted_ms = times.timestamps[-1] if len(times) else -1
        wanted_last = base + offsets.offsets[-1] if len(offsets) else -1
        try:
            for at, header in walk(position):
                last = header.last_offset
                if last == wanted_offset:
                    time_proven = header.max_timestamp_ms == wanted_ms
                if at <= indexed:
                    self._note_known(header)
                    if at == indexed:
                        offset_proven = last == wanted_last
                        self._since_entry_bytes = header.size_bytes
                else:
                    if not offset_proven:
                        return False
                    self.note(last, at, header.size_bytes, header.max_timestamp_ms)
        except CorruptLog:
            # Either an entry points into the middle of a batch, or the log is
            # rotten: building the index from the start tells which.
            return False
        return offset_proven and time_proven

    def _note_known(self, header: BatchHeader) -> None:
        if header.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = header.max_timestamp_ms
            self.max_timestamp_offset = header.last_offset


def read_index(disk: Disk, path: str) -> bytes:
    """The file's content; empty when there is none."""
    try:
        file = disk.open(path, read_only=True)
    except FileNotFoundError:
        return b""
    with contextlib.closing(file):
        return file.read(file.size(), 0)
