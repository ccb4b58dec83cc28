"""What tracing costs: the same work with tracing off, as it is by default, and of all.

One consumer leases and acks one message at a time, which writes the most of a state log
for a message that there can be, on a topic that is synced every second: nobody waits for
the disk, so whatever is carried over shows. Enough messages that state logs are cut, and
carried over before, several times. The three take turns, so that whatever else the machine
does meanwhile is shared by all.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import headrace
from benchmarks.samples import Sample, percentile
from benchmarks.sizes import VALUE_BYTES, Sizes

SHARES: dict[str, float | None] = {"off": None, "default": 0.01, "everything": 1}
BATCH = 1_000


class _Work:
    """One of them: how long each message took, by the clock and in the processor."""

    def __init__(self, stack: ExitStack, folder: Path, share: float | None, count: int) -> None:
        handle = stack.enter_context(headrace.open(folder))
        handle.create_topic("orders", 1, durability="interval", trace_sample=share)
        for start in range(0, count, BATCH):
            handle.publish_many("orders", [b"x" * VALUE_BYTES] * min(BATCH, count - start))
        self._queue = stack.enter_context(handle.queue("orders", "billing"))
        self.latencies: list[float] = []
        self.elapsed = self.processor = 0.0

    def take_turn(self, count: int) -> None:
        began, used = time.perf_counter(), time.process_time()
        for _ in range(count):
            before = time.perf_counter()
            self._queue.ack(self._queue.lease(1))
            self.latencies.append(time.perf_counter() - before)
        self.elapsed += time.perf_counter() - began
        self.processor += time.process_time() - used


def tracing(place: Path, sizes: Sizes) -> list[Sample]:
    count = sizes.traced
    with ExitStack() as stack:
        works = {name: _Work(stack, place / name, share, count) for name, share in SHARES.items()}
        for start in range(0, count, BATCH):
            for work in works.values():
                work.take_turn(min(BATCH, count - start))
    samples = []
    for name, work in works.items():
        system = f"tracing {name}"
        samples += [
            Sample(system, "lease and ack", "msg/s", count / work.elapsed),
            Sample(system, "processor time", "µs/msg", work.processor / count * 1e6),
            Sample(system, "p50", "ms", percentile(work.latencies, 0.50) * 1000),
            Sample(system, "p99", "ms", percentile(work.latencies, 0.99) * 1000),
        ]
    return samples
