"""Members of the bench's group, as the Kafka door would speak for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.unit.engine.conftest import Bench

from headrace.engine.sharing import Acknowledgement, Acquired
from headrace.record import build_batch, check_batch, read_header, read_records, split_batches
from headrace.record.record import NewRecord


class Shares:
    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    @property
    def _broker(self) -> Any:
        return self.bench.node._broker

    def acquire_all(
        self, member: str = "m1", count: int = 500, bytes_max: int = 2**20, more: int = 0
    ) -> list[Acquired]:
        with self.bench.node._writing() as (now_ms, _):
            topic = self._broker.topics.named(self.bench.topic)
            found: list[Acquired] = self._broker.sharing.acquire(
                self._broker.groups.named(self.bench.group),
                self._broker.topics.partitions(topic),
                member, count, bytes_max, now_ms, more,
            )  # fmt: skip
            return found

    def acquire(
        self, member: str = "m1", count: int = 500, bytes_max: int = 2**20, more: int = 0
    ) -> list[tuple[int, int, int]]:
        """The ranges of the only partition."""
        found = self.acquire_all(member, count, bytes_max, more)
        return found[0].ranges if found else []

    def settle(self, *ranges: tuple[int, int, Sequence[int]], member: str = "m1") -> None:
        with self.bench.node._writing() as (now_ms, commit):
            self._broker.sharing.acknowledge(
                self._broker.groups.named(self.bench.group),
                self.bench.partition(),
                member,
                [Acknowledgement(*each) for each in ranges],
                now_ms,
                commit,
            )

    def close(self, member: str) -> None:
        with self.bench.node._writing() as (now_ms, _):
            group = self._broker.groups.named(self.bench.group)
            self._broker.sharing.release_all(group, member, now_ms)

    def lose(self, member: str) -> None:
        with self.bench.node._writing() as (now_ms, commit):
            group = self._broker.groups.named(self.bench.group)
            self._broker.sharing.end_leases(group, member, now_ms, commit)

    def letters(self) -> int:
        return len(self.bench.node.dead_letters(self.bench.topic))


def offsets_in(found: Acquired) -> list[int]:
    """The offsets of all records in the batches that were sent."""
    offsets = []
    for batch in found.batches:
        for position, header in split_batches(batch):
            check_batch(batch, position)
            offsets += [
                record.offset for record in read_records(memoryview(batch)[position:], header)
            ]
    return offsets


def publish_batch(bench: Bench, count: int, **options: Any) -> None:
    """One batch of so many records, as a client sends it."""
    records = [
        NewRecord(b"k%d" % n, b"value %d" % n, (("h", b"v"),), timestamp_ms=1000 + n)
        for n in range(count)
    ]
    with bench.node._writing() as (now_ms, commit):
        batch = build_batch(records, **options)
        partition = bench.partition()
        partition.append(batch, read_header(batch), now_ms)
        commit.data.append((partition, partition.log.end_offset))
