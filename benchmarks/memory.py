"""What a pending message costs in memory.

    1  everything is published, no group reads it     the log alone: nothing to hold
    2  a group has seen all of it                     (2 - 1) / messages
    3  some are leased                                (3 - 1) / messages

Measured in a fresh process, as the private memory that the kernel counts for it.
"""

from __future__ import annotations

import ctypes
import gc
import time
from pathlib import Path

import headrace
from benchmarks import child
from benchmarks.samples import OURS, Sample
from benchmarks.sizes import VALUE_BYTES, Sizes

BATCH = 1_000


def memory(place: Path, sizes: Sizes) -> list[Sample]:
    samples = []
    for kind, delay in (("ready", None), ("delayed", 3600)):
        folder = place / kind
        folder.mkdir(parents=True)
        found = child.run(
            "memory.bytes_per_message",
            folder=str(folder), messages=sizes.pending, leased=sizes.leased, delay=delay,
        )  # fmt: skip
        samples += [Sample(OURS, what, "B/msg", value) for what, value in found.items()]
    return samples


def bytes_per_message(
    folder: str, messages: int, leased: int, delay: float | None
) -> dict[str, float]:
    with headrace.open(folder) as handle:
        handle.create_topic("bench")
        due = None if delay is None else time.time() + delay
        for _ in range(0, messages, BATCH):
            handle.publish_many("bench", [b"x" * VALUE_BYTES] * BATCH, deliver_at=due)
        if due is not None:
            return {"delayed": _growth_of_group(handle, messages)}
        before = _private_bytes()
        with handle.queue("bench", leases_per_consumer_max=leased) as queue:
            assert queue.depth() == messages
            seen = _private_bytes() - before
            held = 0
            while held < leased:
                held += len(queue.lease(min(100, leased - held)))
            some_leased = _private_bytes() - before
    return {"pending": seen / messages, "pending, some leased": some_leased / messages}


def _growth_of_group(handle: headrace.Headrace, messages: int) -> float:
    before = _private_bytes()
    with handle.queue("bench") as queue:
        assert queue.depth() == messages
        return (_private_bytes() - before) / messages


def _private_bytes() -> int:
    gc.collect()
    # What was freed but kept by the allocator would count as growth or hide it.
    ctypes.CDLL(None).malloc_trim(0)
    total = 0
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith(("Private_Clean:", "Private_Dirty:")):
            total += int(line.split()[1]) * 1024
    return total
