"""The node: the engine with a real disk and a real clock around it.

This is the composition root and the face that the SDK, the command line and every
door talk to. Each call takes the lock, lets the broker do its part, waits for the
disk where the answer promises something, and then answers. Nothing here waits for
a message: who wants to wait adds a listener.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Self

from headrace.calls.face import Face
from headrace.calls.transacting import Transacting
from headrace.core.errors import HeadraceError
from headrace.core.ports import Clock, Disk, Entropy, Lock
from headrace.core.values import PlacedBatch, Published
from headrace.node.tracing import Traced
from headrace.platform.clock import SystemClock
from headrace.platform.directory import check_format, claim, keep_reserve, plain_refusals
from headrace.platform.disk import RealDisk
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk

MEMORY = ":memory:"
FREE_BYTES_MIN = 64 * 1024 * 1024


class Node(Traced, Face, Transacting):
    """Made by `Node.open`."""

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        auto_create: bool = False,
        disk: Disk | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        free_bytes_min: int = FREE_BYTES_MIN,
    ) -> Self:
        """A directory, which is made if need be, or ":memory:". Read-only works
        beside a writer and shows the directory as it is at this moment."""
        if disk is None:
            disk = MemoryDisk() if path == MEMORY else RealDisk(os.fspath(path))
        entropy = entropy or SystemEntropy()
        claimed: Lock | None = None
        if read_only:
            check_format(disk)
        else:
            claimed = claim(disk, entropy)
        try:
            if not read_only:
                keep_reserve(disk)
            with plain_refusals():
                return cls(
                    disk, clock or SystemClock(), entropy, claimed,
                    auto_create=auto_create, free_bytes_min=free_bytes_min,
                )  # fmt: skip
        except BaseException:
            if claimed is not None:
                claimed.release()
            raise

    def begin_batches(
        self,
        batches: Sequence[PlacedBatch],
        on_answered: Callable[[Sequence[Published | HeadraceError] | HeadraceError], None],
    ) -> None:
        """Publish these; in this process the answer is there when it returns."""
        outcomes: Sequence[Published | HeadraceError] | HeadraceError
        try:
            outcomes = self.publish_batches(batches)
        except HeadraceError as error:
            outcomes = error
        on_answered(outcomes)

    def stopped_partitions(self) -> list[tuple[str, int, str]]:
        """Topic, partition and reason of those whose messages cannot be read."""
        with self._reading():
            return [
                (each.topic.name, each.index, str(each.stopped))
                for each in self._broker.topics
                if each.stopped is not None
            ]

    def stopped_queues(self) -> list[tuple[str, int, str]]:
        """Topic, partition and reason of those whose messages can be read and whose state
        log cannot."""
        with self._reading():
            return [
                (each.topic.name, each.index, str(each.queues_stopped))
                for each in self._broker.topics
                if each.queues_stopped is not None and each.stopped is None
            ]

    def close(self) -> None:
        """Sync everything and let go of the directory. Safe to call twice."""
        with self._lock:
            if self.closed:
                return
            try:
                if self._claimed is not None and self._commits.failed is None:
                    self._commits.sync_all()
            finally:
                self.closed = True
                self._commits.close()
                if self._commits.failed is None:
                    self._broker.close(self.clock.now_ms())
                if self._claimed is not None:
                    self._claimed.release()
        self._notify()
