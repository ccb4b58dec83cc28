"""What of a log is known to be on disk, and what a sync has to cover.

    appended   |=====================================|
    in flight  |===========================|             a ticket's files
    synced     |===============|                          `mark`, written to `synced`

Handles that are given up while a ticket is in flight stay open until it is done:
a thread may be about to sync one, and its number must not come to mean another
file.

Rejected: one ticket at a time. A sync takes longer than many appends, and the next
round may start before the last one was reported.
"""

from __future__ import annotations

import contextlib
import posixpath
from bisect import bisect_right

from headrace.core.ports import Disk, File
from headrace.log.checkpoint import Mark, SyncedFile, sync_folder
from headrace.log.epochs import Epochs
from headrace.log.segment import Segment
from headrace.log.sync import SyncTicket


class Durability:
    def __init__(self, disk: Disk, path: str, epochs: Epochs) -> None:
        self._disk = disk
        self._path = path
        self._epochs = epochs
        self._file = SyncedFile(disk, path)
        self.mark = Mark(0, 0, 0)
        # Whether the file `synced` itself is sure to survive a loss of power.
        self.is_mark_durable = False
        # Sealed segments that were not synced yet, in order.
        self.unsynced: list[Segment] = []
        self._directories: list[str] = []
        self._epochs_dirty = False
        self._tickets = 0
        self._cuts = 0
        self._retired: list[File] = []

    def read_mark(self, *, exists: bool) -> Mark | None:
        """The mark of an earlier run. Without one, nothing says that the folder
        itself was ever synced."""
        mark = self._file.read() if exists else None
        if mark is None:
            self._directories = _with_parents(self._path)
        return mark

    def adopt(self, mark: Mark, sealed: list[Segment], end: int) -> None:
        """Begin with a recovered log. What lies above the mark was read, so the
        system has it, but maybe only in memory."""
        self.mark = mark
        if end > mark.offset:
            self.unsynced = [segment for segment in sealed if segment.next_offset > mark.offset]
            self.note_new_name()

    # What became dirty.

    def note_new_name(self) -> None:
        # Always a new list, since a ticket in flight covers only the old one.
        self._directories = [*self._directories] or [self._path]

    def note_epoch(self) -> None:
        self._epochs_dirty = True
        self.note_new_name()

    # A sync.

    def begin_sync(self, active: Segment) -> SyncTicket | None:
        end = active.next_offset
        if end <= self.mark.offset and not self._epochs_dirty:
            return None
        files = [segment.file() for segment in self.unsynced]
        if active.size_bytes:
            files.append(active.file())
        if self._epochs_dirty and self._epochs.file is not None:
            files.append(self._epochs.file)
        self._tickets += 1
        return SyncTicket(
            files,
            self._directories,
            end,
            Mark(end, active.base_offset, active.size_bytes),
            self._cuts,
            self._epochs.latest,
        )

    def on_synced(self, ticket: SyncTicket) -> list[Segment]:
        """Moves the mark up; returns the sealed segments that are synced now."""
        self._tickets -= 1
        self.close_retired()
        if ticket.cuts != self._cuts:
            return []
        if ticket.directories is self._directories:
            self._directories = []
        if ticket.epoch == self._epochs.latest:
            self._epochs_dirty = False
        if ticket.end <= self.mark.offset:
            return []
        self.mark = ticket.mark
        # The note saves work at the next open; on a full disk there is none.
        with contextlib.suppress(OSError):
            self._file.write(ticket.mark)
        known = self.unsynced
        if not known:
            return []
        self.unsynced = [segment for segment in known if segment.next_offset > ticket.end]
        return known[: len(known) - len(self.unsynced)]

    # Changes of the mark that must not be lost.

    def pin(self, bases: list[int]) -> None:
        """Make the mark durable, and let it name one of these segments: before
        another goes away that an older mark might name."""
        mark = self.mark
        base = bases[max(0, bisect_right(bases, mark.offset) - 1)]
        if base != mark.base_offset:
            # It lay at the end of the segment before, or below what is left.
            mark = Mark(base, base, 0)
        self._write_synced(mark)

    def lower(self, mark: Mark) -> None:
        """The log is about to be cut here. Tickets in flight are void, and the
        mark comes down first: or missing bytes would be taken for lost ones."""
        self._cuts += 1
        if mark.offset < self.mark.offset:
            self._write_synced(mark)

    def restart(self, mark: Mark) -> None:
        """The log is about to be emptied, and to go on from here."""
        self._cuts += 1
        self._write_synced(mark)

    def _write_synced(self, mark: Mark) -> None:
        self.sync_names()
        self.mark = mark
        self._file.write_synced(mark)
        self.is_mark_durable = True

    def sync_names(self) -> None:
        """A checkpoint is durable only if the way to it is."""
        for directory in self._directories:
            sync_folder(self._disk, directory)
        self._directories = []

    # Handles.

    def retire(self, file: File | None) -> None:
        """Close it, now or when no sync can be at work on it."""
        if file is not None:
            self._retired.append(file)
            self.close_retired()

    def close_retired(self) -> None:
        if self._tickets:
            return
        for file in (*self._retired, *self._epochs.replaced):
            file.close()
        self._retired.clear()
        self._epochs.replaced.clear()

    def close(self) -> None:
        self._tickets = 0
        self.close_retired()
        self._file.close()


def _with_parents(path: str) -> list[str]:
    """The folder and those above it, which may have new names in them too."""
    found = [path]
    while path:
        path = posixpath.dirname(path)
        found.append(path)
    return found
