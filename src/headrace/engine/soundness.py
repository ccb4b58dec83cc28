"""Soundness: whether somebody has to see to a partition, and who is told when that shows."""

from __future__ import annotations

from collections.abc import Callable

from headrace.core.errors import CorruptLog


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

    def stop(self, error: CorruptLog) -> None:
        self.stopped = error
        self.on_trouble()

    def stop_queues(self, error: CorruptLog) -> None:
        self.queues_stopped = error
        self.on_trouble()
