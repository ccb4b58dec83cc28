"""Messages per second and what they cost the broker, through librdkafka; and the bytes
that a processor second moves when the client is not in the way."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import product
from statistics import median

from benchmarks.kafka.bench import Bench
from benchmarks.kafka.brokers import Broker, Durability
from benchmarks.kafka.generator import Load
from benchmarks.kafka.report import Line, at_least, at_most

SMALL, LARGE = 100, 1024
CODECS = ("none", "lz4")
PARTITIONS = (1, 6)
DURABILITIES: tuple[Durability, ...] = ("os", "synced")

# Records of 100 bytes in a batch that just fits the megabyte that brokers take.
BATCH_RECORDS = 9_000


def throughput(bench: Bench) -> Iterator[Line]:
    for size, codec, partitions in product((SMALL, LARGE), CODECS, PARTITIONS):
        produced: dict[tuple[str, str], list[Load]] = {}
        consumed: dict[str, list[Load]] = {}
        for _ in range(bench.sizes.runs):
            for durability, broker in product(DURABILITIES, bench.brokers()):
                sent, received = _round_trip(bench, broker, durability, size, codec, partitions)
                produced.setdefault((durability, broker.name), []).append(sent)
                consumed.setdefault(broker.name, []).append(received)
        where = f"{size} B, {codec}, {_counted(partitions)}"
        for durability in DURABILITIES:
            yield from _lines(
                f"produce {where}, {durability}",
                produced[durability, "headrace"],
                produced.get((durability, bench.peer), []),
                targets=(2e6, 0.20) if size == SMALL else None,
            )
        yield from _lines(
            f"consume {where}",
            consumed["headrace"],
            consumed.get(bench.peer, []),
            targets=(2e6, 0.08) if size == SMALL else None,
        )


def _round_trip(
    bench: Bench, broker: Broker, durability: Durability, size: int, codec: str, partitions: int
) -> tuple[Load, Load]:
    messages = bench.sizes.small if size == SMALL else bench.sizes.large
    with broker.topic(partitions, durability) as topic:
        sent, received = (
            bench.generator.run(
                mode, broker, topic.name, messages=messages, size=size, codec=codec,
                partitions=partitions,
            )
            for mode in ("produce", "consume")
        )  # fmt: skip
    bench.progress(
        f"{broker.name:9}{size:5} B {codec:5}{partitions} {durability:7}"
        f"{sent.per_second:12,.0f} and {received.per_second:12,.0f} msg/s, "
        f"{sent.cpu_per_million:.3f} and {received.cpu_per_million:.3f} CPU-s a million"
    )
    return sent, received


def _lines(
    what: str, ours: list[Load], peer: list[Load], targets: tuple[float, float] | None
) -> Iterator[Line]:
    is_client_limited = median(load.is_client_limited for load in ours) > 0.5
    yield Line(
        what,
        "msg/s",
        [load.per_second for load in ours],
        [load.per_second for load in peer],
        at_least(targets[0], unless=is_client_limited) if targets else None,
        use_of(ours),
    )
    yield Line(
        what,
        "CPU-s/million",
        [load.cpu_per_million for load in ours],
        [load.cpu_per_million for load in peer],
        at_most(targets[1]) if targets else None,
    )


def use_of(loads: list[Load]) -> str:
    busiest = median(load.busiest for load in loads)
    cores = median(load.cores for load in loads)
    return f"client's busiest thread {busiest:.0%}, broker {cores:.2f} core"


def raw_batches(bench: Bench) -> Iterator[Line]:
    found: dict[tuple[str, str], list[float]] = {}
    kernel: list[float] = []
    messages = bench.sizes.batches * BATCH_RECORDS
    for _ in range(bench.sizes.runs):
        kernel.append(_kernel_write(bench))
        bench.progress(f"{'the kernel alone':21}{kernel[-1]:6.2f} GB a CPU-second")
        for broker in bench.brokers():
            with broker.topic(1, "os") as topic:
                for mode, requests in (("raw-produce", 0), ("raw-fetch", bench.sizes.fetches)):
                    load = bench.generator.run(
                        mode, broker, topic.name, messages=messages, records=BATCH_RECORDS,
                        depth=4, rate=requests,
                    )  # fmt: skip
                    moved = load.bytes / 1e9 / load.broker_cpu_seconds
                    found.setdefault((mode, broker.name), []).append(moved)
                    bench.progress(f"{broker.name:9}{mode:12}{moved:6.2f} GB a CPU-second")
    alone = f"writing alone, without a broker: {median(kernel):.2f}"
    for mode, wanted, note in (("raw-produce", 1.0, alone), ("raw-fetch", 2.5, "")):
        yield Line(
            f"{mode.removeprefix('raw-')} batches of 1 MB",
            "GB/CPU-s",
            found[mode, "headrace"],
            found.get((mode, bench.peer), []),
            at_least(wanted),
            note,
        )


def _kernel_write(bench: Bench) -> float:
    """What writing the same bytes into a file costs a process that does nothing else.
    The best of three: fresh memory of a virtual machine can cost more than the copy."""
    bench.place.mkdir(parents=True, exist_ok=True)
    path = bench.place / "probe"
    block = bytes(1_000_000)
    used = []
    for _ in range(3):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            began = time.process_time()
            for number in range(bench.sizes.batches):
                os.pwrite(descriptor, block, number * len(block))
            used.append(time.process_time() - began)
        finally:
            os.close(descriptor)
            path.unlink()
    return bench.sizes.batches * len(block) / 1e9 / min(used)


def _counted(partitions: int) -> str:
    return f"{partitions} partition{'s' if partitions > 1 else ''}"
