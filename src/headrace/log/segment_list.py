"""The segments of one log, in order, the last of them active.

Also what saves work between two reads: where the last ones ended, and which files
are open. A log may have thousands of segments and a reader needs one or two, so
few sealed ones stay open.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from headrace.core.ports import Disk
from headrace.log.checkpoint import sync_folder
from headrace.log.durability import Durability
from headrace.log.segment import Segment

_CURSORS_MAX: Final = 64
_OPEN_SEALED_MAX: Final = 4


class SegmentList:
    def __init__(
        self,
        disk: Disk,
        path: str,
        durability: Durability,
        *,
        index_interval_bytes: int,
        read_only: bool,
    ) -> None:
        self._disk = disk
        self._path = path
        self._durability = durability
        self._index_interval_bytes = index_interval_bytes
        self._read_only = read_only
        # Whether compaction never took an offset away.
        self.is_dense = True
        self._all: list[Segment] = []
        self.bases: list[int] = []
        self.active: Segment
        # How often segments went away or were replaced.
        self.changes = 0
        # Where the batch with this offset starts: the end of an earlier read.
        self._cursors: dict[int, tuple[Segment, int]] = {}
        self._open_sealed: list[Segment] = []

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def sealed(self) -> list[Segment]:
        return self._all[:-1]

    def adopt(self, bases: list[int], end: int, end_position: int) -> None:
        """Begin with the segments that recovery found."""
        sealed = [self._make(*pair, is_sealed=True) for pair in pairwise(bases)]
        self.active = self._make(bases[-1], end, end_position)
        self._all = [*sealed, self.active]
        self.bases = bases

    def start_new(self, base_offset: int) -> Segment:
        """A new active segment; returns the one that was active."""
        before = self.active
        self.active = self._make(base_offset, base_offset, 0)
        self._all.append(self.active)
        self.bases.append(base_offset)
        self._cursors.pop(base_offset, None)
        return before

    def number_of(self, offset: int) -> int:
        return bisect_right(self.bases, offset) - 1

    def __getitem__(self, number: int) -> Segment:
        return self._all[number]

    def allow_gaps(self) -> None:
        self.is_dense = False
        for segment in self._all:
            segment.is_dense = False

    # Reading.

    def take_cursor(self, offset: int) -> tuple[Segment, int]:
        """The segment and position of the batch that holds `offset`."""
        cursor = self._cursors.pop(offset, None)
        if cursor is not None:
            return cursor
        return self.locate(offset)

    def locate(self, offset: int) -> tuple[Segment, int]:
        segment = self._all[bisect_right(self.bases, offset) - 1]
        return segment, segment.find(offset)[0]

    def put_cursor(self, offset: int, segment: Segment, position: int) -> None:
        if position == segment.size_bytes and segment is not self.active:
            return
        cursors = self._cursors
        if len(cursors) >= _CURSORS_MAX:
            del cursors[next(iter(cursors))]
        cursors[offset] = (segment, position)

    def note_open(self, segment: Segment) -> None:
        """A sealed segment need not stay open for long."""
        if (
            segment is self.active
            or segment in self._durability.unsynced
            or segment in self._open_sealed
        ):
            return
        self._open_sealed.append(segment)
        if len(self._open_sealed) > _OPEN_SEALED_MAX:
            self._durability.retire(self._open_sealed.pop(0).take_file())

    # Changing.

    def drop_first(self, count: int) -> list[Segment]:
        """Forget the oldest; their files are still there."""
        gone = self._all[:count]
        del self._all[:count], self.bases[:count]
        self._changed()
        return gone

    def cut_behind(self, number: int) -> None:
        """Remove the segments behind this one, files and all, the last one
        first: a crash in between leaves a shorter log and no hole. It becomes
        the active one."""
        self._changed()
        while len(self._all) > number + 1:
            gone = self._all.pop()
            self.bases.pop()
            self.forget(gone)
            gone.remove()
        self.active = self._all[number]
        self.active.is_sealed = False
        if self.active in self._durability.unsynced:
            self._durability.unsynced.remove(self.active)
        if self.active in self._open_sealed:
            self._open_sealed.remove(self.active)

    def restart(self, base_offset: int) -> None:
        """Remove all segments and begin an empty one."""
        self._changed()
        for gone in reversed(self._all):
            self.forget(gone)
            gone.remove()
        sync_folder(self._disk, self._path)
        self.adopt([base_offset], base_offset, 0)

    def replace(self, old: list[Segment], base_offset: int, next_offset: int) -> None:
        """Another file is in the place of these neighbours now."""
        first = self._all.index(old[0])
        self._all[first : first + len(old)] = [self._make(base_offset, next_offset, is_sealed=True)]
        self.bases = [segment.base_offset for segment in self._all]
        self._changed()

    def forget(self, segment: Segment) -> None:
        """Close it: it goes away, or something else takes its place."""
        if segment in self._durability.unsynced:
            self._durability.unsynced.remove(segment)
        if segment in self._open_sealed:
            self._open_sealed.remove(segment)
        self._durability.retire(segment.take_file())

    def close(self) -> None:
        for segment in self._all:
            self._durability.retire(segment.take_file())

    def _changed(self) -> None:
        self.changes += 1
        self._cursors.clear()

    def _make(
        self,
        base_offset: int,
        next_offset: int,
        size_bytes: int | None = None,
        *,
        is_sealed: bool = False,
    ) -> Segment:
        return Segment(
            self._disk,
            self._path,
            base_offset,
            next_offset,
            index_interval_bytes=self._index_interval_bytes,
            size_bytes=size_bytes,
            read_only=self._read_only,
            is_sealed=is_sealed,
            is_dense=self.is_dense,
            on_opened=self.note_open,
        )
