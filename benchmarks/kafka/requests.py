"""One-record requests, which cost the broker its full way through for every message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from benchmarks.kafka.bench import Bench
from benchmarks.kafka.brokers import Broker
from benchmarks.kafka.report import Line, at_least
from benchmarks.kafka.wire import count_messages

# One connection that keeps a window full, to one partition and to several in turn; and
# many connections with one request each.
SHAPES = {
    "256 under way": {"connections": 1, "depth": 256, "partitions": 1},
    "256 under way, 6 partitions in turn": {"connections": 1, "depth": 256, "partitions": 6},
    "32 connections, one at a time": {"connections": 32, "depth": 1, "partitions": 1},
}
# A client that waits for each answer is no pipeline: there is nothing to reach.
PIPELINED = 256


def one_record(bench: Bench) -> Iterator[Line]:
    found: dict[tuple[str, str], list[float]] = {}
    with bench.own("headrace", is_plain=True) as plain:
        systems: dict[str, Broker] = {"plain": plain}
        systems |= {broker.name: broker for broker in bench.brokers()}
        for _ in range(bench.sizes.runs):
            for shape, (system, broker) in product(SHAPES, systems.items()):
                rate = _requests_per_cpu_second(bench, broker, shape)
                found.setdefault((shape, system), []).append(rate)
                bench.progress(f"{system:9}{shape:36}{rate:10,.0f} requests a CPU-second")
    for shape, options in SHAPES.items():
        for system, what, wanted in (
            ("plain", "plain Python", 60_000),
            ("headrace", "compiled", 300_000),
        ):
            yield Line(
                f"{what}, {shape}",
                "requests/CPU-s",
                found[shape, system],
                found.get((shape, bench.peer), []) if system == "headrace" else [],
                at_least(wanted) if options["depth"] == PIPELINED else None,
            )


def _requests_per_cpu_second(bench: Bench, broker: Broker, shape: str) -> float:
    wanted, options = bench.sizes.requests, SHAPES[shape]
    with broker.topic(options["partitions"], "os") as topic:
        load = bench.generator.run("raw-produce", broker, topic.name, messages=wanted, **options)
        stored = count_messages(broker, topic.name, options["partitions"])
    if stored != wanted:
        raise RuntimeError(f"{broker.name} answered {wanted} requests and stored {stored}")
    return load.messages / load.broker_cpu_seconds
