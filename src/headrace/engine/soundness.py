"""Soundness: what counts as damage, which partitions have it, and who is told when that shows."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from headrace.core.errors import CorruptBatch, CorruptLog, HeadraceError
from headrace.core.system_errors import is_of_one_file

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


def is_damage(error: Exception) -> bool:
    """Whether what was read is damaged, or cannot be read at all."""
    return isinstance(error, DAMAGE) or is_of_one_file(error)


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
