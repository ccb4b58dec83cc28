"""The log: a partition's batches, in order, on a Disk.

    start_offset          synced_end      end_offset
    |                     |               |
    |  0.log  |  100.log  |      200.log  |          the last segment is active
    '------ readable -----'-- written ----'

`append` writes and returns; nothing is durable until a ticket from `begin_sync`
was synced and given to `on_synced`. Whoever calls must see to it that no two calls
run at once; only the files and folders of a ticket may be synced meanwhile.

Rejected: syncing in here. The caller syncs many logs in one round, in parallel
threads and without holding a lock; a log knows only itself.
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
from bisect import bisect_right
from collections.abc import Generator, Iterator
from itertools import pairwise
from typing import Final

from headrace.core.errors import (
    CorruptBatch,
    DiskFull,
    InvalidArgument,
    OffsetOutOfRange,
    ReadOnly,
)
from headrace.core.ports import Buffer, Disk, File
from headrace.log import compaction, retention, verify
from headrace.log.checkpoint import Mark, SyncedFile, lower_cleaned, read_start, write_start
from headrace.log.epochs import Epochs
from headrace.log.recovery import finish_compaction, recover
from headrace.log.segment import (
    RELATIVE_OFFSET_MAX,
    Segment,
    SegmentInfo,
    parse_base_offset,
)
from headrace.log.settings import LogSettings
from headrace.log.sync import SyncTicket
from headrace.log.timestamps import find_latest, find_timestamp
from headrace.record.batch import read_header

# How much may be written before the active segment's index is saved: what a
# reopen after a crash has to walk at most.
_SAVE_INDEX_BYTES: Final = 4 * 1024 * 1024
_CURSORS_MAX: Final = 64
_OPEN_SEALED_MAX: Final = 4
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Log:
    """Made by `Log.open`. Attributes are to be read, and `settings` to be set."""

    def __init__(
        self, disk: Disk, path: str, settings: LogSettings, *, read_only: bool = False
    ) -> None:
        self.disk = disk
        self.path = path
        self.settings = settings
        self.read_only = read_only
        self.start_offset = 0
        self.end_offset = 0
        self.synced_end = 0
        self._mark = Mark(0, 0, 0)
        # Whether power loss can take the file `synced` away.
        self._mark_is_durable = False
        self._synced_file = SyncedFile(disk, path)
        self.epochs = Epochs(disk, path, read_only=read_only)
        self.all_segments: list[Segment] = []
        self._bases: list[int] = []
        self._active: Segment
        # Sealed segments that were not synced yet, and folders with new names.
        self._unsynced: list[Segment] = []
        self._directories: list[str] = []
        self._epochs_dirty = False
        self._tickets = 0
        self._cuts = 0
        # How often the list of sealed segments has changed, for compaction.
        self.changes = 0
        # Handles that a sync may still be working on.
        self._retired: list[File] = []
        # The end of the file is not the end of the log: a write failed.
        self._torn = False
        # Where the batch with this offset starts: the end of an earlier read.
        self._cursors: dict[int, tuple[Segment, int]] = {}
        self._open_sealed: list[Segment] = []

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        settings: LogSettings,
        now_ms: int,
        *,
        read_only: bool = False,
    ) -> Log:
        """Open the folder, make it if need be, and recover what a crash left.

        `read_only` changes nothing on disk and works beside a writer: the log
        is then as it was at this moment. CorruptLog when synced data is missing.
        """
        log = cls(disk, path, settings, read_only=read_only)
        names = disk.list(path)
        if not names and not read_only and not disk.exists(path):
            disk.make_directory(path)
        if not read_only:
            names = finish_compaction(disk, path, names)
        bases = [base for name in names if (base := parse_base_offset(name)) is not None]
        if "start" in names:
            log.start_offset = read_start(disk, path)
        mark = log._synced_file.read() if "synced" in names else None
        if mark is None:
            # Nothing says that the folder itself was ever synced.
            log._directories = _with_parents(path)
        bases, mark = log._without_stale(bases, mark)
        found = recover(disk, path, bases, mark, log.start_offset, read_only=read_only)
        log._adopt(found.bases, found.end_offset, found.end_position, found.mark)
        if "epochs" in names:
            log.epochs.load()
        if log.end_offset < log.start_offset and not read_only:
            # The start was moved over records that were not synced and are lost.
            log.reset_to(log.start_offset)
        log.epochs.cut(log.end_offset)
        for epoch, offset in found.epochs:
            log._begin_epoch(epoch, offset)
        return log

    def _without_stale(
        self, bases: list[int], mark: Mark | None
    ) -> tuple[list[int], Mark | None]:
        """Without the segments that lie wholly below the start, which are what
        an interrupted deletion left; their files are removed, and a mark in one
        of them moves up to what is left."""
        known = sorted({*bases, mark.base_offset}) if mark else bases
        first = known[max(0, bisect_right(known, self.start_offset) - 1)] if known else 0
        for base in bases:
            if base < first and not self.read_only:
                self._segment(base, first).remove()
        if mark is not None and mark.base_offset < first:
            mark = Mark(first, first, 0)
        return [base for base in bases if base >= first], mark

    def _adopt(self, bases: list[int], end: int, end_position: int, mark: Mark) -> None:
        segments = [self._segment(*pair, is_sealed=True) for pair in pairwise(bases)]
        self._active = self._segment(bases[-1], end, end_position)
        self.all_segments = [*segments, self._active]
        self._bases = bases
        self.start_offset = max(self.start_offset, bases[0])
        self.end_offset = end
        self.synced_end = mark.offset
        self._mark = mark
        if end > mark.offset:
            # It was read, so the system has it, but maybe only in memory.
            self._unsynced = [segment for segment in segments if segment.next_offset > mark.offset]
            self._directories = self._directories or [self.path]

    def _segment(
        self,
        base: int,
        next_offset: int,
        size_bytes: int | None = None,
        *,
        is_sealed: bool = False,
    ) -> Segment:
        return Segment(
            self.disk,
            self.path,
            base,
            next_offset,
            index_interval_bytes=self.settings.index_interval_bytes,
            size_bytes=size_bytes,
            read_only=self.read_only,
            is_sealed=is_sealed,
            on_opened=self._on_opened,
        )

    # Writing.

    def append(self, batches: bytearray, epoch: int, now_ms: int) -> tuple[int, int]:
        """Give the batches their offsets and this epoch, in place, and write
        them with one call. Returns the first offset and the next one.

        `batches` holds one or more checked batches, back to back. When anything
        fails, nothing has changed: the next append gets the same offsets.
        DiskFull when that is why.
        """
        first = self.end_offset
        return first, self._write(batches, first, epoch, now_ms)

    def append_as_is(self, batches: Buffer, now_ms: int = 0) -> None:
        """Write batches that have their offsets and epochs, as a follower does.
        They must continue this log: InvalidArgument when one starts below its
        end or lies in an earlier epoch. Gaps are what compaction left."""
        expected = self.end_offset
        epoch = self.epochs.latest
        position = 0
        begun: list[tuple[int, int]] = []
        try:
            while position < len(batches):
                header = read_header(batches, position)
                if header.base_offset < expected or header.leader_epoch < epoch:
                    raise InvalidArgument(
                        f"a batch at offset {header.base_offset} of epoch {header.leader_epoch} "
                        f"does not continue a log that ends at {expected} in epoch {epoch}"
                    )
                if header.leader_epoch > epoch:
                    epoch = header.leader_epoch
                    begun.append((epoch, header.base_offset))
                expected = header.next_offset
                position += header.size_bytes
        except CorruptBatch as error:
            raise InvalidArgument(str(error)) from error
        self._write(batches, expected, None, now_ms)
        for entry in begun:
            self._begin_epoch(*entry)

    def _write(self, batches: Buffer, first: int, epoch: int | None, now_ms: int) -> int:
        size = len(batches)
        active = self._active
        position = active.size_bytes
        settings = self.settings
        if self.read_only:
            raise ReadOnly(f"{self.path} is open for reading only")
        new_epoch = epoch is not None and epoch > self.epochs.latest
        try:
            if self._torn:
                active.file().truncate(position)
                self._torn = False
            if active.created_ms is None:
                self._begin_segment(now_ms)
            if position and (
                position + size > settings.segment_bytes
                or now_ms - (active.created_ms or 0) >= settings.segment_ms
                or first - active.base_offset > RELATIVE_OFFSET_MAX
            ):
                self.roll(now_ms)
                active = self._active
                self._begin_segment(now_ms)
            if settings.reserve:
                active.reserve(size, settings.segment_bytes)
            if new_epoch:
                assert epoch is not None
                self._begin_epoch(epoch, first)
            try:
                next_offset = active.append(batches, first, epoch)
            except OSError:
                if new_epoch:
                    self.epochs.undo_begin()
                self._torn = True
                self._cut_torn_end()
                raise
        except OSError as error:
            if error.errno in _FULL:
                raise DiskFull(f"{self.path}: {error.strerror}") from error
            raise
        self.end_offset = next_offset
        return next_offset

    def _cut_torn_end(self) -> None:
        # Whole batches of a failed append must not outlive it: after a crash they
        # would be taken for written. If this fails too, the next append repeats it.
        with contextlib.suppress(OSError):
            self._active.file().truncate(self._active.size_bytes)
            self._torn = False

    def _begin_segment(self, now_ms: int) -> None:
        """Open the active segment's file, and know its age."""
        active = self._active
        if active.size_bytes:
            # Its first record says how old it is, unless that lies in the future.
            first = active.first_timestamp_ms()
            active.created_ms = min(now_ms, first) if first > 0 else now_ms
            return
        active.file()
        active.created_ms = now_ms
        self._note_new_name()

    def _begin_epoch(self, epoch: int, offset: int) -> None:
        if epoch <= self.epochs.latest:
            return
        self.epochs.begin(epoch, offset)
        self._epochs_dirty = True
        self._note_new_name()

    def _note_new_name(self) -> None:
        # Always a new list, since a ticket in flight covers only the old one.
        self._directories = [*self._directories] or [self.path]

    def roll(self, now_ms: int) -> None:
        """Close the active segment; the next append starts a new one. Nothing
        happens when it is empty."""
        sealed = self._active
        if not sealed.size_bytes:
            return
        if not self._mark_is_durable:
            # From its second segment on, a log without a mark is a damaged one.
            self.pin_mark()
        if self._torn:
            sealed.file().truncate(sealed.size_bytes)
            self._torn = False
        sealed.seal()
        sealed.give_back_reserve()
        self._active = self._segment(self.end_offset, self.end_offset, 0)
        self._cursors.pop(self.end_offset, None)
        if self.end_offset > self.synced_end:
            self._unsynced.append(sealed)
        else:
            self._on_opened(sealed)
        self.all_segments.append(self._active)
        self._bases.append(self.end_offset)

    # Making it durable.

    def begin_sync(self) -> SyncTicket | None:
        """What has to be synced for everything written so far to be durable;
        None when it is."""
        if self.end_offset <= self.synced_end and not self._epochs_dirty:
            return None
        files = [segment.file() for segment in self._unsynced]
        active = self._active
        if active.size_bytes:
            files.append(active.file())
        if self._epochs_dirty and (epochs_file := self.epochs.file) is not None:
            files.append(epochs_file)
        ticket = SyncTicket(
            files,
            self._directories,
            self.end_offset,
            Mark(self.end_offset, active.base_offset, active.size_bytes),
            self._cuts,
            self.epochs.latest,
        )
        self._tickets += 1
        return ticket

    def on_synced(self, ticket: SyncTicket) -> None:
        """Everything in the ticket is on disk. The synced end moves up, and is
        noted where recovery will look for it; that note is not synced."""
        self._tickets -= 1
        if not self._tickets:
            self._close_retired()
        if ticket.cuts != self._cuts:
            return
        if ticket.directories is self._directories:
            self._directories = []
        if ticket.epoch == self.epochs.latest:
            self._epochs_dirty = False
        if ticket.end <= self.synced_end:
            return
        self.synced_end = ticket.end
        if self._unsynced:
            known = self._unsynced
            self._unsynced = [segment for segment in known if segment.next_offset > ticket.end]
            for segment in known[: len(known) - len(self._unsynced)]:
                self._on_opened(segment)
        self._mark = ticket.mark
        self._synced_file.write(ticket.mark)
        active = self._active
        if active.size_bytes - active.saved_bytes >= _SAVE_INDEX_BYTES:
            active.save_indexes()

    def pin_mark(self) -> None:
        """Make the mark durable, and let it name a segment that stays: before
        a segment goes away that an older mark might name."""
        mark = self._mark
        base = self._bases[max(0, bisect_right(self._bases, mark.offset) - 1)]
        if base != mark.base_offset:
            # It lay at the end of the segment before, or below what is left.
            mark = Mark(base, base, 0)
        self._mark = mark
        self._sync_names()
        self._synced_file.write_synced(mark)
        self._mark_is_durable = True

    def _sync_names(self) -> None:
        """A checkpoint is durable only if the way to it is."""
        for directory in self._directories:
            self.disk.sync_directory(directory)
        self._directories = []

    # Reading.

    def read(self, offset: int, max_bytes: int, end: int | None = None) -> Buffer:
        """Whole batches, the first of which holds `offset` or is the next that
        exists; at least one, even when it is larger than `max_bytes`, and none
        that starts at or above `end`. Empty when there is none.

        OffsetOutOfRange outside [start_offset, end_offset]; CorruptLog, with file
        and position, for rot.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is outside of {self.start_offset} to {self.end_offset}"
            )
        if end is None or end > self.end_offset:
            end = self.end_offset
        if offset >= end:
            return b""
        cursor = self._cursors.pop(offset, None)
        segment, position = self._locate(offset) if cursor is None else cursor
        data, position, next_offset = segment.read(position, max_bytes, end)
        if data:
            self._remember(next_offset, segment, position)
        return data

    def _locate(self, offset: int) -> tuple[Segment, int]:
        segment = self.all_segments[bisect_right(self._bases, offset) - 1]
        return segment, segment.find(offset)[0]

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        if position == segment.size_bytes and segment is not self._active:
            return
        cursors = self._cursors
        if len(cursors) >= _CURSORS_MAX:
            del cursors[next(iter(cursors))]
        cursors[offset] = (segment, position)

    def _on_opened(self, segment: Segment) -> None:
        """Keep few sealed segments open: there may be thousands of them."""
        if segment is self._active or segment in self._unsynced or segment in self._open_sealed:
            return
        self._open_sealed.append(segment)
        if len(self._open_sealed) > _OPEN_SEALED_MAX:
            self._retire(self._open_sealed.pop(0))

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record that is as old as
        `timestamp_ms` or younger; None when there is none."""
        return find_timestamp(self.all_segments, timestamp_ms, self.start_offset)

    def latest_timestamp(self) -> tuple[int, int] | None:
        """Offset and timestamp of the record with the largest timestamp, the
        first of them; None when there is no record."""
        return find_latest(self.all_segments, self.start_offset)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.all_segments)

    def segments(self) -> list[SegmentInfo]:
        return [segment.info() for segment in self.all_segments]

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The latest epoch at or below `epoch`, and where it ended; (-1, -1)
        when this log knows none so old."""
        return self.epochs.end_of(epoch, self.end_offset)

    def verify(self) -> Iterator[verify.Problem | verify.Progress]:
        """Read and check everything, in slices."""
        return verify.verify(self)

    # Making it shorter.

    def truncate_to(self, offset: int) -> None:
        """Drop the batch that holds `offset` and everything above. The end may
        be lower than `offset`, since batches are never split."""
        self._check_writable()
        if offset >= self.end_offset:
            return
        if offset < self.start_offset:
            raise OffsetOutOfRange(f"offset {offset} is below the start, {self.start_offset}")
        number = bisect_right(self._bases, offset) - 1
        segment = self.all_segments[number]
        position, end = segment.find_cut(offset)
        if end < self.start_offset:
            # The first batch that may be read goes, and part of it was deleted.
            self.reset_to(self.start_offset)
            return
        self._cuts += 1
        self.changes += 1
        self._cursors.clear()
        lower_cleaned(self.disk, self.path, end)
        if end < self.synced_end:
            # Lowered first, or the missing bytes would be taken for lost ones.
            self.synced_end = end
            self._mark = Mark(end, segment.base_offset, position)
            self._synced_file.write_synced(self._mark)
            self._mark_is_durable = True
        later = self.all_segments[number + 1 :]
        del self.all_segments[number + 1 :], self._bases[number + 1 :]
        for gone in reversed(later):
            self._forget(gone)
            gone.remove()
        self._forget(segment, keep_open=True)
        segment.cut(position, end)
        # Synced, or a stale batch could come back behind a new one.
        segment.file().sync()
        self.disk.sync_directory(self.path)
        segment.is_sealed = False
        self._active = segment
        self._torn = False
        self.end_offset = end
        self.epochs.cut(end)
        self._close_retired()

    def reset_to(self, offset: int) -> None:
        """Drop everything and continue at `offset`: for a follower that has
        nothing in common with its leader any more."""
        self._check_writable()
        self._sync_names()
        write_start(self.disk, self.path, offset)
        lower_cleaned(self.disk, self.path, offset)
        self._cuts += 1
        self.changes += 1
        self._cursors.clear()
        self._mark = Mark(offset, offset, 0)
        self._synced_file.write_synced(self._mark)
        self._mark_is_durable = True
        for gone in reversed(self.all_segments):
            self._forget(gone)
            gone.remove()
        self.disk.sync_directory(self.path)
        self._active = self._segment(offset, offset, 0)
        self.all_segments, self._bases = [self._active], [offset]
        self.start_offset = self.end_offset = self.synced_end = offset
        self._torn = False
        self.epochs.cut(offset)
        self._close_retired()

    def delete_before(self, offset: int) -> None:
        """Make `offset` the first that may be read, durably, and delete the
        segments that lie wholly below it."""
        self._check_writable()
        if offset > self.end_offset:
            raise OffsetOutOfRange(f"offset {offset} is above the end, {self.end_offset}")
        if offset <= self.start_offset:
            return
        if offset == self.end_offset:
            self.roll(0)
        self._move_start(offset)

    def expire(self, now_ms: int, keep_from: int) -> list[int]:
        """Delete the sealed segments that time or size retention gives up, from
        the old end, none that holds offsets at or above `keep_from`. Returns
        their base offsets."""
        self._check_writable()
        if retention.is_active_expired(self._active, self.settings, now_ms, keep_from):
            self.roll(now_ms)
        sealed = self.all_segments[:-1]
        count = retention.count_expired(
            sealed, self._active.size_bytes, self.settings, now_ms, keep_from
        )
        return self._delete_first(count)

    def release(self, below: int) -> list[int]:
        """Delete the sealed segments that end at or below `below`; returns their
        base offsets. For topics that keep messages until all groups are done."""
        self._check_writable()
        count = sum(segment.next_offset <= below for segment in self.all_segments[:-1])
        return self._delete_first(count)

    def _delete_first(self, count: int) -> list[int]:
        if not count:
            return []
        bases = self._bases[:count]
        self._move_start(max(self.start_offset, self._bases[count]))
        return bases

    def _move_start(self, offset: int) -> None:
        self._sync_names()
        write_start(self.disk, self.path, offset)
        self.start_offset = offset
        count = sum(segment.next_offset <= offset for segment in self.all_segments[:-1])
        if count:
            gone = self.all_segments[:count]
            del self.all_segments[:count], self._bases[:count]
            self.changes += 1
            self._cursors.clear()
            self.synced_end = max(self.synced_end, self._bases[0])
            self.pin_mark()
            for segment in gone:
                self._forget(segment)
                segment.remove()
        self.epochs.trim(offset)
        self._close_retired()

    def replace_segments(self, old: list[Segment], base: int, next_offset: int) -> None:
        """Compaction has put one file into the place of these neighbours."""
        first = self.all_segments.index(old[0])
        self.changes += 1
        self.all_segments[first : first + len(old)] = [
            self._segment(base, next_offset, is_sealed=True)
        ]
        self._bases = [segment.base_offset for segment in self.all_segments]
        self._cursors.clear()

    def forget_handles(self, segments: list[Segment]) -> None:
        for segment in segments:
            self._forget(segment)

    def compact(
        self, now_ms: int, clean_below: int, *, keys_max: int | None = None
    ) -> Generator[int, None, compaction.CompactionResult]:
        """Keep the last record of each key in the sealed segments that end at
        or below `clean_below`. Runs in slices: each step yields the bytes it
        went over, and the generator's value is the result. Other calls may be
        made between two steps."""
        self._check_writable()
        return compaction.compact(self, now_ms, clean_below, keys_max)

    # Handles.

    def _forget(self, segment: Segment, *, keep_open: bool = False) -> None:
        if segment in self._unsynced:
            self._unsynced.remove(segment)
        if segment in self._open_sealed:
            self._open_sealed.remove(segment)
        if not keep_open:
            self._retire(segment)

    def _retire(self, segment: Segment) -> None:
        file = segment.take_file()
        if file is None:
            return
        if self._tickets:
            self._retired.append(file)
        else:
            file.close()

    def _close_retired(self) -> None:
        if self._tickets:
            return
        for file in (*self._retired, *self.epochs.replaced):
            file.close()
        self._retired.clear()
        self.epochs.replaced.clear()

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnly(f"{self.path} is open for reading only")

    def close(self) -> None:
        """Save the index and close all files. Nothing is synced: what no
        ticket covered is recovered, or lost, as after a crash."""
        if not self.read_only and self._active.size_bytes:
            with contextlib.suppress(OSError):
                if self._torn:
                    self._cut_torn_end()
                self._active.save_indexes()
            self._active.give_back_reserve()
        self._tickets = 0
        for segment in self.all_segments:
            self._retire(segment)
        self._close_retired()
        self.epochs.close()
        self._synced_file.close()


def _with_parents(path: str) -> list[str]:
    """The folder and those above it, which have new names in them too."""
    found = [path]
    while path:
        path = posixpath.dirname(path)
        found.append(path)
    return found
