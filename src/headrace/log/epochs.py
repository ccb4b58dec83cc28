"""The epoch checkpoint: where each leader's reign began in this log.

    epochs    u32 epoch | i64 first offset | u32 crc     16 bytes, appended

Divergence between replicas is found by comparing these lists, so the file must
be right for everything below the synced end. An appended entry joins the sync of
the batches that it speaks of; above the synced end the batch headers say the same
and recovery puts back what was lost.

Rejected: replacing the file for each new epoch. That is two syncs before the
first batch of every reign, on ten thousand partitions at once after a restart.
"""

from __future__ import annotations

import contextlib
import struct
from typing import Final

from crc32c import crc32c

from headrace.core.errors import CorruptBatch, InvalidArgument
from headrace.core.ports import Buffer, Disk, File
from headrace.log.checkpoint import replace_file
from headrace.record.batch import split_batches

EPOCHS_NAME: Final = "epochs"
_ENTRY: Final = struct.Struct(">IqI")
_CHECKED: Final = struct.Struct(">Iq")


class Epochs:
    """Ascending (epoch, first offset) pairs."""

    def __init__(self, disk: Disk, path: str, *, read_only: bool) -> None:
        self._disk = disk
        self._path = path
        self._read_only = read_only
        # Open from the first change on; None when there was none since the file
        # was replaced.
        self.file: File | None = None
        # Handles of replaced files. A sync may still be at work on one, so the
        # log closes them when none is.
        self.replaced: list[File] = []
        self.entries: list[tuple[int, int]] = []
        # The latest epoch as a plain attribute, for the comparison in each append.
        self.latest = -1

    def load(self) -> None:
        try:
            file = self._disk.open(f"{self._path}/{EPOCHS_NAME}", read_only=True)
        except FileNotFoundError:
            return
        with contextlib.closing(file):
            content = file.read(file.size(), 0)
        whole = len(content) - len(content) % _ENTRY.size
        for epoch, offset, crc in _ENTRY.iter_unpack(content[:whole]):
            if crc != crc32c(_CHECKED.pack(epoch, offset)) or epoch <= self.latest:
                break
            self.entries.append((epoch, offset))
            self.latest = epoch

    def began_from(self, offset: int) -> bool:
        """Whether an epoch began at `offset` or above."""
        return bool(self.entries) and self.entries[-1][1] >= offset

    def reopen(self) -> None:
        """Have `file` ready for a sync of what an earlier run wrote."""
        if self.file is None:
            self.file = self._disk.open(f"{self._path}/{EPOCHS_NAME}")

    def begin(self, epoch: int, offset: int) -> None:
        """Note the first offset of a later epoch. `file` must be synced together
        with that offset's batch."""
        if not self._read_only:
            if self.file is None:
                self.file = self._disk.open(f"{self._path}/{EPOCHS_NAME}", create=True)
            self.file.write(_encode(epoch, offset), len(self.entries) * _ENTRY.size)
        self.entries.append((epoch, offset))
        self.latest = epoch

    def undo_begin(self) -> None:
        """The first batch of the latest epoch could not be written."""
        self.entries.pop()
        if self.file is not None:
            # If this fails too, the next epoch, which is no lower, overwrites it.
            with contextlib.suppress(OSError):
                self.file.truncate(len(self.entries) * _ENTRY.size)
        self.latest = self.entries[-1][0] if self.entries else -1

    def cut(self, end: int) -> None:
        """Forget the epochs that began at or above `end`."""
        kept = [entry for entry in self.entries if entry[1] < end]
        if len(kept) < len(self.entries):
            self._replace(kept)

    def trim(self, start: int) -> None:
        """Forget the epochs that ended at or below `start`."""
        first = 0
        while first + 1 < len(self.entries) and self.entries[first + 1][1] <= start:
            first += 1
        if first:
            self._replace(self.entries[first:])

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The latest epoch at or below `epoch`, and the offset where it ended;
        (-1, -1) when this log has none so old."""
        found = -1
        end = log_end
        for known, offset in self.entries:
            if known > epoch:
                end = offset
                break
            found = known
        return (found, end) if found >= 0 else (-1, -1)

    def epoch_at(self, offset: int) -> int | None:
        """The epoch in which this offset was written, if that is known."""
        found = None
        for epoch, first in self.entries:
            if first > offset:
                break
            found = epoch
        return found

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        self.entries = entries
        self.latest = entries[-1][0] if entries else -1
        if not self._read_only:
            if self.file is not None:
                self.replaced.append(self.file)
                self.file = None
            content = b"".join(_encode(*entry) for entry in entries)
            replace_file(self._disk, self._path, EPOCHS_NAME, content)


def _encode(epoch: int, offset: int) -> bytes:
    return _ENTRY.pack(epoch, offset, crc32c(_CHECKED.pack(epoch, offset)))


def check_continues(batches: Buffer, end: int, epoch: int) -> tuple[int, list[tuple[int, int]]]:
    """Whether these batches may follow a log that ends at `end` in `epoch`:
    the new end and the epochs that begin in them. InvalidArgument if not."""
    begun: list[tuple[int, int]] = []
    try:
        for _, header in split_batches(batches):
            if header.base_offset < end or header.leader_epoch < epoch:
                raise InvalidArgument(
                    f"a batch at offset {header.base_offset} of epoch {header.leader_epoch} "
                    f"does not continue a log that ends at {end} in epoch {epoch}"
                )
            if header.leader_epoch > epoch:
                epoch = header.leader_epoch
                begun.append((epoch, header.base_offset))
            end = header.next_offset
    except CorruptBatch as error:
        raise InvalidArgument(str(error)) from error
    return end, begun


def has_gaps(batches: Buffer, end: int) -> bool:
    """Whether an offset is missing from `end` on."""
    for _, header in split_batches(batches):
        if header.base_offset != end or header.count != header.last_offset_delta + 1:
            return True
        end = header.next_offset
    return False
