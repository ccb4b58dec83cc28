"""How long an open takes after kill -9.

A process fills a directory, acks some, delays some, leases some and kills itself.
Another opens the directory: recovery, replay, the end of the leases and the import
of the engine, which the first open brings, included. The page cache is warm, as it
is after a crash of a process.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import headrace
from benchmarks import child
from benchmarks.samples import OURS, Sample
from benchmarks.sizes import VALUE_BYTES, Sizes

BATCH = 1_000


def reopen(place: Path, sizes: Sizes) -> list[Sample]:
    place.mkdir(parents=True)
    child.run(
        "reopen.fill_and_die",
        folder=str(place), messages=sizes.pending, acked=sizes.acked, delayed=sizes.delayed,
        leased=sizes.leased,
    )  # fmt: skip
    found = child.run("reopen.open_again", folder=str(place), expected=sizes.pending - sizes.acked)
    return [Sample(OURS, what, "s", seconds) for what, seconds in found.items()]


def fill_and_die(folder: str, messages: int, acked: int, delayed: int, leased: int) -> None:
    handle = headrace.open(folder)
    handle.create_topic("bench")
    value = b"x" * VALUE_BYTES
    now = time.time()
    for start in range(0, messages - delayed, BATCH):
        handle.publish_many("bench", [value] * min(BATCH, messages - delayed - start))
    for start in range(0, delayed, BATCH):
        handle.publish_many(
            "bench",
            [
                headrace.NewMessage(value, deliver_at=now + 3600 + number / 100)
                for number in range(start, min(start + BATCH, delayed))
            ],
        )
    queue = handle.queue("bench", leases_per_consumer_max=max(leased, BATCH) + BATCH)
    done = 0
    while done < acked:
        taken = queue.lease(min(100, acked - done))
        queue.ack(taken)
        done += len(taken)
    held = 0
    while held < leased:
        held += len(queue.lease(min(100, leased - held)))
    os.kill(os.getpid(), signal.SIGKILL)


def open_again(folder: str, expected: int) -> dict[str, float]:
    began, used = time.perf_counter(), time.process_time()
    handle = headrace.open(folder)
    opened, used = time.perf_counter(), time.process_time() - used
    queue = handle.queue("bench")
    [first] = queue.lease(1)
    leased = time.perf_counter()
    queue.release(first)
    depth = queue.depth()
    assert depth == expected, f"{depth} messages are pending instead of {expected}"
    handle.close()
    return {
        "open": opened - began,
        "open, process time": used,
        "open to first lease": leased - began,
    }
