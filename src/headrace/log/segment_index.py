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
from headrace.record.placing import Place, Placed, Progress, note_places

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
        self.interval_bytes = interval_bytes
        self.offsets = OffsetIndex()
        self.times = TimeIndex()
        self.progress = Progress(0, -1, base_offset)

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
        places = (_place(position, header) for position, header in walk(0))
        index.note(note_places(places, 0, index.progress, interval_bytes), 0)
        return index

    @property
    def max_timestamp_ms(self) -> int:
        return self.progress.latest_ms

    def note(self, placed: Placed, start: int) -> None:
        """Batches that were placed by this index's progress follow the last one, from the
        position `start` on."""
        for last_offset, position, latest_ms, latest_offset in placed.entries:
            self.offsets.append(last_offset - self._base_offset, start + position)
            self._note_time(latest_ms, latest_offset)
        self.progress = placed.progress

    def note_time(self) -> None:
        """Let the time index end in the largest timestamp so far."""
        self._note_time(self.progress.latest_ms, self.progress.latest_offset)

    def _note_time(self, latest_ms: int, latest_offset: int) -> None:
        if latest_ms >= 0:
            self.times.append(latest_ms, latest_offset - self._base_offset)

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
                        self.progress = self.progress._replace(since_entry_bytes=header.size_bytes)
                else:
                    if not offset_proven:
                        return False
                    places = (_place(at, header),)
                    self.note(note_places(places, 0, self.progress, self.interval_bytes), 0)
        except CorruptLog:
            # Either an entry points into the middle of a batch, or the log is
            # rotten: building the index from the start tells which.
            return False
        return offset_proven and time_proven

    def _note_known(self, header: BatchHeader) -> None:
        if header.max_timestamp_ms > self.progress.latest_ms:
            self.progress = self.progress._replace(
                latest_ms=header.max_timestamp_ms, latest_offset=header.last_offset
            )


def _place(position: int, header: BatchHeader) -> Place:
    return header.last_offset, position, header.size_bytes, header.max_timestamp_ms


def read_index(disk: Disk, path: str) -> bytes:
    """The file's content; empty when there is none."""
    try:
        file = disk.open(path, read_only=True)
    except FileNotFoundError:
        return b""
    with contextlib.closing(file):
        return file.read(file.size(), 0)
