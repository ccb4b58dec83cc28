"""`headrace bench`: how fast is it here, in a few seconds.

Publishes, leases and acks on a directory that is made for this and deleted after,
through the SDK as any program would; on a node, in a topic and a group that are made
for this and deleted after. It says something about this machine and its disk; numbers
to compare releases by come from the benchmarks in the repository.

Three rounds:
    publish one    one message a call, each waiting for the disk: the latency
    publish        batches: the throughput
    lease and ack  batches, until all of them are done
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from headrace.cli import output
from headrace.cli.command import (
    Place,
    command,
    json_option,
)
from headrace.core.errors import UnknownGroup

if TYPE_CHECKING:
    from headrace.client.handle import Headrace

BAR_CHARACTERS = 40
BUCKETS_MAX = 10


@command(
    None,
    "bench",
    examples="""
    headrace bench
    headrace bench --messages 1000000 --size 1000 --in /mnt/fast
    headrace bench --durability interval --json
    """,
)
@click.option("--messages", type=click.IntRange(min=1), default=100_000, show_default=True)
@click.option("--size", type=click.IntRange(min=0), default=100, show_default=True, help="Bytes.")
@click.option("--batch", type=click.IntRange(1, 10_000), default=1_000, show_default=True)
@click.option("--single", type=click.IntRange(min=1), default=500, show_default=True)
@click.option("--partitions", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--durability",
    type=click.Choice(["synced", "interval", "os"]),
    default="synced",
    show_default=True,
)
@click.option("--in", "parent", metavar="DIR", help="Where to make the directory: on which disk.")
@json_option
def bench(
    messages: int,
    size: int,
    batch: int,
    single: int,
    partitions: int,
    durability: str,
    parent: str | None,
    as_json: bool,
    place: Place,
) -> None:
    """Measure publishing and working, on a temporary directory or on a node."""
    if parent is not None and place.server:
        raise click.UsageError("--in chooses a disk of this machine; a node has its own")
    with _temporary_topic(place, parent, partitions, durability) as (handle, topic):
        rounds = [
            Round("publish one", 1, _publish_times(handle, topic, single, 1, size)),
            Round("publish", batch, _publish_times(handle, topic, messages, batch, size)),
            Round("lease and ack", batch, _work_times(handle, topic, batch)),
        ]
    if as_json:
        parameters = {"size_bytes": size, "partitions": partitions, "durability": durability}
        output.write_json(parameters | {"rounds": [one.document() for one in rounds]})
        return
    output.print_table(
        ["round", "batch", "messages", "messages/s", "p50 ms", "p99 ms", "max ms"],
        [
            [
                one.name,
                one.batch,
                one.messages,
                round(one.rate),
                *(one.percentile_ms(share) for share in (50, 99, 100)),
            ]
            for one in rounds
        ],
    )
    for one in rounds:
        click.echo(f"\n{one.name}, milliseconds a call:")
        for line in histogram(one.milliseconds):
            click.echo(line)


@contextmanager
def _temporary_topic(
    place: Place, parent: str | None, partitions: int, durability: str
) -> Iterator[tuple[Headrace, str]]:
    import headrace

    name = f"bench-{secrets.token_hex(4)}"
    if not place.server:
        with (
            tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=parent) as path,
            headrace.open(path) as handle,
        ):
            handle.create_topic(name, partitions=partitions, durability=durability)
            yield handle, name
        return
    with headrace.connect(place.server) as handle:
        handle.create_topic(name, partitions=partitions, durability=durability)
        try:
            yield handle, name
        finally:
            with contextlib.suppress(UnknownGroup):
                handle.delete_group(name)
            handle.delete_topic(name)


class Round:
    """How long each call took, and how many messages it moved."""

    def __init__(self, name: str, batch: int, calls: Sequence[tuple[int, float]]) -> None:
        self.name = name
        self.batch = batch
        self.messages = sum(count for count, _ in calls)
        self.milliseconds = sorted(seconds * 1000 for _, seconds in calls)
        self.rate = self.messages / max(sum(seconds for _, seconds in calls), 1e-9)

    def percentile_ms(self, share: int) -> float:
        """The smallest time that at least `share` percent of the calls kept to."""
        rank = -(-len(self.milliseconds) * share // 100)
        return self.milliseconds[max(rank, 1) - 1]

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "batch": self.batch,
            "messages": self.messages,
            "messages_per_second": round(self.rate, 1),
            "p50_ms": round(self.percentile_ms(50), 3),
            "p99_ms": round(self.percentile_ms(99), 3),
            "max_ms": round(self.percentile_ms(100), 3),
        }


def histogram(milliseconds: Sequence[float]) -> Iterator[str]:
    """One line for each doubling of time, with a bar for how many calls took it.

    What is slower than the last bucket is in the last bucket.
    """
    least = max(min(milliseconds), 0.001)
    counts: list[int] = []
    for value in milliseconds:
        bucket = 0
        while value >= least * 2 ** (bucket + 1) and bucket < BUCKETS_MAX - 1:
            bucket += 1
        counts += [0] * (bucket + 1 - len(counts))
        counts[bucket] += 1
    for bucket, count in enumerate(counts):
        bar = "#" * -(-count * BAR_CHARACTERS // max(counts))
        yield f"  from {least * 2**bucket:9.3f}  {count:7,}  {bar}"


def _publish_times(
    handle: Headrace, topic: str, messages: int, batch: int, size: int
) -> list[tuple[int, float]]:
    calls = []
    with output.progress("publishing", messages) as bar:
        for start in range(0, messages, batch):
            values = [bytes(size)] * min(batch, messages - start)
            began = time.perf_counter()
            handle.publish_many(topic, values)
            calls.append((len(values), time.perf_counter() - began))
            bar.advance(len(values))
    return calls


def _work_times(handle: Headrace, topic: str, batch: int) -> list[tuple[int, float]]:
    calls: list[tuple[int, float]] = []
    with handle.queue(topic, group=topic, leases_per_consumer_max=batch) as queue:
        with output.progress("working", queue.depth()) as bar:
            while True:
                began = time.perf_counter()
                messages = queue.lease(batch)
                if not messages:
                    return calls
                queue.ack(messages)
                calls.append((len(messages), time.perf_counter() - began))
                bar.advance(len(messages))
