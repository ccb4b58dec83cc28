"""What priorities cost with a backlog: the same work where all messages have one, where
five lie between one another, and where few critical ones lie among many.

One consumer leases and acks in batches, on a topic that is synced every second: nobody
waits for the disk, so what is read, decoded and written down shows. While one lease is
made the node does nothing else, so its longest are what others have to wait. The three
take turns, so that whatever else the machine does meanwhile is shared by all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import headrace
from benchmarks.samples import Sample, percentile
from benchmarks.sizes import VALUE_BYTES, Sizes
from headrace import NewMessage

# The priorities of the messages of a topic, over and over.
KINDS: dict[str, Sequence[str]] = {
    "one priority": ("normal",),
    "five in turn": ("critical", "high", "normal", "low", "background"),
    "1 in 20 critical": ("critical", *["normal"] * 19),
}


class _Work:
    """One of them: how long each lease took, and all of it in the processor."""

    def __init__(
        self, stack: ExitStack, folder: Path, priorities: Sequence[str], sizes: Sizes
    ) -> None:
        handle = stack.enter_context(headrace.open(folder))
        handle.create_topic("orders", 1, durability="interval")
        self._queue = stack.enter_context(handle.queue("orders", "billing"))
        messages = [
            NewMessage(b"x" * VALUE_BYTES, priority=priorities[number % len(priorities)])
            for number in range(sizes.publish_batch)
        ]
        for _ in range(0, sizes.mixed_backlog, sizes.publish_batch):
            handle.publish_many("orders", messages)
        self._batch = sizes.work_batch
        self.leases: list[float] = []
        self.done = 0
        self.elapsed = self.processor = 0.0

    def take_turn(self) -> None:
        began, used = time.perf_counter(), time.process_time()
        messages = self._queue.lease(self._batch)
        self.leases.append(time.perf_counter() - began)
        self._queue.ack(messages)
        self.elapsed += time.perf_counter() - began
        self.processor += time.process_time() - used
        self.done += len(messages)


def priorities(place: Path, sizes: Sizes) -> list[Sample]:
    with ExitStack() as stack:
        works = {
            kind: _Work(stack, place / str(number), mixed, sizes)
            for number, (kind, mixed) in enumerate(KINDS.items())
        }
        for _ in range(0, sizes.mixed_worked, sizes.work_batch):
            for work in works.values():
                work.take_turn()
    samples = []
    for kind, work in works.items():
        samples += [
            Sample(kind, "lease and ack", "msg/s", work.done / work.elapsed),
            Sample(kind, "processor time", "µs/msg", work.processor / work.done * 1e6),
            Sample(kind, "lease p99", "ms", percentile(work.leases, 0.99) * 1000),
        ]
    return samples
