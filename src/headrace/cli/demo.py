"""`headrace demo`: a node at work, in under two minutes.

    node        a process of its own, on a free port, on real files
    metrics     a generator at a steady rate, and Spark that starts to roll them up
    produce     a Kafka producer that knows nothing of us publishes orders
    stream      a Kafka consumer group reads all of them
    work        workers of a queue group, in Python: some orders fail, are tried again,
                and in the end are dead letters
    triage      Spark says what the dead letters have in common, in a report
    redrive     the dead letters go back to the group, now that the bug is fixed
    roll up     the metrics as minutes, 5 minutes and hours; every one is accounted for
    crash       the node is killed with SIGKILL under a producer and started again

Whatever was promised is counted; a promise that was not kept makes the exit code 1. A
step is a function in `demo_steps.STEPS`: it gets the demo, does its part, and leaves
its numbers there. What a step needs and does not find is said and skipped.
"""

from __future__ import annotations

import os
import shutil
import time

import click

from headrace.cli.command import command
from headrace.cli.demo_clients import CLIENTS, find_client
from headrace.cli.demo_metrics import SPARK_STEPS
from headrace.cli.demo_node import DemoNode
from headrace.cli.demo_steps import STEPS, Demo
from headrace.cli.demo_words import say
from headrace.cli.output import print_table, shown_bytes

ORDERS = 20_000


@command(None, "demo", on_files=True, examples="headrace demo\nheadrace demo --orders 100000")
@click.option(
    "--orders",
    type=click.IntRange(min=1_000),
    default=ORDERS,
    show_default=True,
    help="How many to publish.",
)
@click.option(
    "--client",
    type=click.Choice(CLIENTS),
    help="Which Kafka client.  [default: whichever is installed]",
)
@click.option("--spark/--no-spark", default=True, help="With metrics and triage on Spark, or not.")
def demo(orders: int, client: str | None, spark: bool, directory: str) -> int:
    """See a node with Kafka clients, workers that fail, metrics on Spark and a crash."""
    from headrace.core.extras import require

    require("uvloop", "server")
    folder = os.path.abspath(".demo")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    started = time.perf_counter()
    with DemoNode(folder) as node:
        say(f"a node is ready at {node.address}, {node.start_seconds:.2f} s after its command")
        running = Demo(node, folder, orders, find_client(client))
        for step in STEPS:
            if spark or step not in SPARK_STEPS:
                step(running)
        usage = node.usage()
    say(f"done in {time.perf_counter() - started:.1f} s\n")
    numbers: list[tuple[str, object]] = list(running.numbers.items())
    if usage is not None:
        numbers.append(("CPU seconds of the node", f"{usage.cpu_seconds:.1f}"))
        numbers.append(("memory of the node", shown_bytes(usage.memory_bytes)))
    print_table(("what", "how much"), numbers)
    click.echo()
    checks = running.checks
    print_table(
        ("promise", "expected", "found", ""),
        [(*check, "ok" if check[1] == check[2] else "BROKEN") for check in checks],
    )
    _say_where_to_look(node.data, running)
    return 0 if all(expected == found for _, expected, found in checks) else 1


def _say_where_to_look(data: str, running: Demo) -> None:
    place = os.path.relpath(data)
    click.echo(
        "\nLook around, in the files:\n"
        f"  headrace --data {place} queue stats billing\n"
        f"  headrace --data {place} consume orders --count 3\n"
        f"  headrace --data {place} log verify\n"
        "or start the node again and ask it, also with Kafka's own tools:\n"
        f"  headrace serve --data {place} --kafka 127.0.0.1:9092\n"
        "  headrace --server 127.0.0.1:9092 group list"
    )
    if running.metrics is not None and running.report is not None:
        lake = os.path.relpath(os.path.join(running.folder, "lake"))
        click.echo(
            "and at what Spark made:\n"
            f"  {os.path.relpath(running.report)}   the triage of the dead letters, for a browser\n"
            f"  {lake}/rollup_1h   a Delta table; docs/pipelines.md says what is in it"
        )
