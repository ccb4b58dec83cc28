"""Starting, restarting and standing still: time, memory, and processor while idle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from benchmarks.kafka.bench import Bench
from benchmarks.kafka.brokers import Broker, Durability
from benchmarks.kafka.report import Line, at_most
from benchmarks.kafka.wire import Wire, seconds_until_produced
from headrace.wire.kafka.generated import metadata_request as metadata

PARTITIONS = 6
METADATA_CALLS = 5
DURABILITIES: tuple[Durability, ...] = ("synced", "os")


class Started(NamedTuple):
    """A broker that has just taken its first message."""

    seconds: float
    cpu_seconds: float
    megabytes: float


def start(bench: Bench) -> Iterator[Line]:
    bench.pause_shared()
    found: dict[str, list[Started]] = {}
    for name in bench.names():
        with bench.own(name) as broker:
            broker.make_topics(broker.admin(), {"first": 1}, {})
            for _ in range(bench.sizes.runs):
                broker.stop()
                found.setdefault(name, []).append(_started(bench, broker, "first"))
    peer = found.get(bench.peer, [])
    yield Line(
        "from the command to the first produce",
        "s",
        [each.seconds for each in found["headrace"]],
        [each.seconds for each in peer],
        at_most(1),
        _cpu_note(found["headrace"]),
    )
    yield Line(
        "memory after start",
        "MB",
        [each.megabytes for each in found["headrace"]],
        [each.megabytes for each in peer],
        at_most(80),
    )


def restart(bench: Bench) -> Iterator[Line]:
    bench.pause_shared()
    messages = bench.sizes.restart
    for durability in DURABILITIES:
        found: dict[tuple[str, str], Started] = {}
        for name in bench.names():
            with bench.own(name) as broker:
                configs = broker.durability(durability)
                broker.make_topics(broker.admin(), {"full": PARTITIONS}, configs)
                # The kill finds a log that was written to since it was opened.
                for end, more in (("stop", messages), ("kill -9", messages // 10)):
                    bench.generator.run(
                        "produce", broker, "full", messages=more, partitions=PARTITIONS
                    )
                    if end == "stop":
                        broker.stop()
                    else:
                        broker.kill()
                    found[name, end] = _started(bench, broker, "full")
        for end in ("stop", "kill -9"):
            ours, peer = found["headrace", end], found.get((bench.peer, end))
            yield Line(
                f"{messages:,} messages, {durability}, after {end}: to the first produce",
                "s",
                [ours.seconds],
                [peer.seconds] if peer else [],
                at_most(1),
                _cpu_note([ours]),
            )


def _started(bench: Bench, broker: Broker, topic: str) -> Started:
    seconds = seconds_until_produced(broker, topic)
    started = Started(seconds, broker.cpu_seconds(), broker.memory_bytes() / 1e6)
    bench.progress(
        f"{broker.name:9}{seconds:.2f} s, of which {started.cpu_seconds:.2f} on a processor; "
        f"{started.megabytes:.0f} MB"
    )
    return started


def _cpu_note(started: list[Started]) -> str:
    """On a machine that others keep busy, a start is mostly waiting for a turn."""
    return f"{median(each.cpu_seconds for each in started):.2f} s on a processor"


def many_partitions(bench: Bench) -> Iterator[Line]:
    bench.pause_shared()
    sizes = bench.sizes
    topics = {f"topic-{number}": sizes.partitions_per_topic for number in range(sizes.topics)}
    found: dict[str, tuple[float, float, float, float]] = {}
    for name in bench.names():
        with bench.own(name) as broker:
            broker.make_topics(broker.admin(), topics, {})
            broker.stop()
            seconds = _started(bench, broker, "topic-0").seconds
            answered = _metadata_ms(broker, sum(topics.values()))
            idle = _idle_share(broker, sizes.idle_seconds)
            found[name] = seconds, answered, idle, broker.memory_bytes() / 1e6
            bench.progress(
                f"{name:9}metadata {answered:.0f} ms, idle {idle:.1f} %, {found[name][3]:.0f} MB"
            )
    total = f"{sum(topics.values()):,} partitions"
    for place, (what, unit, target) in enumerate(
        (
            ("start to the first produce", "s", 5.0),
            ("full metadata", "ms", 200.0),
            ("processor while idle", "% of a core", 2.0),
            ("memory", "MB", 400.0),
        )
    ):
        peer = [found[bench.peer][place]] if bench.peer in found else []
        yield Line(f"{total}: {what}", unit, [found["headrace"][place]], peer, at_most(target))


def _metadata_ms(broker: Broker, partitions: int) -> float:
    """From the request to the last byte of the answer; what is in it is checked."""
    request = metadata.MetadataRequest(None, False)
    taken = []
    with Wire(broker) as wire:
        for _ in range(METADATA_CALLS):
            began = time.perf_counter()
            answer = wire.exchange("Metadata", 12, request)
            taken.append(time.perf_counter() - began)
        found = wire.decode("Metadata", 12, answer)
    counted = sum(len(topic.partitions) for topic in found.topics if not topic.is_internal)
    if counted != partitions:
        raise RuntimeError(f"{broker.name} knows {counted} of {partitions} partitions")
    return median(taken) * 1000


def _idle_share(broker: Broker, seconds: float) -> float:
    """In percent of a core, when what a start brings with it is over."""
    time.sleep(seconds / 4)
    began, used = time.perf_counter(), broker.cpu_seconds()
    time.sleep(seconds)
    return (broker.cpu_seconds() - used) / (time.perf_counter() - began) * 100
