"""The real disk: a folder, and nothing outside it.

    Linux     pread, pwrite; fdatasync; fallocate KEEP_SIZE
    macOS     pread, pwrite; F_FULLFSYNC, since fsync there stops at the drive's cache
    Windows   seek and read or write under a lock per handle; FlushFileBuffers

A handle has no cursor, so reading threads never disturb one another. Symbolic
links inside the root are the owner's business; names that reach us are not, and
cannot leave the root. More files can be held than the system allows to be open;
see `descriptors`.

Rejected: O_DIRECT. It would take the page cache away from consumers, who mostly
read what was just written.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from headrace.core.ports import Buffer, File, Lock, WouldWait
from headrace.core.system_errors import is_unsupported
from headrace.platform.descriptors import DESCRIPTORS, Descriptor, Handle, sync_descriptor
from headrace.platform.locking import check_unlocked, take_lock
from headrace.platform.memory_disk import checked_path
from headrace.platform.sync_service import serve_syncs
from headrace.platform.window import WINDOW_BYTES_MIN, open_window

_WINDOWS = sys.platform == "win32"
_FALLOC_FL_KEEP_SIZE = 1
# The kernel takes at most this many buffers in one call.
_PARTS_PER_CALL = 1024

# Read only what is in memory; where the system has no such flag, reads wait.
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


class _Patience(threading.local):
    """Whether this thread waits for the device."""

    may_wait = True


_patience = _Patience()


class RealFile(Handle):
    """One open file, whose descriptor may be given up and opened again between two
    calls. A closed one refuses every call."""

    __slots__ = ()

    def _use(self) -> Descriptor:
        """To be held while its number is in use."""
        descriptor = self.descriptor or DESCRIPTORS.reopen(self)
        descriptor.used = True
        return descriptor

    def _changed(self, descriptor: Descriptor) -> None:
        """Something was written by this descriptor, which is still held."""
        self.is_dirty = True
        if self.descriptor is not descriptor:
            # It was given up meanwhile, maybe before the write; see there.
            DESCRIPTORS.reopen(self)
            self.is_dirty = True

    def size(self) -> int:
        return os.fstat(self._use().number).st_size

    def read(self, length: int, position: int) -> bytes:
        descriptor = self._use()
        if not _patience.may_wait:
            return self._read_at_once(descriptor, length, position)
        data = os.pread(descriptor.number, length, position)
        if len(data) == length or not data:
            return data
        # A read is short at the end of the file, but also when a signal came or
        # more than 2 GiB were asked for.
        parts = [data]
        missing = length - len(data)
        while missing and data:
            position += len(data)
            data = os.pread(descriptor.number, missing, position)
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def _read_at_once(self, descriptor: Descriptor, length: int, position: int) -> bytes:
        length = max(0, min(length, os.fstat(descriptor.number).st_size - position))
        data = bytearray(length)
        try:
            count = os.preadv(descriptor.number, [data], position, _NOWAIT)
        except BlockingIOError:
            raise WouldWait(self, length, position) from None
        except OSError as error:
            if not is_unsupported(error):
                raise
            # This file system cannot tell.
            return os.pread(descriptor.number, length, position)
        if count < length:
            raise WouldWait(self, length, position)
        return bytes(data)

    def view(self, length: int, position: int) -> Buffer:
        if length < WINDOW_BYTES_MIN:
            return self.read(length, position)
        try:
            return open_window(
                self._use().number, length, position, is_resident=not _patience.may_wait
            )
        except BlockingIOError:
            raise WouldWait(self, length, position) from None
        except OSError:
            # There are file systems that cannot map.
            return self.read(length, position)

    def write(self, data: Buffer, position: int) -> None:
        descriptor = self._use()
        written = os.pwrite(descriptor.number, data, position)
        if written < len(data):
            self._write_rest(descriptor, memoryview(data)[written:], position + written)
        self._changed(descriptor)

    def _write_rest(self, descriptor: Descriptor, rest: memoryview, position: int) -> None:
        while rest:
            written = os.pwrite(descriptor.number, rest, position)
            if not written:
                raise OSError(errno.EIO, "the disk took nothing", self.path)
            rest = rest[written:]
            position += written

    def write_parts(self, parts: Sequence[Buffer], position: int) -> None:
        descriptor = self._use()
        for first in range(0, len(parts), _PARTS_PER_CALL):
            some = parts[first : first + _PARTS_PER_CALL]
            total = sum(map(len, some))
            written = os.pwritev(descriptor.number, some, position)
            if written < total:
                rest = memoryview(b"".join(some))[written:]
                self._write_rest(descriptor, rest, position + written)
            position += total
        self._changed(descriptor)

    def truncate(self, size: int) -> None:
        descriptor = self._use()
        os.ftruncate(descriptor.number, size)
        self._changed(descriptor)

    def reserve(self, size: int) -> None:
        if _fallocate is not None:
            # The answer does not matter: without the reservation the write itself
            # meets the full disk, and says so.
            descriptor = self._use()
            _fallocate(descriptor.number, _FALLOC_FL_KEEP_SIZE, 0, size)
            self._changed(descriptor)

    def begin_sync(self) -> Descriptor:
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        descriptor = self._use()
        # Before the sync: what is written while it runs may not be in it.
        self.is_dirty = False
        return descriptor

    def sync(self) -> None:
        descriptor = self.begin_sync()
        try:
            sync_descriptor(descriptor.number)
        except OSError as error:
            self.failure = error
            raise

    def close(self) -> None:
        DESCRIPTORS.close(self)


class WindowsFile(RealFile):
    """The same by seek and read or write, one at a time. Where the system has
    no positioned calls this also works elsewhere, which is how it is tested."""

    __slots__ = ("_cursor",)

    def __init__(self, descriptor: Descriptor, path: str, flags: int, *, is_note: bool) -> None:
        super().__init__(descriptor, path, flags, is_note=is_note)
        self._cursor = threading.Lock()

    def read(self, length: int, position: int) -> bytes:
        parts = []
        with self._cursor:
            descriptor = self._use()
            os.lseek(descriptor.number, position, os.SEEK_SET)
            while length:
                data = os.read(descriptor.number, length)
                if not data:
                    break
                parts.append(data)
                length -= len(data)
        return b"".join(parts)

    def view(self, length: int, position: int) -> Buffer:
        return self.read(length, position)

    def write(self, data: Buffer, position: int) -> None:
        rest = memoryview(data)
        with self._cursor:
            descriptor = self._use()
            os.lseek(descriptor.number, position, os.SEEK_SET)
            while rest:
                rest = rest[os.write(descriptor.number, rest) :]
            self._changed(descriptor)

    def write_parts(self, parts: Sequence[Buffer], position: int) -> None:
        self.write(b"".join(parts), position)


class RealDisk:
    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.abspath(os.fspath(root))

    def open(
        self, path: str, *, create: bool = False, read_only: bool = False, note: bool = False
    ) -> File:
        flags = os.O_RDONLY if read_only and not create else os.O_RDWR
        flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        full = self._full(path)
        descriptor = DESCRIPTORS.open(full, flags | os.O_CREAT if create else flags)
        file = (WindowsFile if _WINDOWS else RealFile)(descriptor, full, flags, is_note=note)
        DESCRIPTORS.add(file)
        return file

    def begin_sync(self, file: File) -> Descriptor:
        assert isinstance(file, RealFile)
        return file.begin_sync()

    def end_sync(self, file: File, error: OSError | None) -> None:
        assert isinstance(file, RealFile)
        file.failure = file.failure or error

    def serve_syncs(self, jobs: int, results: int) -> None:
        serve_syncs(jobs, results)

    def exists(self, path: str) -> bool:
        return os.path.exists(self._full(path))

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._full(path)))
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        os.makedirs(self._full(path), exist_ok=True)

    def remove(self, path: str) -> None:
        full = self._full(path)
        DESCRIPTORS.keep((full,))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(full)

    def remove_tree(self, path: str) -> None:
        full = self._full(path)
        DESCRIPTORS.keep(DESCRIPTORS.below(full))
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(full)

    def rename(self, source: str, target: str) -> None:
        full_source, full_target = self._full(source), self._full(target)
        DESCRIPTORS.keep((full_source, full_target))
        os.replace(full_source, full_target)

    def sync_directory(self, path: str) -> None:
        if _WINDOWS:
            return
        descriptor = DESCRIPTORS.open(self._full(path), os.O_RDONLY)
        sync_descriptor(descriptor.number)

    @contextlib.contextmanager
    def without_waiting(self) -> Iterator[None]:
        before, _patience.may_wait = _patience.may_wait, not _NOWAIT
        try:
            yield
        finally:
            _patience.may_wait = before

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.root).free

    def lock(self, path: str, holder: str) -> Lock:
        return take_lock(self._full(path), holder)

    def check_unlocked(self, path: str) -> None:
        """Raise InUse when somebody holds the lock of this name."""
        check_unlocked(self._full(path))

    def _full(self, path: str) -> str:
        path = checked_path(path)
        return os.path.join(self.root, path) if path else self.root


def _find_fallocate() -> Any:
    """The system's own call, because Python's posix_fallocate has no KEEP_SIZE
    and would make the file look as long as the space that it reserves."""
    if sys.platform != "linux":
        return None
    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    function.restype = ctypes.c_int
    return function


_fallocate = _find_fallocate()
