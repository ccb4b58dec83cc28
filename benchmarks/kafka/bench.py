"""What rows are given: the brokers, the generator, the sizes and a place on disk."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.kafka.apache import Kafka
from benchmarks.kafka.brokers import Before, Broker, Headrace
from benchmarks.kafka.generator import Generator
from benchmarks.kafka.sizes import Sizes
from benchmarks.maven import NoJars

# Partitions of the topic that brokers are warmed up with.
WARM_PARTITIONS = 6


class Bench:
    def __init__(
        self,
        place: Path,
        sizes: Sizes,
        generator: Generator,
        *,
        kafka: bool,
        before: Path | None = None,
    ) -> None:
        self.sizes = sizes
        self.generator = generator
        self.place = place / "brokers"
        shutil.rmtree(self.place, ignore_errors=True)
        # Why there is no Apache Kafka beside ours, if there is none.
        self.no_kafka = "" if kafka and not before else "not asked for"
        # The checkout whose node is measured beside ours in Kafka's place.
        self._before = before
        # The name of the broker that ours is compared with.
        self.peer = Before.name if before else Kafka.name
        self._running: dict[str, Broker] = {}
        self._numbers = 0

    def close(self) -> None:
        for broker in self._running.values():
            broker.stop()
        shutil.rmtree(self.place, ignore_errors=True)

    def progress(self, text: str) -> None:
        print(f"    {text}", file=sys.stderr, flush=True)

    def brokers(self) -> list[Broker]:
        """Ours and its peer, if it can be had, both warm; the same ones for every row."""
        return [self._warm(name) for name in self.names()]

    def ours(self) -> Broker:
        return self._warm("headrace")

    def names(self) -> list[str]:
        has_peer = self._before is not None or (not self.no_kafka and self._has_kafka())
        return [Headrace.name, self.peer] if has_peer else [Headrace.name]

    def _has_kafka(self) -> bool:
        if "kafka" not in self._running:
            try:
                Kafka(self.place)
            except NoJars as error:
                self.no_kafka = str(error)
                self.progress(f"without Apache Kafka: {error}")
                return False
        return True

    def _warm(self, name: str) -> Broker:
        if name not in self._running:
            broker = self.new(name)
            self.progress(f"starting and warming up {name}")
            broker.start()
            self._running[name] = broker
            for codec in ("none", "lz4"):
                with broker.topic(WARM_PARTITIONS, "os") as topic:
                    for mode in ("produce", "consume"):
                        self.generator.run(
                            mode, broker, topic.name, messages=self.sizes.warm,
                            partitions=WARM_PARTITIONS, codec=codec,
                        )  # fmt: skip
        return self._running[name]

    def new(self, name: str, *, is_plain: bool = False) -> Broker:
        """A broker with an empty directory of its own, not started."""
        self._numbers += 1
        place = self.place / f"{name}-{self._numbers}"
        if name == Kafka.name:
            return Kafka(place)
        if name == Before.name and self._before is not None:
            return Before(place, self._before)
        return Headrace(place, is_plain=is_plain)

    @contextmanager
    def own(self, name: str, *, is_plain: bool = False) -> Iterator[Broker]:
        """A new broker for one row alone, running; ended and removed afterwards."""
        broker = self.new(name, is_plain=is_plain)
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()
            shutil.rmtree(broker.place, ignore_errors=True)

    def pause_shared(self) -> None:
        """End the brokers that rows share: rows about memory and restarts want the
        machine for themselves."""
        while self._running:
            self._running.popitem()[1].stop()
