"""A disk in memory, behind the same contract as the real one.

Names and contents are kept apart, as in a file system: a handle holds the
content, so that a removed or replaced file stays readable for those who have it
open.

    names      "topics/a/0/start" -> MemoryContent
    folders    {"", "topics", "topics/a", "topics/a/0"}

Everything counts as durable at once. The disk that can lose what was not synced
is `headrace.testing.fault_disk`.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from headrace.core.errors import InUse
from headrace.core.ports import Buffer, File, Lock

FREE_BYTES = 1 << 40


class MemoryContent:
    """What a name stands for; it lives as long as a name or a handle does."""

    __slots__ = ("data",)

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)


class MemoryFile:
    """One open handle."""

    def __init__(self, path: str, content: MemoryContent, read_only: bool) -> None:
        self.path = path
        self.content = content
        self._read_only = read_only
        self._closed = False

    def size(self) -> int:
        self._check(writing=False)
        return len(self.content.data)

    def read(self, length: int, position: int) -> bytes:
        self._check(writing=False)
        return bytes(memoryview(self.content.data)[position : position + length])

    def view(self, length: int, position: int) -> Buffer:
        return self.read(length, position)

    def write(self, data: Buffer, position: int) -> None:
        self._check(writing=True)
        content = self.content.data
        missing = position - len(content)
        if missing > 0:
            content += bytes(missing)
        content[position : position + len(data)] = data

    def write_parts(self, parts: Sequence[Buffer], position: int) -> None:
        self.write(b"".join(parts), position)

    def truncate(self, size: int) -> None:
        self._check(writing=True)
        content = self.content.data
        if size < len(content):
            del content[size:]
        else:
            content += bytes(size - len(content))

    def reserve(self, size: int) -> None:
        self._check(writing=True)

    def sync(self) -> None:
        self._check(writing=False)

    def close(self) -> None:
        self._closed = True

    def _check(self, *, writing: bool) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        if writing and self._read_only:
            raise OSError(errno.EBADF, "the file is open for reading only", self.path)


class MemoryLock:
    def __init__(self, holders: dict[str, str], path: str) -> None:
        self._holders = holders
        self._path = path

    def tell(self, holder: str) -> None:
        self._holders[self._path] = holder

    def release(self) -> None:
        self._holders.pop(self._path, None)


class MemoryDisk:
    def __init__(self) -> None:
        self.names: dict[str, MemoryContent] = {}
        self.folders: set[str] = {""}
        self._holders: dict[str, str] = {}

    def open(
        self, path: str, *, create: bool = False, read_only: bool = False, note: bool = False
    ) -> File:
        path = checked_path(path)
        if path in self.folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        content = self.names.get(path)
        if content is None:
            if not create or posixpath.dirname(path) not in self.folders:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            content = self.names[path] = self._create(path)
        return self._handle(path, content, read_only)

    def exists(self, path: str) -> bool:
        path = checked_path(path)
        return path in self.names or path in self.folders

    def list(self, path: str) -> list[str]:
        prefix = checked_path(path)
        if prefix:
            prefix += "/"
        found = {
            name[len(prefix) :].split("/", 1)[0]
            for names in (self.names, self.folders)
            for name in names
            if name.startswith(prefix) and name != path and name
        }
        return sorted(found)

    def make_directory(self, path: str) -> None:
        path = checked_path(path)
        if path in self.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        while path not in self.folders:
            self.folders.add(path)
            path = posixpath.dirname(path)

    def remove(self, path: str) -> None:
        self.names.pop(checked_path(path), None)

    def remove_tree(self, path: str) -> None:
        path = checked_path(path)
        inside = path + "/" if path else ""
        for name in [name for name in self.names if name.startswith(inside)]:
            self.remove(name)
        self.folders -= {
            name for name in self.folders if name and (name == path or name.startswith(inside))
        }

    def rename(self, source: str, target: str) -> None:
        source, target = checked_path(source), checked_path(target)
        if source in self.folders:
            self._rename_folder(source, target)
            return
        if source not in self.names or posixpath.dirname(target) not in self.folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        self.names[target] = self.names.pop(source)

    def _rename_folder(self, source: str, target: str) -> None:
        if self.list(target):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        inside = f"{source}/"
        for folder in [f for f in self.folders if f == source or f.startswith(inside)]:
            self.folders.remove(folder)
            self.folders.add(target + folder[len(source) :])
        for name in [name for name in self.names if name.startswith(inside)]:
            self.names[target + name[len(source) :]] = self.names.pop(name)

    def sync_directory(self, path: str) -> None:
        if checked_path(path) not in self.folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def without_waiting(self) -> AbstractContextManager[None]:
        return nullcontext()

    def free_bytes(self) -> int:
        return FREE_BYTES

    def lock(self, path: str, holder: str) -> Lock:
        path = checked_path(path)
        if path in self._holders:
            raise InUse(f"{path} is held by {self._holders[path]}")
        self._holders[path] = holder
        return MemoryLock(self._holders, path)

    def _create(self, path: str) -> MemoryContent:
        return MemoryContent()

    def _handle(self, path: str, content: MemoryContent, read_only: bool) -> File:
        return MemoryFile(path, content, read_only)


def checked_path(path: str) -> str:
    """The path itself; ValueError when it is not a plain relative one, since a
    name that reached us from outside must never lead out of the root."""
    if path in ("", "."):
        return ""
    if path.startswith("/") or "\\" in path or "\0" in path or ":" in path:
        raise ValueError(f"not a relative path: {path!r}")
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"a path may not hold empty, '.' or '..' parts: {path!r}")
    return path
