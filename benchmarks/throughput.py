"""Messages a second: publishing and working, one at a time and in batches.

Each run takes every system in turn, so that a noisy minute hits them all. A system
works for a fixed time and its finished messages are counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.samples import OURS, Sample, percentile
from benchmarks.sizes import VALUE_BYTES, Sizes
from benchmarks.systems import SYSTEMS, System

VALUE = b"x" * VALUE_BYTES


def publish_one(place: Path, sizes: Sizes) -> list[Sample]:
    """Many threads, each waits for its one message to be durable."""
    samples = []
    for system in _each(place):
        latencies = _publish_in_threads(system, sizes)
        rate = len(latencies) / sizes.seconds
        samples += [
            Sample(system.name, "publish", "msg/s", rate),
            Sample(system.name, "p50", "ms", percentile(latencies, 0.50) * 1000),
            Sample(system.name, "p99", "ms", percentile(latencies, 0.99) * 1000),
        ]
    return samples


def publish_many(place: Path, sizes: Sizes) -> list[Sample]:
    values = [VALUE] * sizes.publish_batch
    samples = []
    for system in _each(place):
        batches = 0
        began = time.perf_counter()
        while (elapsed := time.perf_counter() - began) < sizes.seconds or not batches:
            system.publish_many(values)
            batches += 1
        samples.append(Sample(system.name, "publish", "msg/s", batches * len(values) / elapsed))
    return samples


def work_many(place: Path, sizes: Sizes) -> list[Sample]:
    return _work(place, sizes, sizes.work_batch)


def work_one(place: Path, sizes: Sizes) -> list[Sample]:
    return _work(place, sizes, 1)


def _work(place: Path, sizes: Sizes, count: int) -> list[Sample]:
    samples = []
    for system in _each(place):
        backlog = sizes.backlog if system.name == OURS else sizes.peer_backlog
        for _ in range(0, backlog, sizes.publish_batch):
            system.publish_many([VALUE] * min(sizes.publish_batch, backlog))
        done = 0
        began = time.perf_counter()
        while time.perf_counter() - began < sizes.seconds:
            finished = system.work(count)
            if not finished:
                break
            done += finished
        elapsed = time.perf_counter() - began
        samples.append(Sample(system.name, "lease and ack", "msg/s", done / elapsed))
    return samples


def _publish_in_threads(system: System, sizes: Sizes) -> list[float]:
    """The latency of every message that was published in the time given."""
    latencies: list[list[float]] = [[] for _ in range(sizes.threads)]
    ready = threading.Barrier(sizes.threads)

    def publish(mine: list[float]) -> None:
        ready.wait()
        end = time.perf_counter() + sizes.seconds
        began = time.perf_counter()
        while began < end:
            system.publish(VALUE)
            now = time.perf_counter()
            mine.append(now - began)
            began = now

    threads = [threading.Thread(target=publish, args=(mine,)) for mine in latencies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [latency for mine in latencies for latency in mine]


def _each(place: Path) -> Iterator[System]:
    for make in SYSTEMS:
        with _opened(make(_folder(place, make.__name__))) as system:
            yield system


def _folder(place: Path, name: str) -> Path:
    folder = place / name
    folder.mkdir(parents=True)
    return folder


@contextmanager
def _opened(system: System) -> Iterator[System]:
    try:
        yield system
    finally:
        system.close()
