"""Descriptors: how few files are open, however many handles there are.

    handle ---> Descriptor ---> the system's file
      |  '- none: it was given up; the next use opens the path again
      |
    ring    handle  handle  handle  handle      a clock: what was not used since
              ^ the hand                        the hand came by last is given up

Ten thousand partitions hold some sixty thousand handles, and a shell allows 1,024
open files. What may not be lost on the way:

- Nobody reads or writes the wrong file. A descriptor is closed when the last who
  holds it lets go, so one that is given up while a thread is at work with it stays
  open until that thread is done.
- A failed write-back is heard of. The system reports it once, to a descriptor that
  was open, or to the next one as long as it remembers the file, which it does not
  have to while nobody has it open. So a file with unsynced writes is only given up
  after a sync, and if that fails, every later sync of the handle fails as well.
  Files that were opened as notes are exempt: nothing rests on them.
- A removed or replaced file stays readable to who holds it. Its handles are opened
  before its name goes, and are not given up any more.
- A path that leads to another file by now, which only another process can bring
  about, is an error and never read.

Rejected: a count of users per descriptor. References count already, and the hot
path would take a lock twice for each read and write.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable

from headrace.core import limits
from headrace.core.system_errors import are_files_used_up

# How many are given up at once when the system, not the limit, says stop.
_MAKE_ROOM = 16
# How many handles the hand looks at to give up one.
_STEPS = 64


class Descriptor:
    """A number of the system's that is open as long as somebody holds this."""

    __slots__ = ("number", "used")

    def __init__(self, number: int) -> None:
        self.number = number
        # Set by every use, taken back when the hand comes by.
        self.used = True

    def __del__(self) -> None:
        # What was promised to last was synced before, so an error says nothing.
        with contextlib.suppress(OSError):
            os.close(self.number)


class Handle:
    """What the ring knows of a file. The ring alone changes `descriptor` from an
    open one to None."""

    __slots__ = (
        "descriptor",
        "failure",
        "flags",
        "identity",
        "is_closed",
        "is_dirty",
        "is_nameless",
        "is_note",
        "path",
    )

    def __init__(self, descriptor: Descriptor, path: str, flags: int, *, is_note: bool) -> None:
        self.path = path
        self.descriptor: Descriptor | None = descriptor
        self.flags = flags
        self.is_note = is_note
        self.is_closed = False
        # Whether something was written that no sync has covered.
        self.is_dirty = False
        # Why a sync that was made to give it up has failed.
        self.failure: OSError | None = None
        # Its name is gone, or is another file's: it cannot be opened again.
        self.is_nameless = False
        # Device and number of the file, noted when the descriptor is given up.
        self.identity: tuple[int, int] | None = None

    @property
    def needs_sync(self) -> bool:
        return self.is_dirty and not self.is_note


