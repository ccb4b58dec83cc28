"""The ports: every way in which the product touches the world.

Below the platform layer there is no clock, no chance and no file but through
these four. A test that replaces them replays any history, power loss included.

    Clock      what time it is
    Entropy    random bytes
    Disk       a rooted tree of files, named by relative paths with "/"
    File       one open file, with explicit positions and no cursor of its own

A File does not buffer: a write that returned is visible to every reader of the
machine and survives the death of the process. Only `sync` makes it survive the
loss of power.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, runtime_checkable

Buffer = bytes | bytearray | memoryview
# How much is read at a time of what nobody looks at.
_WARM_BYTES = 1024 * 1024


class Reading(NamedTuple):
    """What a clock shows, and how much of that nobody has lived through."""

    now_ms: int
    # By how much it was set in all, forwards less backwards: two readings less this
    # are as far apart as the monotonic clock says.
    stepped_ms: int = 0
    # How much of that the machine has slept: it went by, but nobody could use it.
    slept_ms: int = 0


@runtime_checkable
class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC. It goes evenly, and steps in either direction
        when the system's clock is set."""
        ...


def read_clock(clock: Clock) -> Reading:
    """A clock that may be set has a method `read`; of another, what it shows."""
    read: Callable[[], Reading] | None = getattr(clock, "read", None)
    return Reading(clock.now_ms()) if read is None else read()


def steady_ms(clock: Clock) -> int:
    """For durations: how far two readings are apart is how much time has passed, also
    when the clock was set between them."""
    now_ms, stepped_ms, _ = read_clock(clock)
    return now_ms - stepped_ms


@runtime_checkable
class Entropy(Protocol):
    def random_bytes(self, count: int) -> bytes: ...


class WouldWait(Exception):
    """A read has to wait for the device, and its reader must not. Not an error:
    `warm` is called where waiting does no harm, and then the read is repeated."""

    def __init__(self, file: File, length: int, position: int) -> None:
        super().__init__(f"{length} bytes at {position} are not in memory")
        self.file = file
        self.length = length
        self.position = position

    def warm(self) -> None:
        """Bring what was asked for into the system's memory. In any thread."""
        end = self.position + self.length
        for position in range(self.position, end, _WARM_BYTES):
            self.file.read(min(_WARM_BYTES, end - position), position)


class File(Protocol):
    def size(self) -> int: ...

    def read(self, length: int, position: int) -> bytes:
        """At most `length` bytes; fewer only at the end of the file."""
        ...

    def view(self, length: int, position: int) -> Buffer:
        """Like `read`, but it may be a window on the file itself. Only for what
        is never overwritten or cut off again while somebody holds it; removing
        the file does no harm."""
        ...

    def write(self, data: Buffer, position: int) -> None:
        """All of `data`, or an OSError. A failed write may leave any part of
        it behind, so a caller overwrites from the same position later."""
        ...

    def write_parts(self, parts: Sequence[Buffer], position: int) -> None:
        """Like `write` for the parts put together, without joining them."""
        ...

    def truncate(self, size: int) -> None: ...

    def reserve(self, size: int) -> None:
        """Ask for space up to `size` ahead of its use, without changing the
        file's size. A hint: where the system has no such call it does nothing."""
        ...

    def sync(self) -> None:
        """Everything written so far survives a loss of power. May be called
        from any thread. Never retried after a failure."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    def tell(self, holder: str) -> None:
        """Describe the holder to others anew."""
        ...

    def release(self) -> None: ...


class Disk(Protocol):
    def open(
        self, path: str, *, create: bool = False, read_only: bool = False, note: bool = False
    ) -> File:
        """FileNotFoundError when it does not exist and `create` is false. Of a
        `note` nobody minds if a write that was not synced is lost, and so it need
        not be heard of: it only saves work."""
        ...

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted; empty when the folder does not exist."""
        ...

    def make_directory(self, path: str) -> None:
        """With its parents; fine when it exists."""
        ...

    def remove(self, path: str) -> None:
        """A file. Open handles stay readable; fine when it does not exist."""
        ...

    def remove_tree(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Replaces `target`, atomically. Also a folder, where `target` is not there."""
        ...

    def sync_directory(self, path: str) -> None:
        """Makes creations, removals and renames in this folder durable."""
        ...

    def free_bytes(self) -> int: ...

    def without_waiting(self) -> AbstractContextManager[None]:
        """Within it, a `read` or `view` by this thread that would have to wait
        for the device raises WouldWait instead, where the system can tell."""
        ...

    def lock(self, path: str, holder: str) -> Lock:
        """Take the one lock of this name or raise headrace.core.errors.InUse,
        which says who holds it. `holder` describes the taker to others. It holds the
        folder too, whatever becomes of the file."""
        ...


# A pair of the pipes of `serve_syncs`, and the number that ends it.
SYNC_PAIR = struct.Struct("=ii")
SYNC_STOP = -1


class SystemFile(Protocol):
    """What the system knows a file by. It stays open while somebody holds this."""

    number: int


@runtime_checkable
class SystemDisk(Disk, Protocol):
    """A disk of the system's, whose files somebody else can sync by their numbers."""

    def begin_sync(self, file: File) -> SystemFile:
        """Whatever is written from now on need not be in it."""
        ...

    def end_sync(self, file: File, error: OSError | None) -> None:
        """After an error every later sync of the file fails as well."""
        ...

    def serve_syncs(self, jobs: int, results: int) -> None:
        """In a thread of its own: takes pairs of a tag and a file's number from one
        pipe and puts the tag and the error's number, or 0, into the other."""
        ...
