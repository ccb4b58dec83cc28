"""The sparse indexes: from an offset or a time to a place in the segment.

Columns in memory, Kafka's entries on disk, big-endian:

    .index       u32 last offset of a batch - base | u32 position of that batch
    .timeindex   i64 largest timestamp so far      | u32 last offset of its batch - base

Both columns of both ascend strictly. An index knows nothing of the segment's
content: whether an entry tells the truth is for the segment to find out, and
`decode` refuses only what no index could ever say.

Rejected: a checksum over the file. It would have to be written with each entry,
and could not say whether the entries belong to the bytes that are in the log.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY: Final = struct.Struct(">qI")
_U32: Final = "I" if array("I").itemsize == 4 else "L"


class OffsetIndex:
    """Relative last offsets of some batches, and where those batches start."""

    __slots__ = ("offsets", "positions", "saved")

    def __init__(self) -> None:
        self.offsets = array(_U32)
        self.positions = array(_U32)
        # How many entries are in the file.
        self.saved = 0

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative: int, position: int) -> None:
        self.offsets.append(relative)
        self.positions.append(position)

    def floor(self, relative: int) -> int:
        """Number of the last entry at or below `relative`, or -1."""
        return bisect_right(self.offsets, relative) - 1

    def cut(self, position: int) -> None:
        """Forget the batches that start at or above `position`."""
        count = bisect_left(self.positions, position)
        del self.offsets[count:]
        del self.positions[count:]
        self.saved = min(self.saved, count)

    def encode(self, first: int = 0) -> bytes:
        entries = array(_U32, bytes(OFFSET_ENTRY_BYTES * (len(self) - first)))
        entries[::2] = self.offsets[first:]
        entries[1::2] = self.positions[first:]
        return _swapped(entries).tobytes()

    @classmethod
    def decode(cls, content: bytes) -> OffsetIndex | None:
        """None when these bytes cannot be an index."""
        if len(content) % OFFSET_ENTRY_BYTES:
            return None
        entries = array(_U32)
        entries.frombytes(content)
        _swapped(entries)
        index = cls()
        index.offsets = entries[::2]
        index.positions = entries[1::2]
        index.saved = len(index.offsets)
        if not _ascends(index.offsets) or not _ascends(index.positions):
            return None
        return index


class TimeIndex:
    """Each time the largest timestamp grew (at the index's granularity): the new
    value, and the relative last offset of the batch that brought it."""

    __slots__ = ("offsets", "saved", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array(_U32)
        self.saved = 0

    def __len__(self) -> int:
        return len(self.timestamps)

    def append(self, timestamp_ms: int, relative: int) -> None:
        """Ignored unless both are larger than the last entry's."""
        if self.timestamps and (
            timestamp_ms <= self.timestamps[-1] or relative <= self.offsets[-1]
        ):
            return
        self.timestamps.append(timestamp_ms)
        self.offsets.append(relative)

    def below(self, timestamp_ms: int) -> int | None:
        """Relative offset up to which everything is older than `timestamp_ms`;
        None when that is known of nothing."""
        number = bisect_left(self.timestamps, timestamp_ms) - 1
        return self.offsets[number] if number >= 0 else None

    def cut(self, relative: int) -> None:
        """Forget what lies at or above `relative`."""
        count = bisect_left(self.offsets, relative)
        del self.timestamps[count:]
        del self.offsets[count:]
        self.saved = min(self.saved, count)

    def encode(self, first: int = 0) -> bytes:
        return b"".join(map(TIME_ENTRY.pack, self.timestamps[first:], self.offsets[first:]))

    @classmethod
    def decode(cls, content: bytes) -> TimeIndex | None:
        """None when these bytes cannot be an index."""
        if len(content) % TIME_ENTRY.size:
            return None
        index = cls()
        for timestamp_ms, relative in TIME_ENTRY.iter_unpack(content):
            index.timestamps.append(timestamp_ms)
            index.offsets.append(relative)
        index.saved = len(index.timestamps)
        if not _ascends(index.timestamps) or not _ascends(index.offsets):
            return None
        return index


def _ascends(column: array[int]) -> bool:
    return all(map(int.__lt__, column, column[1:]))


def _swapped(entries: array[int]) -> array[int]:
    if sys.byteorder == "little":
        entries.byteswap()
    return entries
