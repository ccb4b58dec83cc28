"""`headrace bench`: how fast is it here, in a few seconds.

Publishes, leases and acks on a directory that is made for this and deleted after,
through the SDK as any program would; on a node, in a topic and a group that are made
for this and deleted after. It says something about this machine and its disk; numbers
to compare releases by come from the benchmarks in the repository.

One message after the other, while somebody waits for them:

    publish()                     returns           in the consumer's hands
       |------- publish ------------|                        |
       |                            |------ deliver ---------|
       |--------------- end to end --------------------------|

Then many at a time, for the throughput:

    publish batches    as fast as they are taken
    lease and ack      until all of them are done
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from headrace.cli import output
from headrace.cli.command import (
    BLOCK_SECONDS_MAX,
    Place,
    command,
    json_option,
)
from headrace.cli.completing import folders
from headrace.cli.histogram import SHARES, Histogram
from headrace.core.errors import HeadraceError, UnknownGroup

if TYPE_CHECKING:
    from headrace.client.handle import Headrace

# The latency of one message, in the order in which it happens.
SINGLE = ("publish", "deliver", "end to end")


@command(
    None,
    "bench",
    examples="""
    headrace bench
    headrace bench --messages 1000000 --size 1000 --in /mnt/fast
    headrace bench --durability interval --json
    headrace bench --server 127.0.0.1:9092
    """,
)
@click.option("--messages", type=click.IntRange(min=1), default=100_000, show_default=True)
@click.option("--size", type=click.IntRange(min=0), default=100, show_default=True, help="Bytes.")
@click.option("--batch", type=click.IntRange(1, 10_000), default=1_000, show_default=True)
@click.option(
    "--single",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    help="Messages that are published one by one, for the latency.",
)
@click.option("--partitions", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--durability",
    type=click.Choice(["synced", "interval", "os"]),
    default="synced",
    show_default=True,
)
@click.option(
    "--in",
    "parent",
    metavar="DIR",
    shell_complete=folders,
    help="Where to make the directory: on which disk.",
)
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
    if parent is not None and not os.path.isdir(parent):
        raise click.UsageError(f"there is no directory {parent!r}; --in names one that is there")
    with _temporary_topic(place, parent, partitions, durability) as (handle, consumer, topic):
        rounds = [
            *_measure_single(handle, consumer, topic, single, size),
            _publish_batches(handle, topic, messages, batch, size),
            _work(handle, topic, batch),
        ]
    if as_json:
        parameters = {"size_bytes": size, "partitions": partitions, "durability": durability}
        output.write_json(parameters | {"rounds": [one.document() for one in rounds]})
        return
    _print(rounds)


def _print(rounds: list[Round]) -> None:
    shares = [f"p{share:g}" for share in SHARES]
    output.print_table(
        [
            "round",
            "batch",
            "messages",
            "messages/s",
            *(f"{share} ms" for share in shares),
            "max ms",
        ],
        [
            [
                one.name,
                one.batch,
                one.messages,
                round(one.rate),
                *(one.latency.percentile_ms(share) for share in SHARES),
                one.latency.most_ms,
            ]
            for one in rounds
        ],
    )
    for one in rounds:
        of_what = "a message" if one.name in SINGLE else f"a call of {one.batch:,}"
        click.echo(f"\n{one.name}, milliseconds {of_what}:")
        for line in one.latency.lines():
            click.echo(line)


@contextmanager
def _temporary_topic(
    place: Place, parent: str | None, partitions: int, durability: str
) -> Iterator[tuple[Headrace, Headrace, str]]:
    """Who publishes, who consumes, and where. On a node they are two connections, as
    they would be."""
    import headrace

    name = f"bench-{secrets.token_hex(4)}"
    if not place.server:
        with (
            tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=parent) as path,
            headrace.open(path) as handle,
        ):
            handle.create_topic(name, partitions=partitions, durability=durability)
            yield handle, handle, name
        return
    with headrace.connect(place.server) as handle, headrace.connect(place.server) as consumer:
        handle.create_topic(name, partitions=partitions, durability=durability)
        try:
            yield handle, consumer, name
        finally:
            with contextlib.suppress(UnknownGroup):
                handle.delete_group(name)
            handle.delete_topic(name)


class Round:
    """How long each call took, and how many messages they moved in all."""

    def __init__(self, name: str, batch: int) -> None:
        self.name = name
        self.batch = batch
        self.messages = 0
        self.seconds = 0.0
        self.latency = Histogram()

    def add(self, messages: int, seconds: float) -> None:
        self.messages += messages
        self.seconds += seconds
        self.latency.add(seconds)

    @property
    def rate(self) -> float:
        return self.messages / max(self.seconds, 1e-9)

    def document(self) -> dict[str, Any]:
        latency = self.latency
        return {
            "name": self.name,
            "batch": self.batch,
            "messages": self.messages,
            "messages_per_second": round(self.rate, 1),
            **{
                f"p{share:g}_ms".replace(".", "_"): round(latency.percentile_ms(share), 3)
                for share in SHARES
            },
            "max_ms": round(latency.most_ms, 3),
            "histogram": [
                {"from_ms": row.from_ms, "to_ms": row.to_ms, "calls": row.calls}
                for row in latency.rows()
            ],
        }


# One by one.


class _Consumer(threading.Thread):
    """Waits for messages and notes when each was there."""

    def __init__(self, handle: Headrace, topic: str, count: int) -> None:
        super().__init__(name="headrace-bench", daemon=True)
        self.arrived: dict[str, float] = {}
        self.failed: HeadraceError | None = None
        self._queue = handle.queue(topic, group=topic)
        self._count = count
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            with self._queue as queue:
                while len(self.arrived) < self._count and not self._stopping.is_set():
                    messages = queue.receive(wait=BLOCK_SECONDS_MAX)
                    at = time.perf_counter()
                    for message in messages:
                        # A second delivery is none that anybody waited for.
                        self.arrived.setdefault(str(message.id), at)
                    queue.ack(messages)
        except HeadraceError as error:
            self.failed = error

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def _measure_single(
    handle: Headrace, consumer: Headrace, topic: str, count: int, size: int
) -> list[Round]:
    rounds = {name: Round(name, 1) for name in SINGLE}
    waiting = _Consumer(consumer, topic, count)
    waiting.start()
    sent: dict[str, tuple[float, float]] = {}
    try:
        with output.progress("one by one", count) as bar:
            for _ in range(count):
                began = time.perf_counter()
                published = handle.publish(topic, bytes(size))
                sent[str(published.id)] = began, time.perf_counter()
                bar.advance(1)
        while waiting.is_alive() and len(waiting.arrived) < count:
            waiting.join(BLOCK_SECONDS_MAX)
    finally:
        waiting.stop()
    if waiting.failed is not None:
        raise waiting.failed
    for id, (began, returned) in sent.items():
        arrived = waiting.arrived[id]
        rounds["publish"].add(1, returned - began)
        rounds["deliver"].add(1, max(0.0, arrived - returned))
        rounds["end to end"].add(1, arrived - began)
    # They were under way at the same time, so the rate is that of the whole.
    whole = max(waiting.arrived.values()) - min(began for began, _ in sent.values())
    for name in ("deliver", "end to end"):
        rounds[name].seconds = whole
    return list(rounds.values())


# Many at a time.


def _publish_batches(handle: Headrace, topic: str, messages: int, batch: int, size: int) -> Round:
    done = Round("publish batches", batch)
    with output.progress("publishing", messages) as bar:
        for start in range(0, messages, batch):
            values = [bytes(size)] * min(batch, messages - start)
            began = time.perf_counter()
            handle.publish_many(topic, values)
            done.add(len(values), time.perf_counter() - began)
            bar.advance(len(values))
    return done


def _work(handle: Headrace, topic: str, batch: int) -> Round:
    done = Round("lease and ack", batch)
    with handle.queue(topic, group=topic, leases_per_consumer_max=batch) as queue:
        with output.progress("working", queue.depth()) as bar:
            while True:
                began = time.perf_counter()
                messages = queue.lease(batch)
                if not messages:
                    return done
                queue.ack(messages)
                done.add(len(messages), time.perf_counter() - began)
                bar.advance(len(messages))
