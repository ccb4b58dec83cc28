"""The segment: one data file and its sparse indexes.

A segment knows offsets and byte positions, not topics or leaders.

    00000000000000004096.log         batches, back to back
    00000000000000004096.index       (offset delta, position), one per ~4 KiB
    00000000000000004096.timeindex   (timestamp, offset delta)
    00000000000000004096.txnindex    aborted transactions; see `aborted`

    0              written_from         size_bytes      size of the file
    | from before the open | since then | what a failed write left |
      checksummed when read

Files are opened when they are first needed, and the indexes are read, checked and
completed by walking headers then: a partition that nobody touches costs nothing.

Rejected: trusting an index that ends early. Its largest timestamp would be too
small, and retention would delete records before their time.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from headrace.core.errors import CorruptBatch, CorruptLog
from headrace.core.ports import Buffer, Disk, File
from headrace.log.segment_index import INDEX_SUFFIXES, SegmentIndex
from headrace.record.batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    BatchHeader,
    check_batch,
    read_header,
)
from headrace.record.placing import place_batches, places_of

LOG_SUFFIX: Final = ".log"
# What an index entry can hold with room to spare for one more append.
RELATIVE_OFFSET_MAX: Final = 2**31 - 1

# A lookup walks one index interval; a long walk reads more at a time.
_LOOKUP_BYTES: Final = 8 * 1024
_WALK_BYTES: Final = 64 * 1024
# Base offset, batch length and last offset delta: all that a read needs of a
# header that this process wrote itself, in a fifth of the time.
_EXTENT: Final = struct.Struct(">qi11xi")
# A read of so much looks first at how large its first batch is.
_PEEK_FROM_BYTES: Final = 64 * 1024
_RESERVE_FROM_BYTES: Final = 1024 * 1024
_RESERVE_STEP_BYTES: Final = 16 * 1024 * 1024


class SegmentInfo(NamedTuple):
    """A segment as `segments()` shows it. Timestamps are -1 when it is empty."""

    base_offset: int
    next_offset: int
    size_bytes: int
    first_timestamp_ms: int
    max_timestamp_ms: int


class Segment:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        base_offset: int,
        next_offset: int,
        *,
        index_interval_bytes: int,
        size_bytes: int | None = None,
        read_only: bool = False,
        is_sealed: bool = False,
        is_dense: bool = False,
        on_opened: Callable[[Segment], None] = lambda segment: None,
    ) -> None:
        """`size_bytes` is None when the file's own size is the truth. `on_opened`
        is told when the data file was opened, so that somebody can limit how many
        are."""
        self._disk = disk
        self._folder = folder
        self.path = f"{folder}/{segment_name(base_offset)}"
        self.base_offset = base_offset
        self.next_offset = next_offset
        self._size_bytes = size_bytes
        self._index_interval_bytes = index_interval_bytes
        self._read_only = read_only
        self.is_sealed = is_sealed
        self._on_opened = on_opened
        # Whether every offset is there, as long as compaction took none away.
        self.is_dense = is_dense
        self._file: File | None = None
        self._index: SegmentIndex | None = None
        self._reserved_bytes = 0
        self.saved_bytes = 0
        self.created_ms: int | None = None
        self.written_from = size_bytes

    # What is known of it.

    @property
    def log_path(self) -> str:
        return self.path + LOG_SUFFIX

    @property
    def size_bytes(self) -> int:
        if self._size_bytes is None:
            self._size_bytes = self.written_from = self.file().size()
        return self._size_bytes

    @property
    def max_timestamp_ms(self) -> int:
        return self.index().max_timestamp_ms

    def first_timestamp_ms(self) -> int:
        if not self.size_bytes:
            return -1
        return self.header_at(0).base_timestamp_ms

    def info(self) -> SegmentInfo:
        return SegmentInfo(
            self.base_offset,
            self.next_offset,
            self.size_bytes,
            self.first_timestamp_ms(),
            self.max_timestamp_ms,
        )

    def file(self) -> File:
        if self._file is None:
            create = self._size_bytes == 0 and not self._read_only
            try:
                self._file = self._disk.open(
                    self.log_path, create=create, read_only=self._read_only
                )
            except FileNotFoundError:
                raise CorruptLog(f"{self.log_path} at byte 0: the file is missing") from None
            self._on_opened(self)
        return self._file

    # Writing.

    def append(self, batches: Buffer, offset: int, epoch: int | None) -> int:
        """Write the batches at the end and return the next offset. With an
        epoch they are given their places from `offset` on; without, they have
        them. When the write fails, the segment is as it was."""
        start = self.size_bytes
        index = self._index or self.index()
        if epoch is None:
            placed = places_of(batches, index.progress, index.interval_bytes)
        else:
            assert not isinstance(batches, bytes)
            placed = place_batches(batches, offset, epoch, index.progress, index.interval_bytes)
        (self._file or self.file()).write(batches, start)
        self._size_bytes = start + len(batches)
        self.next_offset = placed.next_offset
        index.note(placed, start)
        return placed.next_offset

    def reserve(self, more_bytes: int, segment_bytes: int) -> None:
        """Ask for space ahead: as much again as there is, so that ten thousand
        small logs do not claim a disk that they never fill."""
        end = self.size_bytes + more_bytes
        if end > self._reserved_bytes and end > _RESERVE_FROM_BYTES:
            step = min(end, _RESERVE_STEP_BYTES)
            self._reserved_bytes = max(end, min(segment_bytes, end + step))
            self.file().reserve(self._reserved_bytes)

    def cut(self, position: int, next_offset: int) -> None:
        """Drop everything from `position` on, in memory and in the file. Not
        synced. The index files are removed: they may point beyond the end."""
        self.file().truncate(position)
        self._size_bytes = position
        self._reserved_bytes = 0
        self.next_offset = next_offset
        self.written_from = min(self.written_from or 0, position)
        for suffix in INDEX_SUFFIXES:
            self._disk.remove(self.path + suffix)
        self._index = None
        self.saved_bytes = 0

    def seal(self) -> None:
        """Nothing more will be appended."""
        self.is_sealed = True
        self.index()
        # On a full disk they are built again by whoever needs them.
        with contextlib.suppress(OSError):
            self.save_indexes()

    def save_indexes(self) -> None:
        """Bring the index files up to date. Not synced."""
        if self._index is not None and not self._read_only:
            self._index.save(self._disk, self.path)
            self.saved_bytes = self.size_bytes

    def give_back_reserve(self) -> None:
        if self._reserved_bytes > self.size_bytes:
            # Space is only a wish: when it cannot be given back, it is kept.
            with contextlib.suppress(OSError):
                self.file().truncate(self.size_bytes)
        self._reserved_bytes = 0

    # Finding and reading.

    def find(self, offset: int) -> tuple[int, BatchHeader]:
        """Position and header of the first batch that ends at or above `offset`,
        which is below `next_offset`."""
        for position, header in self._walk_near(offset):
            if header.last_offset >= offset:
                return position, header
        raise self.corrupt(self.size_bytes, f"ends before offset {offset}")

    def find_cut(self, offset: int) -> tuple[int, int]:
        """Where to cut so that the batch with `offset`, and all behind it, are
        gone: the position, and the next offset that is then left."""
        end = self.base_offset
        for position, header in self._walk_near(offset - 1):
            if header.last_offset >= offset:
                return position, end
            end = header.next_offset
        return self.size_bytes, end

    def find_time(self, timestamp_ms: int) -> Iterator[tuple[int, BatchHeader]]:
        """The batches that may hold a record of that time or later, in order."""
        older = self.index().times.below(timestamp_ms)
        near = self.base_offset if older is None else self.base_offset + older
        for position, header in self._walk_near(near):
            if header.max_timestamp_ms >= timestamp_ms:
                yield position, header

    def read(self, position: int, max_bytes: int, end: int, wanted: int) -> tuple[Buffer, int, int]:
        """Whole batches from `position` on, where `wanted` is or comes next, that
        start below offset `end`; at least one if there is one, with the position
        and offset that follow."""
        available = self.size_bytes - position
        data = self._view(min(max(max_bytes, HEADER_BYTES), available), position)
        if len(data) < min(HEADER_BYTES, available):
            raise self.corrupt(position, "the file is shorter than it was")
        whole = len(data) == available
        if position >= (self.written_from or 0) and whole and end >= self.next_offset:
            # All that is left, and all of it was written by this process.
            return data, position + available, self.next_offset
        at, offset = 0, -1
        least = self.base_offset
        try:
            while len(data) - at >= HEADER_BYTES:
                if position + at >= (self.written_from or 0):
                    base, length, last_delta = _EXTENT.unpack_from(data, at)
                    trusted = True
                else:
                    header = read_header(data, at)
                    base, length, last_delta = header[0], header[1], header.last_offset_delta
                    trusted = False
                    self._check_place(header, least, wanted)
                if base >= end:
                    break
                stop = at + length + LENGTH_OVERHEAD
                if stop > len(data):
                    if at:
                        break
                    data = self._view(stop, position)
                if not trusted or stop > len(data):
                    check_batch(data, at)
                at = stop
                offset = least = wanted = base + last_delta + 1
        except CorruptBatch as error:
            raise self.corrupt(position + at, str(error)) from error
        if at == len(data):
            return data, position + at, offset
        return memoryview(data)[:at], position + at, offset

    def _view(self, length: int, position: int) -> Buffer:
        """What this process wrote is not cut off again once it may be read, and
        need not be copied. A first batch that is larger is taken whole, at once."""
        if position < (self.written_from or 0):
            return self.file().read(length, position)
        if length >= _PEEK_FROM_BYTES:
            _, batch_length, _ = _EXTENT.unpack(self.file().read(_EXTENT.size, position))
            most = self.size_bytes - position
            length = min(max(length, batch_length + LENGTH_OVERHEAD), most)
        return self.file().view(length, position)

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """One whole batch, checked."""
        data = self.file().read(header.size_bytes, position)
        try:
            check_batch(data)
        except CorruptBatch as error:
            raise self.corrupt(position, str(error)) from error
        return data

    def _check_place(self, header: BatchHeader, least: int, wanted: int) -> None:
        """A batch's checksum does not cover its offset, which is patched in when
        it is appended; so the offset has to fit its neighbours'. The batch lies at
        or above `least`, and holds `wanted` or is the next behind it."""
        base = header.base_offset
        if not least <= base <= header.last_offset < self.next_offset or (
            header.last_offset < wanted or (self.is_dense and base > wanted)
        ):
            raise CorruptBatch(f"offset {base} is not where {wanted} is expected")

    def header_at(self, position: int) -> BatchHeader:
        try:
            return read_header(self.file().read(HEADER_BYTES, position))
        except CorruptBatch as error:
            raise self.corrupt(position, str(error)) from error

    def walk(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from `position` to the end."""
        end = self.size_bytes if end is None else end
        chunk = b""
        chunk_start = position
        length = _LOOKUP_BYTES
        least = wanted = self.base_offset
        if position:
            wanted = -1
        while position < end:
            at = position - chunk_start
            if at + HEADER_BYTES > len(chunk):
                # Headers far apart are read alone, close ones many at a time.
                if at > 2 * len(chunk) > 0:
                    length = HEADER_BYTES
                chunk = self.file().read(min(length, end - position), position)
                length = _WALK_BYTES
                chunk_start, at = position, 0
            try:
                header = read_header(chunk, at)
                self._check_place(header, least, header.base_offset if wanted < 0 else wanted)
            except CorruptBatch as error:
                raise self.corrupt(position, str(error)) from error
            least = wanted = header.next_offset
            if position + header.size_bytes > end:
                raise self.corrupt(position, "the batch is cut off")
            yield position, header
            position += header.size_bytes

    def corrupt(self, position: int, reason: str) -> CorruptLog:
        return CorruptLog(f"{self.log_path} at byte {position}: {reason}")

    # The indexes.

    def index(self) -> SegmentIndex:
        if self._index is None:
            self._index = SegmentIndex.load(
                self._disk, self.path, self.base_offset, self._index_interval_bytes, self.walk
            )
            if self.is_sealed:
                # Saved once more, nobody has to walk again. If that fails, they do.
                with contextlib.suppress(OSError):
                    self.save_indexes()
        return self._index

    def _walk_near(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Walk from a batch boundary at or below `offset`, for certain: an
        entry that names none throws the index away."""
        offsets = self.index().offsets
        number = offsets.floor(offset - self.base_offset)
        if number < 0:
            return self.walk(0)
        walk = self.walk(offsets.positions[number])
        with contextlib.suppress(CorruptLog):
            first = next(walk, None)
            if (
                first is not None
                and first[1].last_offset == self.base_offset + (offsets.offsets[number])
            ):
                return chain((first,), walk)
        self._index = SegmentIndex.build(self.base_offset, self._index_interval_bytes, self.walk)
        return self._walk_near(offset)

    # The end of it.

    def twin(self) -> Segment:
        """The same to read from, with a handle of its own: it can be used where
        this one is not, and stays readable when this one is removed. It must be
        sealed."""
        twin = Segment(
            self._disk,
            self._folder,
            self.base_offset,
            self.next_offset,
            index_interval_bytes=self._index_interval_bytes,
            size_bytes=self.size_bytes,
            read_only=True,
            is_sealed=True,
            is_dense=self.is_dense,
        )
        twin.file()
        return twin

    def close(self) -> None:
        file = self.take_file()
        if file is not None:
            file.close()

    def take_file(self) -> File | None:
        """Hand over the open handle: whoever takes it closes it."""
        file, self._file = self._file, None
        return file

    def remove(self) -> None:
        for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
            self._disk.remove(self.path + suffix)


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


def parse_base_offset(name: str) -> int | None:
    """The base offset of a `.log` file's name; None for other files."""
    stem = name.removesuffix(LOG_SUFFIX)
    if stem == name or len(stem) != 20 or not stem.isdecimal():
        return None
    return int(stem)