class Descriptors:
    """All of this process; see `DESCRIPTORS`."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._lock = threading.RLock()
        self._ring: OrderedDict[Handle, None] = OrderedDict()
        self._by_path: dict[str, list[Handle]] = {}

    @property
    def limit(self) -> int:
        """How many files stay open at most, but for those that cannot be closed."""
        if self._limit is None:
            self._limit = limit_for(_allowed_by_system())
        return self._limit

    @limit.setter
    def limit(self, count: int) -> None:
        self._limit = count

    @property
    def open_count(self) -> int:
        return len(self._ring)

    def after_fork(self) -> None:
        """In a child: somebody else may have held the lock."""
        self._lock = threading.RLock()

    # Opening and closing.

    def open(self, path: str, flags: int) -> Descriptor:
        """Not in the ring. What is in it makes room when the system is full."""
        while True:
            try:
                return Descriptor(os.open(path, flags, 0o644))
            except OSError as error:
                if not are_files_used_up(error):
                    raise
                with self._lock:
                    before = len(self._ring)
                    for _ in range(_MAKE_ROOM):
                        self._give_one_up(force=True)
                    if len(self._ring) == before:
                        raise

    def add(self, handle: Handle) -> None:
        with self._lock:
            self._by_path.setdefault(handle.path, []).append(handle)
            self._enter(handle)

    def reopen(self, handle: Handle) -> Descriptor:
        """The handle's descriptor, opened again if it was given up."""
        with self._lock:
            if handle.is_closed:
                raise OSError(errno.EBADF, "the file is closed", handle.path)
            if handle.descriptor is not None:
                return handle.descriptor
            descriptor = self.open(handle.path, handle.flags)
            if _identity(descriptor) != handle.identity:
                raise OSError(
                    errno.ESTALE, "another process removed or replaced the file", handle.path
                )
            handle.descriptor = descriptor
            self._enter(handle)
            return descriptor

    def close(self, handle: Handle) -> None:
        with self._lock:
            if handle.is_closed:
                return
            handle.is_closed = True
            self._ring.pop(handle, None)
            handle.descriptor = None
            if not handle.is_nameless:
                self._forget_path(handle)

    # Names that go away.

    def keep(self, paths: Iterable[str]) -> None:
        """These names are about to go: whoever holds one of the files keeps it."""
        for path in paths:
            if path in self._by_path:
                with self._lock:
                    for handle in self._by_path.get(path, ()):
                        # If another process has taken the name away already, the
                        # next use says so.
                        with contextlib.suppress(OSError):
                            self.reopen(handle)
                            self._ring.pop(handle, None)
                            handle.is_nameless = True
                    self._by_path.pop(path, None)

    def below(self, folder: str) -> list[str]:
        """The paths in this folder and the folders below it that are held."""
        return [path for path in tuple(self._by_path) if path.startswith(folder + os.sep)]

    def _forget_path(self, handle: Handle) -> None:
        handles = self._by_path.get(handle.path, [])
        if handle in handles:
            handles.remove(handle)
            if not handles:
                del self._by_path[handle.path]

    # The ring.

    def _enter(self, handle: Handle) -> None:
        limit = self.limit
        # Two for one, to come back to the limit from beyond it: syncing takes its
        # time, so there is some room.
        for _ in range(2):
            if len(self._ring) >= limit:
                self._give_one_up(force=len(self._ring) >= limit + limit // 4)
        self._ring[handle] = None

    def _give_one_up(self, *, force: bool) -> None:
        """The next that was not used lately and need not be synced first, if the
        hand meets one within a few steps; if need be, any."""
        ring = self._ring
        for _ in range(min(2 * len(ring), _STEPS)):
            handle = next(iter(ring))
            descriptor = handle.descriptor
            if descriptor is not None and not descriptor.used and not handle.needs_sync:
                _give_up(handle)
                del ring[handle]
                return
            if descriptor is not None:
                descriptor.used = False
            ring.move_to_end(handle)
        if force and ring:
            handle, _ = ring.popitem(last=False)
            _give_up(handle)


def _give_up(handle: Handle) -> None:
    descriptor = handle.descriptor
    if descriptor is None:
        return
    handle.identity = _identity(descriptor)
    # In this order: who writes at this moment sees, when it is done, that the
    # descriptor is not the handle's any more, and opens and marks it again.
    handle.descriptor = None
    if handle.needs_sync:
        handle.is_dirty = False
        try:
            sync_descriptor(descriptor.number)
        except OSError as error:
            handle.failure = error


def _identity(descriptor: Descriptor) -> tuple[int, int]:
    found = os.fstat(descriptor.number)
    return found.st_dev, found.st_ino


def sync_descriptor(number: int) -> None:
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(number, fcntl.F_FULLFSYNC)
    elif sys.platform == "linux":
        os.fdatasync(number)
    else:
        os.fsync(number)


def limit_for(allowed: int) -> int:
    """How many of the descriptors that a process may have are for our files. The
    rest is for connections, for whoever embeds us, and for what is open briefly."""
    share = allowed // limits.OPEN_FILES_DIVISOR
    return max(limits.OPEN_FILES_MIN, min(limits.OPEN_FILES_MAX, share))


def _allowed_by_system() -> int:
    try:
        import resource
    except ImportError:
        return limits.OPEN_FILES_MAX
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    unlimited = soft == resource.RLIM_INFINITY
    return limits.OPEN_FILES_MAX * limits.OPEN_FILES_DIVISOR if unlimited else soft


# The system counts by process, and so do we.
DESCRIPTORS = Descriptors()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=DESCRIPTORS.after_fork)
