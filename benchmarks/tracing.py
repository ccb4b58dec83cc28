"""What tracing costs: the same work with tracing off, as it is by default, and of all.

One consumer leases and acks one message at a time, which writes the most of a state log
for a message that there can be, on a topic that is synced every second: nobody waits for
the disk, so whatever is carried over shows. Enough messages that state logs are cut, and
carried over before, several times.
"""

from __future__ import annotations

import time
from pathlib import Path

import headrace
from benchmarks.samples import Sample, percentile
from benchmarks.sizes import VALUE_BYTES, Sizes

SHARES: dict[str, float | None] = {"off": None, "default": 0.01, "everything": 1}
BATCH = 1_000


def tracing(place: Path, sizes: Sizes) -> list[Sample]:
    samples = []
    for name, share in SHARES.items():
        system = f"tracing {name}"
        with headrace.open(place / name) as handle:
            handle.create_topic("orders", 1, durability="interval", trace_sample=share)
            left = sizes.traced
            while left > 0:
                handle.publish_many("orders", [b"x" * VALUE_BYTES] * min(left, BATCH))
                left -= BATCH
            latencies, elapsed, processor = _work(handle, sizes.traced)
        samples += [
            Sample(system, "lease and ack", "msg/s", sizes.traced / elapsed),
            Sample(system, "processor time", "µs/msg", processor / sizes.traced * 1e6),
            Sample(system, "p50", "ms", percentile(latencies, 0.50) * 1000),
            Sample(system, "p99", "ms", percentile(latencies, 0.99) * 1000),
        ]
    return samples


def _work(handle: headrace.Headrace, count: int) -> tuple[list[float], float, float]:
    """How long each message took, and all of them by the clock and in the processor."""
    latencies: list[float] = []
    with handle.queue("orders", "billing") as queue:
        began, used = time.perf_counter(), time.process_time()
        for _ in range(count):
            before = time.perf_counter()
            queue.ack(queue.lease(1))
            latencies.append(time.perf_counter() - before)
        return latencies, time.perf_counter() - began, time.process_time() - used
