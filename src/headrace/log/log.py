"""The log: a partition's batches, in order, on a Disk.

    start_offset          synced_end      end_offset
    |                     |               |
    |  0.log  |  100.log  |      200.log  |          the last segment is active
    '------ readable -----'-- written ----'

`append` writes and returns; nothing is durable until a ticket from `begin_sync`
was synced and given to `on_synced`. Whoever calls must see to it that no two calls
run at once; only the files and folders of a ticket may be synced meanwhile.

Rejected: syncing in `append`. The caller syncs many logs in one round, in parallel
threads and without holding a lock; a log knows only itself. What is synced in here
is rare: what recovery found, and what must be on disk before something is cut.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Final

from headrace.core.errors import DiskFull, OffsetOutOfRange, ReadOnly
from headrace.core.ports import Buffer, Disk
from headrace.core.system_errors import is_full
from headrace.log import compaction, retention, verify
from headrace.log.aborted import AbortedIndex
from headrace.log.checkpoint import (
    CLEANED_NAME,
    Mark,
    lower_cleaned,
    make_folder,
    read_cleaned,
    read_start,
    sync_file,
    sync_folder,
    write_cleaned,
    write_start,
)
from headrace.log.durability import Durability
from headrace.log.epochs import Epochs, check_continues, has_gaps
from headrace.log.recovery import SWAP_SUFFIX, drop_stale, finish_compaction, recover
from headrace.log.segment import RELATIVE_OFFSET_MAX, SegmentInfo, parse_base_offset
from headrace.log.segment_list import SegmentList
from headrace.log.settings import LogSettings
from headrace.log.sync import SyncTicket
from headrace.log.timestamps import find_latest, find_timestamp, search

# How much may be written before the active segment's index is saved: what a
# reopen after a crash has to walk at most.
_SAVE_INDEX_BYTES: Final = 4 * 1024 * 1024


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
        self.epochs = Epochs(disk, path, read_only=read_only)
        self.durability = Durability(disk, path, self.epochs)
        self.segment_list = SegmentList(
            disk,
            path,
            self.durability,
            index_interval_bytes=settings.index_interval_bytes,
            read_only=read_only,
        )
        # What whoever writes transactions here has noted of the aborted ones.
        self.aborted = AbortedIndex(
            disk, path, partial(list, self.segment_list), read_only=read_only
        )
        # The end of the file is not the end of the log: a write failed.
        self._torn = False

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
            make_folder(disk, path)
        if not read_only:
            if CLEANED_NAME not in names and any(name.endswith(SWAP_SUFFIX) for name in names):
                log.note_gaps()
            names = finish_compaction(disk, path, names)
        bases = [base for name in names if (base := parse_base_offset(name)) is not None]
        if "start" in names:
            log.start_offset = read_start(disk, path)
        log.segment_list.is_dense = CLEANED_NAME not in names
        mark = log.durability.read_mark(exists="synced" in names)
        bases, mark = drop_stale(disk, path, bases, mark, log.start_offset, read_only=read_only)
        found = recover(disk, path, bases, mark, log.start_offset, read_only=read_only)
        log.segment_list.adopt(found.bases, found.end_offset, found.end_position)
        log.durability.adopt(found.mark, log.segment_list.sealed, found.end_offset)
        log.start_offset = max(log.start_offset, found.bases[0])
        log.end_offset = found.end_offset
        if "epochs" in names:
            log.epochs.load()
        if log.end_offset < log.start_offset and not read_only:
            # The start was moved over records that were not synced and are lost.
            log.reset_to(log.start_offset)
        log.epochs.cut(log.end_offset)
        if log.epochs.began_from(found.mark.offset) and not read_only:
            # The file was read, but it may never have been synced.
            log.epochs.reopen()
            log.durability.note_epoch()
        for epoch, offset in found.epochs:
            log._begin_epoch(epoch, offset)
        if not read_only and log.end_offset > log.synced_end:
            # It was found, so whoever reads it acts on it: it must last.
            log.sync_now()
        return log

    def sync_now(self) -> None:
        """Everything written so far is on disk when this returns. For where
        nobody is served yet; SyncFailed when the disk refuses."""
        ticket = self.begin_sync()
        if ticket is None:
            return
        for directory in ticket.directories:
            sync_folder(self.disk, directory)
        for file in ticket.files:
            sync_file(file, self.path)
        self.on_synced(ticket)

    @property
    def synced_end(self) -> int:
        """Everything below is known to be on disk."""
        return self.durability.mark.offset

    def note_gaps(self) -> None:
        """From now on, and durably, a missing offset is no sign of rot."""
        if self.segment_list.is_dense:
            self.durability.sync_names()
            write_cleaned(self.disk, self.path, read_cleaned(self.disk, self.path))
            self.segment_list.allow_gaps()

    # Writing.

    def append(self, batches: bytearray | memoryview, epoch: int, now_ms: int) -> tuple[int, int]:
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
        self._check_writable()
        end, begun = check_continues(batches, self.end_offset, self.epochs.latest)
        if has_gaps(batches, self.end_offset):
            self.note_gaps()
        self._write(batches, end, None, now_ms)
        for entry in begun:
            self._begin_epoch(*entry)

    def _write(self, batches: Buffer, first: int, epoch: int | None, now_ms: int) -> int:
        size = len(batches)
        active = self.segment_list.active
        position = active.size_bytes
        settings = self.settings
        self._check_writable()
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
                active = self.segment_list.active
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
            if is_full(error):
                raise DiskFull(f"{self.path}: {error.strerror}") from error
            raise
        self.end_offset = next_offset
        return next_offset

    def _cut_torn_end(self) -> None:
        # Whole batches of a failed append must not outlive it: after a crash they
        # would be taken for written. If this fails too, the next append repeats it.
        with contextlib.suppress(OSError):
            active = self.segment_list.active
            active.file().truncate(active.size_bytes)
            self._torn = False

    def _begin_segment(self, now_ms: int) -> None:
        """Open the active segment's file, and know its age."""
        active = self.segment_list.active
        if active.size_bytes:
            # Its first record says how old it is, unless that lies in the future.
            first = active.first_timestamp_ms()
            active.created_ms = min(now_ms, first) if first > 0 else now_ms
            return
        active.file()
        active.created_ms = now_ms
        self.durability.note_new_name()

    def _begin_epoch(self, epoch: int, offset: int) -> None:
        if epoch <= self.epochs.latest:
            return
        self.epochs.begin(epoch, offset)
        self.durability.note_epoch()

    def roll(self, now_ms: int) -> None:
        """Close the active segment; the next append starts a new one. Nothing
        happens when it is empty."""
        sealed = self.segment_list.active
        if not sealed.size_bytes:
            return
        if not self.durability.is_mark_durable:
            # From its second segment on, a log without a mark is a damaged one.
            self.durability.pin(self.segment_list.bases)
        if self._torn:
            sealed.file().truncate(sealed.size_bytes)
            self._torn = False
        sealed.seal()
        sealed.give_back_reserve()
        self.segment_list.start_new(self.end_offset)
        if self.end_offset > self.synced_end:
            self.durability.unsynced.append(sealed)
        else:
            self.segment_list.note_open(sealed)

    # Making it durable.

    def begin_sync(self) -> SyncTicket | None:
        """What has to be synced for everything written so far to be durable;
        None when it is."""
        return self.durability.begin_sync(self.segment_list.active)

    def on_synced(self, ticket: SyncTicket) -> None:
        """Everything in the ticket is on disk. The synced end moves up, and is
        noted where recovery will look for it; that note is not synced."""
        for segment in self.durability.on_synced(ticket):
            self.segment_list.note_open(segment)
        active = self.segment_list.active
        if active.size_bytes - active.saved_bytes >= _SAVE_INDEX_BYTES:
            # It saves work at the next open, and a full disk may prevent it.
            with contextlib.suppress(OSError):
                active.save_indexes()

    # Reading.

    def read(self, offset: int, max_bytes: int, end: int | None = None) -> Buffer:
        return self.read_to(offset, max_bytes, end)[0]

    def read_to(self, offset: int, max_bytes: int, end: int | None = None) -> tuple[Buffer, int]:
        """Whole batches, the first of which holds `offset` or is the next that
        exists; at least one, even when it is larger than `max_bytes`, and none
        that starts at or above `end`. Empty when there is none. And the offset behind.

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
            return b"", offset
        segments = self.segment_list
        segment, position = segments.take_cursor(offset)
        data, position, next_offset = segment.read(position, max_bytes, end, offset)
        if data:
            segments.put_cursor(next_offset, segment, position)
        return data, next_offset

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record that is as old as
        `timestamp_ms` or younger; None when there is none."""
        return find_timestamp(list(self.segment_list), timestamp_ms, self.start_offset)

    def latest_timestamp(self) -> tuple[int, int] | None:
        """Offset and timestamp of the record with the largest timestamp, the
        first of them; None when there is no record."""
        return find_latest(list(self.segment_list), self.start_offset)

    def time_search(self, timestamp_ms: int | None) -> Callable[[], tuple[int, int] | None]:
        """One of the two above, the latter for None, as a call to be made anywhere:
        it may go over the whole log, with files of its own."""
        twins = [segment.twin() for segment in self.segment_list if segment.size_bytes]
        return partial(search, twins, timestamp_ms, self.start_offset)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segment_list)

    def segments(self) -> list[SegmentInfo]:
        return [segment.info() for segment in self.segment_list]

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
        number = self.segment_list.number_of(offset)
        segment = self.segment_list[number]
        position, end = segment.find_cut(offset)
        if end < self.start_offset:
            # The first batch that may be read goes, and part of it was deleted.
            self.reset_to(self.start_offset)
            return
        lower_cleaned(self.disk, self.path, end)
        self.aborted.truncate_to(end)
        self.durability.lower(Mark(end, segment.base_offset, position))
        self.segment_list.cut_behind(number)
        segment.cut(position, end)
        # Synced, or a stale batch could come back behind a new one.
        sync_file(segment.file(), segment.log_path)
        sync_folder(self.disk, self.path)
        self._torn = False
        self.end_offset = end
        self.epochs.cut(end)
        self.durability.close_retired()

    def reset_to(self, offset: int) -> None:
        """Drop everything and continue at `offset`: for a follower that has
        nothing in common with its leader any more."""
        self._check_writable()
        self.durability.sync_names()
        write_start(self.disk, self.path, offset)
        lower_cleaned(self.disk, self.path, offset)
        self.aborted.forget_below(self.end_offset + 1)
        self.durability.restart(Mark(offset, offset, 0))
        self.segment_list.restart(offset)
        self.start_offset = self.end_offset = offset
        self._torn = False
        self.epochs.cut(offset)
        self.durability.close_retired()

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
        active = self.segment_list.active
        if retention.is_active_expired(active, self.settings, now_ms, keep_from):
            self.roll(now_ms)
        count = retention.count_expired(
            self.segment_list.sealed,
            self.segment_list.active.size_bytes,
            self.settings,
            now_ms,
            keep_from,
        )
        return self._delete_first(count)

    def expirable_end(self, now_ms: int) -> int:
        """Up to where `expire` would delete if nothing were kept."""
        segments, settings, end = self.segment_list, self.settings, self.end_offset
        if retention.is_active_expired(segments.active, settings, now_ms, end):
            return end
        count = retention.count_expired(
            segments.sealed, segments.active.size_bytes, settings, now_ms, end
        )
        return max(self.start_offset, segments.sealed[count - 1].next_offset if count else 0)

    def release(self, below: int) -> list[int]:
        """Delete the sealed segments that end at or below `below`; returns their
        base offsets. For topics that keep messages until all groups are done."""
        self._check_writable()
        count = sum(segment.next_offset <= below for segment in self.segment_list.sealed)
        return self._delete_first(count)

    def _delete_first(self, count: int) -> list[int]:
        if not count:
            return []
        bases = self.segment_list.bases[:count]
        self._move_start(max(self.start_offset, self.segment_list.bases[count]))
        return bases

    def _move_start(self, offset: int) -> None:
        segments = self.segment_list
        self.durability.sync_names()
        write_start(self.disk, self.path, offset)
        self.start_offset = offset
        count = sum(segment.next_offset <= offset for segment in segments.sealed)
        if count:
            gone = segments.drop_first(count)
            self.aborted.forget_below(segments.bases[0])
            self.durability.pin(segments.bases)
            for segment in gone:
                segments.forget(segment)
                segment.remove()
        self.epochs.trim(offset)
        self.durability.close_retired()

    def compact(
        self, now_ms: int, clean_below: int, *, keys_max: int | None = None
    ) -> Generator[int, None, compaction.CompactionResult]:
        """Keep the last record of each key in the sealed segments that end at
        or below `clean_below`. Runs in slices: each step yields the bytes it
        went over, and the generator's value is the result. Other calls may be
        made between two steps."""
        return compaction.inline(self.compaction(now_ms, clean_below, keys_max=keys_max))

    def compaction(
        self, now_ms: int, clean_below: int, *, keys_max: int | None = None
    ) -> compaction.Pass:
        """The same for who does the steps elsewhere: each is yielded as a call to
        be made, whose answer is sent back. While one is being made, the log may be
        used as ever."""
        self._check_writable()
        return compaction.compact(self, now_ms, clean_below, keys_max)

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnly(f"{self.path} is open for reading only")

    def close(self) -> None:
        """Save the index and close all files. Nothing is synced: what no
        ticket covered is recovered, or lost, as after a crash."""
        active = self.segment_list.active
        if not self.read_only and active.size_bytes:
            with contextlib.suppress(OSError):
                if self._torn:
                    self._cut_torn_end()
                active.save_indexes()
            active.give_back_reserve()
        self.segment_list.close()
        self.epochs.close()
        self.durability.close()
