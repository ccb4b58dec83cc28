"""Share groups: fetched and acknowledged, on plain sockets and through librdkafka."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from statistics import median

from benchmarks.kafka.bench import Bench
from benchmarks.kafka.generator import Load
from benchmarks.kafka.report import Line, at_least, at_most
from benchmarks.kafka.throughput import DURABILITIES, use_of

PARTITIONS = 6
# What clients ask for at once unless told otherwise; batches are written that long.
RECORDS = 500
MODES = {"raw-share": "plain sockets, 2 members", "share": "librdkafka, 1 member"}


def share(bench: Bench) -> Iterator[Line]:
    found: dict[tuple[str, str, str], list[Load]] = {}
    for number in range(bench.sizes.runs):
        for mode, durability in product(MODES, DURABILITIES):
            for broker in bench.brokers():
                group = f"group-{mode}-{durability}-{number}"
                broker.let_share_groups_begin_at_the_start(group)
                with broker.topic(PARTITIONS, durability) as topic:
                    # The last ones stay, so that nobody waits for more at the end.
                    bench.generator.run(
                        "produce", broker, topic.name, partitions=PARTITIONS, records=RECORDS,
                        messages=bench.sizes.shared + bench.sizes.shared // 5 + 10_000,
                    )  # fmt: skip
                    load = bench.generator.run(
                        mode, broker, topic.name, group=group, messages=bench.sizes.shared,
                        partitions=PARTITIONS, records=RECORDS, topic_id=topic.id, connections=2,
                    )  # fmt: skip
                found.setdefault((mode, durability, broker.name), []).append(load)
                bench.progress(
                    f"{broker.name:9}{mode:10}{durability:7}{load.per_second:10,.0f} msg/s, "
                    f"{load.cpu_per_million:.2f} CPU-s a million"
                )
    for mode, durability in product(MODES, DURABILITIES):
        what = f"fetch and acknowledge, {MODES[mode]}, {durability}"
        ours = found[mode, durability, "headrace"]
        peer = found.get((mode, durability, bench.peer), [])
        is_client_limited = median(load.is_client_limited for load in ours) > 0.5
        yield Line(
            what,
            "msg/s",
            [load.per_second for load in ours],
            [load.per_second for load in peer],
            at_least(300_000, unless=is_client_limited),
            use_of(ours),
        )
        yield Line(
            what,
            "CPU-s/million",
            [load.cpu_per_million for load in ours],
            [load.cpu_per_million for load in peer],
            at_most(0.5),
        )
