"""Holding a directory: one process writes to it, whatever anybody removes in it.

    the directory itself    locked by the system: nobody who can delete files in it can
                            let a second process in
    lock                    a file in it, locked as well: for systems that cannot lock a
                            folder, for older versions, and for its text, which says who

Both locks end with the process. Where a folder cannot be locked (Windows, some network
disks) the file alone counts; Windows does not let anybody remove it while it is open.

Rejected: the file alone, with a check that it is still the one of that name. Whoever opens
the directory right after it was removed would find nothing to compare.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys

from headrace.core.errors import InUse
from headrace.core.system_errors import is_locked

_HOLDER_BYTES_MAX = 4096
# The lock covers a byte far behind the holder's text, since on Windows a locked
# byte cannot be read by others.
_LOCKED_BYTE = 1 << 30
LOCKS_FILE = "/proc/locks"
_DOOR = re.compile(r"^(kafka|grpc|http) on (\S+)", re.MULTILINE)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)


class RealLock:
    def __init__(self, descriptor: int, folder: int | None, holder: str) -> None:
        self._descriptor = descriptor
        self._folder = folder
        self.tell(holder)

    def tell(self, holder: str) -> None:
        """What others are told of the holder. A full disk may keep it from being said."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            os.write(self._descriptor, holder.encode("utf-8", "replace")[:_HOLDER_BYTES_MAX])

    def release(self) -> None:
        """The file stays: removing it would let a third opener lock a new file
        of that name while a second still waits at the old one."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)
        folder, self._folder = self._folder, None
        if folder is not None:
            os.close(folder)


def take_lock(path: str, holder: str) -> RealLock:
    """Lock the file and the folder that it is in; InUse says who has them."""
    folder = _lock_folder(path)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _CLOEXEC, 0o644)
    except BaseException:
        if folder is not None:
            os.close(folder)
        raise
    try:
        _lock_descriptor(descriptor)
    except OSError:
        text = _text_of(descriptor)
        os.close(descriptor)
        if folder is not None:
            os.close(folder)
        raise _in_use(path, text) from None
    return RealLock(descriptor, folder, holder)


def check_unlocked(path: str) -> None:
    """Raise InUse when somebody holds the file or its folder. Any number of processes
    may ask at the same time; a lock that nobody ever took is free."""
    folder = _lock_folder(path, shared=True)
    if folder is not None:
        os.close(folder)
    try:
        descriptor = os.open(path, os.O_RDONLY | _CLOEXEC)
    except FileNotFoundError:
        return
    try:
        _lock_descriptor(descriptor, shared=True)
    except OSError:
        raise _in_use(path, _text_of(descriptor)) from None
    finally:
        os.close(descriptor)


def holder_of_folder(folder: str) -> int | None:
    """The pid that holds the lock of a folder, or of a file; 0 for one that cannot be
    seen from here. None when nobody does, or the system does not tell."""
    try:
        inode = str(os.stat(folder).st_ino)
        with open(LOCKS_FILE, encoding="ascii", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in lines:
        # 7: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
            return max(0, int(fields[4]))
    return None


def _lock_folder(path: str, *, shared: bool = False) -> int | None:
    """A descriptor to be kept, or None where folders cannot be locked."""
    if sys.platform == "win32":
        return None
    folder = os.path.dirname(path)
    descriptor = os.open(folder, os.O_RDONLY | _CLOEXEC)
    try:
        _lock_descriptor(descriptor, shared=shared)
    except OSError as error:
        os.close(descriptor)
        if not is_locked(error):
            return None
        raise _in_use(path, _read(path) or _guess(folder)) from None
    return descriptor


def _lock_descriptor(descriptor: int, *, shared: bool = False) -> None:
    """Take the lock that ends with the process, or raise OSError. Others may share a
    shared one, where the system knows of such."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
    else:
        import fcntl

        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)


# Words.


def _text_of(descriptor: int) -> str:
    return os.read(descriptor, _HOLDER_BYTES_MAX).decode("utf-8", "replace").strip()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_HOLDER_BYTES_MAX).strip()
    except OSError:
        return ""


def _guess(folder: str) -> str:
    """Where the text is gone with its file."""
    pid = holder_of_folder(folder)
    return f"pid {pid} on this machine" if pid else ""


def _in_use(path: str, holder: str) -> InUse:
    folder = os.path.dirname(path)
    if holder.startswith(f"pid {os.getpid()} "):
        return InUse(
            f"{folder}: this process has the directory open already; use that handle, or "
            "close() it first"
        )
    who = holder.partition("\n")[0] or "another process"
    doors = dict(_DOOR.findall(holder))
    where = doors.get("kafka") or ("grpc" in doors and f"grpc://{doors['grpc']}")
    if where:
        return InUse(
            f"{folder} is held by {who}, which serves it at {where}: use that, with "
            f'--server {where} or headrace.connect("{where}"), or read beside it with '
            "read_only=True"
        )
    if doors:
        # Neither the command nor the SDK speak HTTP.
        return InUse(
            f"{folder} is held by {who}, which serves it at http://{doors['http']}: use that, or "
            "read beside it with read_only=True"
        )
    return InUse(
        f"{folder} is held by {who}; read beside it with read_only=True, or let one process serve "
        "all others: headrace serve, and --server HOST:PORT"
    )
