"""One-record requests, which cost the broker its full way through for every message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.kafka.bench import Bench
from benchmarks.kafka.brokers import Broker
from benchmarks.kafka.report import Line, at_least

# One connection that keeps a window full, and many that have one request each.
SHAPES = {"pipelined": {"connections": 1, "depth": 256}, "in turn": {"connections": 32, "depth": 1}}


def one_record(bench: Bench) -> Iterator[Line]:
    found: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        plain = stack.enter_context(bench.own("headrace", is_plain=True))
        systems: dict[str, Broker] = {"plain": plain}
        systems |= {broker.name: broker for broker in bench.brokers()}
        for _ in range(bench.sizes.runs):
            for shape, options in SHAPES.items():
                for system, broker in systems.items():
                    with broker.topic(1, "os") as topic:
                        load = bench.generator.run(
                            "raw-produce", broker, topic.name, messages=bench.sizes.requests,
                            **options,
                        )  # fmt: skip
                    rate = load.messages / load.broker_cpu_seconds
                    found.setdefault((shape, system), []).append(rate)
                    bench.progress(f"{system:9}{shape:12}{rate:10,.0f} requests a CPU-second")
    for shape in SHAPES:
        is_judged = shape == "pipelined"
        for system, what, wanted in (
            ("plain", "plain Python", 60_000),
            ("headrace", "compiled", 300_000),
        ):
            options = SHAPES[shape]
            yield Line(
                f"{what}, {shape}: {options['connections']} x {options['depth']}",
                "requests/CPU-s",
                found[shape, system],
                found.get((shape, "kafka"), []),
                at_least(wanted) if is_judged else None,
            )
