"""Soundness: what counts as damage, which partitions have it, and who is told when that shows."""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Callable

from headrace.core.errors import CorruptBatch, CorruptLog, HeadraceError

# How a log that is not what we wrote, or an error of ours, shows. A disk that is full or
# away is neither.
DAMAGE = (
    CorruptLog,
    CorruptBatch,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
    EOFError,
    struct.error,
    zlib.error,
)


# What the system says of a file or folder that is not what it was, or is not ours to use.
# EROFS is not among them, nor is what a process or a disk has run out of: files, memory,
# room. That is no partition's own, and stopping all of them one by one would hide it.
_OF_ONE_FILE = frozenset(
    getattr(errno, name)
    for name in (
        "EIO", "EACCES", "EPERM", "ENOENT", "ENOTDIR", "EISDIR", "ELOOP", "ENAMETOOLONG",
        "EBADMSG", "ENODATA", "ESTALE", "EUCLEAN",
    )
    if hasattr(errno, name)
)  # fmt: skip


def is_damage(error: Exception) -> bool:
    """Whether what was read is damaged, or cannot be read at all."""
    return isinstance(error, DAMAGE) or (isinstance(error, OSError) and error.errno in _OF_ONE_FILE)


def is_refused(error: BaseException) -> bool:
    """Whether the system has it, and does not let us use it: nothing of it may be damaged."""
    return isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM)


def damage_text(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, HeadraceError | OSError):
        return text
    # Nobody can guess what is meant by a key or an index alone.
    return f"{type(error).__name__}: {text}"


class Soundness:
    """What is wrong with one partition."""

    def __init__(self) -> None:
        # Why nothing can be done here any more: its data has rotted.
        self.stopped: CorruptLog | None = None
        # Why no queue group can work here: what they did cannot be read.
        self.queues_stopped: CorruptLog | None = None
        # Told of these, and of batches that cannot be read.
        self.on_trouble: Callable[[], None] = lambda: None

    @property
    def is_stopped(self) -> bool:
        """Whether its messages or its queues are damaged."""
        return self.stopped is not None or self.queues_stopped is not None

    def check_sound(self) -> None:
        if self.stopped is not None:
            raise self.stopped.without_frames()

    def stop(self, error: CorruptLog) -> None:
        self.stopped = self.stopped or error
        self.on_trouble()

    def stop_queues(self, error: CorruptLog) -> None:
        self.queues_stopped = error
        self.on_trouble()
