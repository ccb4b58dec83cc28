"""How long a message takes until it is on disk, at a steady rate, beside what one sync
of the same disk takes; and the same while old data is cleared away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import median

from benchmarks import machine
from benchmarks.kafka.bench import Bench
from benchmarks.kafka.brokers import CALL_SECONDS, Broker
from benchmarks.kafka.generator import Load
from benchmarks.kafka.report import Line, at_most
from benchmarks.sizes import FULL

# Messages a second, and what half of them and nearly all of them have to keep to.
RATES = {1_000: (1.0, 5.0), 10_000: (2.0, 10.0)}
PARTITIONS = (1, 6)
BUSY_RATE = 1_000
BUSY_P99_MS = 20.0
LARGE = 1024


def latency(bench: Bench) -> Iterator[Line]:
    for rate, partitions in product(RATES, PARTITIONS):
        found: dict[str, list[Load]] = {}
        syncs: list[tuple[float, float]] = []
        for _ in range(bench.sizes.runs):
            syncs.append(_sync_of_disk(bench))
            for broker in bench.brokers():
                with broker.topic(partitions) as topic:
                    load = bench.generator.run(
                        "latency", broker, topic.name, rate=rate, seconds=bench.sizes.seconds,
                        partitions=partitions,
                    )  # fmt: skip
                found.setdefault(broker.name, []).append(load)
                bench.progress(
                    f"{broker.name:9}{rate:7,}/s on {partitions}: "
                    f"p50 {load.p50_ms:.2f} ms, p99 {load.p99_ms:.2f} ms"
                )
        note = (
            f"one fdatasync: p50 {median(p50 for p50, _ in syncs):.2f}, "
            f"p99 {median(p99 for _, p99 in syncs):.2f} ms; "
            f"broker {median(load.cores for load in found['headrace']):.2f} core"
        )
        what = f"{rate:,} msg/s on {partitions} partition{'s' if partitions > 1 else ''}"
        peer = found.get(bench.peer, [])
        yield Line(
            f"{what}, p50",
            "ms",
            [load.p50_ms for load in found["headrace"]],
            [load.p50_ms for load in peer],
            at_most(RATES[rate][0]),
            note,
        )
        yield Line(
            f"{what}, p99",
            "ms",
            [load.p99_ms for load in found["headrace"]],
            [load.p99_ms for load in peer],
            at_most(RATES[rate][1]),
        )


def _sync_of_disk(bench: Bench) -> tuple[float, float]:
    bench.place.mkdir(parents=True, exist_ok=True)
    place = bench.place / "probe"
    found = machine.fdatasync(place, FULL._replace(syncs=bench.sizes.syncs))
    for file in place.iterdir():
        file.unlink()
    place.rmdir()
    p50, p99 = (sample.value for sample in found)
    return p50, p99


def latency_while_clearing(bench: Bench) -> Iterator[Line]:
    """Half of the data is compacted, the other half deleted, while messages come."""
    found: dict[str, Load] = {}
    cleared: dict[str, str] = {}
    for broker in bench.brokers():
        with ExitStack() as stack:
            kept = {"segment.bytes": str(64 * 1024 * 1024), "retention.ms": "-1"}
            topics = [stack.enter_context(broker.topic(2, configs=kept)).name for _ in range(2)]
            quiet = stack.enter_context(broker.topic(1)).name
            messages = max(1, bench.sizes.compact_bytes // 2 // LARGE)
            for name in topics:
                bench.generator.run(
                    "produce", broker, name, messages=messages, size=LARGE, partitions=2,
                    keys=max(1, messages // 10),
                )  # fmt: skip
            before = _bytes_in(broker.place)
            bench.progress(f"{broker.name:9}{before / 1e9:.2f} GB are there; clearing begins")
            _configure(broker, topics[0], {"cleanup.policy": "compact"})
            _configure(broker, topics[1], {"retention.bytes": "1"})
            load = bench.generator.run(
                "latency", broker, quiet, rate=BUSY_RATE, seconds=bench.sizes.compact_seconds
            )
            after = _bytes_in(broker.place)
        found[broker.name] = load
        cleared[broker.name] = f"{before / 1e9:.2f} GB became {after / 1e9:.2f}"
        bench.progress(
            f"{broker.name:9}p50 {load.p50_ms:.2f}, p99 {load.p99_ms:.2f}, at most "
            f"{load.max_ms:.0f} ms; {cleared[broker.name]}"
        )
    peer = [found[bench.peer]] if bench.peer in found else []
    note = "; ".join(f"{name}: {text}" for name, text in cleared.items())
    for what, target, values in (
        ("p99", at_most(BUSY_P99_MS), lambda load: load.p99_ms),
        ("longest", None, lambda load: load.max_ms),
    ):
        yield Line(
            f"{BUSY_RATE:,} msg/s while data is compacted and deleted, {what}",
            "ms",
            [values(found["headrace"])],
            [values(load) for load in peer],
            target,
            note if what == "p99" else "",
        )


def _configure(broker: Broker, topic: str, values: Mapping[str, str]) -> None:
    from confluent_kafka.admin import (
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = broker.admin()
    admin.incremental_alter_configs([resource])[resource].result(CALL_SECONDS)


def _bytes_in(place: Path) -> int:
    """What the files of a broker take on disk; some may go while they are counted."""
    total = 0
    for path in place.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total
