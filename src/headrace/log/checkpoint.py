"""Small checksummed files beside the segments.

    start, cleaned   replaced whole: write <name>.tmp, sync, rename, sync the folder
    synced           two slots, overwritten in turn and mostly not synced

`synced` is written after every sync of the log, so it must cost one write and
nothing else. It may be old after a loss of power, and one slot may be torn, but it
is never ahead of what is on disk.

Rejected: deriving the synced end from the segments at open. A torn batch and a
rotten one look alike; only a number from before the crash tells them apart.
"""

from __future__ import annotations

import contextlib
import posixpath
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.core.errors import CorruptLog, DiskFull, SyncFailed
from headrace.core.ports import Disk, File
from headrace.core.system_errors import is_full

SYNCED_NAME: Final = "synced"
START_NAME: Final = "start"
CLEANED_NAME: Final = "cleaned"
TEMPORARY_SUFFIX: Final = ".tmp"

_SLOT: Final = struct.Struct(">4sQqqQ")
_SLOT_MAGIC: Final = b"HRSE"
_SLOT_DISTANCE: Final = 4096
_START: Final = struct.Struct(">4sq")
_START_MAGIC: Final = b"HRST"
_CLEANED: Final = struct.Struct(">4sqq")
_CLEANED_MAGIC: Final = b"HRCL"
_CRC: Final = struct.Struct(">I")

NEVER_MS: Final = 2**63 - 1


class Mark(NamedTuple):
    """The synced end, and the place in the files where it lies."""

    offset: int
    base_offset: int
    position: int


class Cleaned(NamedTuple):
    """How far compaction got, and when the next tombstone may go."""

    offset: int
    horizon_ms: int


class SyncedFile:
    """The open file `synced`. Created when it is first written."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = f"{path}/{SYNCED_NAME}"
        self._folder = path
        self._file: File | None = None
        self._sequence = 0

    def read(self) -> Mark | None:
        """None when there is no slot that can be believed."""
        try:
            file = self._disk.open(self._path, read_only=True)
        except FileNotFoundError:
            return None
        with contextlib.closing(file):
            content = file.read(_SLOT_DISTANCE + _SLOT.size + _CRC.size, 0)
        best: Mark | None = None
        for start in (0, _SLOT_DISTANCE):
            fields = _unsealed(_SLOT, _SLOT_MAGIC, content[start : start + _SLOT.size + _CRC.size])
            if fields is not None and fields[0] > self._sequence:
                self._sequence = fields[0]
                best = Mark(*fields[1:])
        return best

    def write(self, mark: Mark) -> None:
        """Overwrites the older slot. Not synced."""
        if self._file is None:
            self._file = self._disk.open(self._path, create=True, note=True)
        self._write_slot(self._file, mark)

    def _write_slot(self, file: File, mark: Mark) -> None:
        self._sequence += 1
        slot = _sealed(_SLOT.pack(_SLOT_MAGIC, self._sequence, *mark))
        file.write(slot, (self._sequence & 1) * _SLOT_DISTANCE)

    def write_synced(self, mark: Mark) -> None:
        """When this returns, power loss brings back this mark or a later one."""
        # By a handle that is no note: now an error has to be heard of.
        with _needing_room(self._path):
            file = self._disk.open(self._path, create=True)
        with contextlib.closing(file):
            with _needing_room(self._path):
                self._write_slot(file, mark)
            sync_file(file, self._path)
        sync_folder(self._disk, self._folder)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read_start(disk: Disk, path: str) -> int:
    fields = _read_small(disk, f"{path}/{START_NAME}", _START, _START_MAGIC)
    return int(fields[0]) if fields is not None else 0


def write_start(disk: Disk, path: str, offset: int) -> None:
    replace_file(disk, path, START_NAME, _sealed(_START.pack(_START_MAGIC, offset)))


def read_cleaned(disk: Disk, path: str) -> Cleaned:
    fields = _read_small(disk, f"{path}/{CLEANED_NAME}", _CLEANED, _CLEANED_MAGIC)
    return Cleaned(*fields) if fields is not None else Cleaned(0, NEVER_MS)


def write_cleaned(disk: Disk, path: str, cleaned: Cleaned) -> None:
    replace_file(disk, path, CLEANED_NAME, _sealed(_CLEANED.pack(_CLEANED_MAGIC, *cleaned)))


def lower_cleaned(disk: Disk, path: str, end: int) -> None:
    """The log is cut to `end`: what will come there is not compacted."""
    cleaned = read_cleaned(disk, path)
    if cleaned.offset > end:
        write_cleaned(disk, path, cleaned._replace(offset=end))


@contextlib.contextmanager
def _needing_room(path: str) -> Iterator[None]:
    """DiskFull when there is none."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise DiskFull(f"{path}: {error.strerror}") from error
        raise


def make_folder(disk: Disk, path: str) -> None:
    """With its parents; fine when it exists. DiskFull when there is no room."""
    with _needing_room(path):
        disk.make_directory(path)


def replace_file(disk: Disk, path: str, name: str, content: bytes) -> None:
    """The file has the old content or the new, whatever happens."""
    target = posixpath.join(path, name)
    temporary = target + TEMPORARY_SUFFIX
    with _needing_room(temporary):
        file = disk.open(temporary, create=True)
        with contextlib.closing(file):
            file.truncate(0)
            file.write(content, 0)
            sync_file(file, temporary)
    disk.rename(temporary, target)
    sync_folder(disk, path)


def sync_file(file: File, path: str) -> None:
    """Sync or raise SyncFailed, which nobody takes for a write to be repeated:
    the system may have dropped the pages that it could not write."""
    try:
        file.sync()
    except OSError as error:
        raise _sync_failed(path, error) from error


def sync_folder(disk: Disk, path: str) -> None:
    """The same for the names in a folder."""
    try:
        disk.sync_directory(path)
    except OSError as error:
        raise _sync_failed(path, error) from error


def _sync_failed(path: str, error: OSError) -> SyncFailed:
    return SyncFailed(
        f"{path or 'the directory'}: the disk refused to sync ({error.strerror}); check the "
        "disk and open the directory again"
    )


def _read_small(
    disk: Disk, path: str, layout: struct.Struct, magic: bytes
) -> tuple[int, ...] | None:
    """None when there is no such file. It was replaced as a whole, so one that
    fails its checksum is rot."""
    try:
        file = disk.open(path, read_only=True)
    except FileNotFoundError:
        return None
    with contextlib.closing(file):
        content = file.read(layout.size + _CRC.size + 1, 0)
    fields = _unsealed(layout, magic, content)
    if fields is None:
        raise CorruptLog(f"{path} at byte 0: not a checkpoint, or its checksum is wrong")
    return fields


def _sealed(content: bytes) -> bytes:
    return content + _CRC.pack(crc32c(content))


def _unsealed(layout: struct.Struct, magic: bytes, content: bytes) -> tuple[int, ...] | None:
    if len(content) != layout.size + _CRC.size or content != _sealed(content[: layout.size]):
        return None
    fields = layout.unpack_from(content)
    return fields[1:] if fields[0] == magic else None
