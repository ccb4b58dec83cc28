"""A disk that loses what was not synced, fills up and fails, on demand.

It behaves like the memory disk until `crash`, which makes the disk that a machine
could find after a loss of power:

    content     synced bytes, plus any of the unsynced page versions
    size        as synced, or as after any later write or truncation
    names       as synced, plus any of the unsynced creations, renames, removals

`choose` decides each time which of the possible states survived, so a seeded
random.Random explores them and a test can name the one it means.

    disk = FaultDisk()
    disk.stop_at = 17                      # PowerLoss at the 17th operation
    ...
    after = disk.crash(random.Random(4))   # a FaultDisk again, without faults

Rejected: dropping everything that was not synced. The hard case is the disk that
kept the second half of a write and lost the first.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from headrace.core.ports import Buffer, File
from headrace.platform.memory_disk import MemoryContent, MemoryDisk, MemoryFile, checked_path

PAGE_BYTES: Final = 4096
# Older versions of one page than this are forgotten.
VERSIONS_MAX: Final = 8

# Of this many possible states, oldest first, which one survived?
Choose = Callable[[int], int]
OnOperation = Callable[[int, str, str], None]


class PowerLoss(BaseException):
    """The machine is off. Nothing can be done on this disk but `crash`, so nothing that
    handles failures of a disk may take it for one."""


class FaultContent(MemoryContent):
    """The bytes as programs see them, and what the disk may have of them."""

    __slots__ = ("durable", "sizes", "versions")

    def __init__(self, data: bytes = b"") -> None:
        super().__init__(data)
        self.durable = bytes(data)
        self.sizes: list[int] = []
        self.versions: dict[int, list[bytes]] = {}

    def note_write(self, position: int, length: int) -> None:
        for page in range(position // PAGE_BYTES, (position + length - 1) // PAGE_BYTES + 1):
            versions = self.versions.setdefault(page, [])
            versions.append(bytes(self.data[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]))
            if len(versions) > VERSIONS_MAX:
                del versions[VERSIONS_MAX // 2]
        self.sizes.append(len(self.data))

    def note_truncate(self, size: int) -> None:
        for page in [page for page in self.versions if (page + 1) * PAGE_BYTES > size]:
            del self.versions[page]
        self.sizes.append(size)
        if size % PAGE_BYTES:
            self.note_write(size - 1, 1)

    def note_sync(self) -> None:
        self.durable = bytes(self.data)
        self.sizes.clear()
        self.versions.clear()

    def after_crash(self, choose: Choose) -> bytes:
        sizes = [len(self.durable), *self.sizes]
        size = sizes[choose(len(sizes))]
        found = bytearray(self.durable[:size])
        found += bytes(size - len(found))
        for page, versions in sorted(self.versions.items()):
            survivor = choose(len(versions) + 1)
            if survivor:
                start = page * PAGE_BYTES
                content = versions[survivor - 1][: max(0, size - start)]
                found[start : start + len(content)] = content
        return bytes(found)


class FaultFile(MemoryFile):
    def __init__(self, disk: FaultDisk, path: str, content: FaultContent, read_only: bool) -> None:
        super().__init__(path, content, read_only)
        self._disk = disk
        self._content = content

    def read(self, length: int, position: int) -> bytes:
        self._disk.check_power()
        return super().read(length, position)

    def write(self, data: Buffer, position: int) -> None:
        self._check(writing=True)
        self._disk.begin("write", self.path)
        room = self._disk.take_room(max(0, position + len(data) - len(self.content.data)))
        if room is not None:
            # A full disk takes what fits, and then refuses.
            data = memoryview(data)[: max(0, len(self.content.data) + room - position)]
        if len(data):
            super().write(data, position)
            self._content.note_write(position, len(data))
        if room is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def write_parts(self, parts: Sequence[Buffer], position: int) -> None:
        self.write(b"".join(parts), position)

    def truncate(self, size: int) -> None:
        self._check(writing=True)
        self._disk.begin("truncate", self.path)
        super().truncate(size)
        self._content.note_truncate(size)

    def sync(self) -> None:
        super().sync()
        self._disk.begin("sync", self.path)
        if self._disk.fail_syncs:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        self._content.note_sync()


@dataclass
class _Change:
    """A change of names that no sync_directory has covered yet."""

    folder: str
    removed: str | None
    added: str | None
    content: FaultContent | None = field(default=None, repr=False)


class FaultDisk(MemoryDisk):
    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        # The operation, counted from 1, before which the power goes.
        self.stop_at: int | None = None
        # Told (count, name, path) before each operation; may raise PowerLoss.
        self.on_operation: OnOperation | None = None
        self.fail_syncs = False
        self._off = False
        self._room_bytes: int | None = None
        self._durable_names: dict[str, FaultContent] = {}
        self._durable_folders: set[str] = {""}
        self._changes: list[_Change] = []

    def fail_writes_after(self, room_bytes: int | None) -> None:
        """Files may grow by this much in total before the disk is full; None
        empties it again."""
        self._room_bytes = room_bytes

    # The disk, with its faults.

    def make_directory(self, path: str) -> None:
        path = checked_path(path)
        missing = []
        while path not in self.folders and path not in self.names:
            missing.append(path)
            path = posixpath.dirname(path)
        for folder in reversed(missing):
            self.begin("make_directory", folder)
            super().make_directory(folder)
            self._changes.append(_Change(posixpath.dirname(folder), None, folder))

    def remove(self, path: str) -> None:
        path = checked_path(path)
        if path in self.names:
            self.begin("remove", path)
            super().remove(path)
            self._changes.append(_Change(posixpath.dirname(path), path, None))

    def remove_tree(self, path: str) -> None:
        path = checked_path(path)
        before = set(self.folders)
        super().remove_tree(path)
        for folder in sorted(before - self.folders, reverse=True):
            self._changes.append(_Change(posixpath.dirname(folder), folder, None))

    def rename(self, source: str, target: str) -> None:
        source, target = checked_path(source), checked_path(target)
        self.begin("rename", source)
        super().rename(source, target)
        content = self.names[target]
        assert isinstance(content, FaultContent)
        self._changes.append(_Change(posixpath.dirname(target), source, target, content))

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        path = checked_path(path)
        self.begin("sync_directory", path)
        if self.fail_syncs:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        for change in self._changes:
            if change.folder == path:
                _apply(change, self._durable_names, self._durable_folders)
        self._changes = [change for change in self._changes if change.folder != path]

    def free_bytes(self) -> int:
        return super().free_bytes() if self._room_bytes is None else self._room_bytes

    def _create(self, path: str) -> MemoryContent:
        self.begin("create", path)
        content = FaultContent()
        self._changes.append(_Change(posixpath.dirname(path), None, path, content))
        return content

    def _handle(self, path: str, content: MemoryContent, read_only: bool) -> File:
        assert isinstance(content, FaultContent)
        self.check_power()
        return FaultFile(self, path, content, read_only)

    # The faults.

    def begin(self, name: str, path: str) -> None:
        """Every change passes here before it happens."""
        self.check_power()
        self.operations += 1
        try:
            if self.operations == self.stop_at:
                raise PowerLoss(f"before operation {self.operations}: {name} {path}")
            if self.on_operation is not None:
                self.on_operation(self.operations, name, path)
        except PowerLoss:
            self._off = True
            raise

    def check_power(self) -> None:
        if self._off:
            raise PowerLoss("the power is off")

    def take_room(self, more_bytes: int) -> int | None:
        """None when there is room for so much more; otherwise how much is left."""
        if self._room_bytes is None:
            return None
        left = self._room_bytes
        self._room_bytes = max(0, left - more_bytes)
        return left if more_bytes > left else None

    def crash(self, choose: Random | Choose) -> FaultDisk:
        """The disk as it may be found when the power is back."""
        pick: Choose = choose.randrange if isinstance(choose, Random) else choose
        names = dict(self._durable_names)
        folders = set(self._durable_folders)
        for change in self._changes:
            if pick(2):
                _apply(change, names, folders)
        after = FaultDisk()
        # A folder whose creation was lost takes everything in it along.
        after.folders = {
            folder for folder in folders if all(above in folders for above in _above(folder))
        }
        after._durable_folders = set(after.folders)
        for path, content in sorted(names.items()):
            if posixpath.dirname(path) in after.folders:
                survived = FaultContent(content.after_crash(pick))
                after.names[path] = after._durable_names[path] = survived
        return after


def keep_nothing(count: int) -> int:
    """Only what was synced survived."""
    return 0


def keep_everything(count: int) -> int:
    """All that was written survived, as when only the process dies."""
    return count - 1


def _apply(change: _Change, names: dict[str, FaultContent], folders: set[str]) -> None:
    if change.removed is not None:
        names.pop(change.removed, None)
        folders.discard(change.removed)
    if change.added is not None:
        if change.content is None:
            folders.add(change.added)
        else:
            names[change.added] = change.content


def _above(folder: str) -> list[str]:
    found = []
    while folder:
        folder = posixpath.dirname(folder)
        found.append(folder)
    return found
