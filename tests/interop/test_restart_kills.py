"""A node that is killed under load and comes back: nothing is lost, doubled or
reordered, and clients that know nothing of it go on.

    producer   idempotent, numbers each partition's records from 0
    consumer   a member of a group, reads while the node dies
    at the end a fresh reader counts what is in the log
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from functools import partial

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import make_topic, quiet, tell, wait_until

TOPIC = "ledger"
PARTITIONS = 3
KILLS = 15 if os.environ.get("HEADRACE_LONG") == "1" else 3
ACKS_BETWEEN_KILLS = 20_000


def place_of(message: Message) -> tuple[int, int, int]:
    """Partition, offset and the number that its producer gave it."""
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    assert value is not None
    return partition, offset, int(value)


class Load:
    """An idempotent producer that never stops by itself."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                **quiet(bootstrap),
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
            }
        )
        self.sent = [0] * PARTITIONS
        self.acked: dict[int, set[int]] = defaultdict(set)
        self.failed: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            for partition in range(PARTITIONS):
                number = self.sent[partition]
                try:
                    self._producer.produce(
                        TOPIC, b"%d" % number, partition=partition, callback=self._on_delivery
                    )
                    self.sent[partition] += 1
                except BufferError:
                    self._producer.poll(0.05)
            self._producer.poll(0)
            if sum(self.sent) - self.acked_count() > 3_000:
                self._producer.poll(0.02)
        self._producer.flush(60)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            partition, _, number = place_of(message)
            self.acked[partition].add(number)
            tell()

    def acked_count(self) -> int:
        return sum(len(numbers) for numbers in list(self.acked.values()))

    def has_acked(self, count: int) -> bool:
        return self.acked_count() >= count

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(90)


class Reader:
    """A group member that reads while the node comes and goes."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                **quiet(bootstrap),
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 200,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
            }
        )
        self.seen: dict[int, list[int]] = defaultdict(list)
        self.offsets: dict[int, int] = {}
        self.surprises: list[str] = []
        self.is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._consumer.subscribe([TOPIC])
        while not self.is_over.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None:
                    self._note(message)
            tell()
        self._consumer.close()

    def _note(self, message: Message) -> None:
        partition, offset, number = place_of(message)
        # A member that joins anew reads again from what it committed last; but
        # what lies at an offset is the same whenever it is read.
        if offset <= self.offsets.get(partition, -1):
            if self.seen[partition][offset] != number:
                self.surprises.append(f"{partition}:{offset} has changed")
            return
        if offset != self.offsets.get(partition, -1) + 1:
            self.surprises.append(f"{partition}:{offset} after {self.offsets.get(partition)}")
        self.offsets[partition] = offset
        self.seen[partition].append(number)

    def count(self) -> int:
        return sum(len(numbers) for numbers in list(self.seen.values()))

    def has_seen(self, count: int) -> bool:
        return self.count() >= count

    def stop(self) -> None:
        self.is_over.set()
        self._thread.join(30)


def read_all(bootstrap: str) -> dict[int, list[int]]:
    consumer = Consumer({**quiet(bootstrap), "group.id": "audit", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found: dict[int, list[int]] = defaultdict(list)
    at_end: set[int] = set()
    deadline = time.monotonic() + 60
    while len(at_end) < PARTITIONS and time.monotonic() < deadline:
        for message in consumer.consume(1_000, 0.2):
            error = message.error()
            if error is None:
                partition, _, number = place_of(message)
                found[partition].append(number)
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition() or 0)
    consumer.close()
    return found


def test_kills_under_load_lose_double_and_reorder_nothing(node: NodeProcess) -> None:
    make_topic(node.bootstrap, TOPIC, PARTITIONS)
    load, reader = Load(node.bootstrap), Reader(node.bootstrap)
    try:
        for _ in range(KILLS):
            before = load.acked_count(), reader.count()
            # Acks and reads have to go on after each restart before the next kill.
            wait_until(partial(load.has_acked, before[0] + ACKS_BETWEEN_KILLS), "acks", 60)
            wait_until(partial(reader.has_seen, before[1] + 1), "the reader goes on", 60)
            node.restart(kill=True)
        before_end = load.acked_count()
        wait_until(lambda: load.has_acked(before_end + 500), "acks after the restart", 60)
        load.stop()
        assert load.failed == []
        assert [len(load.acked[index]) for index in range(PARTITIONS)] == load.sent
        stored = read_all(node.bootstrap)
        for index in range(PARTITIONS):
            assert stored[index] == list(range(load.sent[index]))
        wait_until(lambda: reader.has_seen(sum(load.sent)), "the reader has it all", 60)
        assert reader.surprises == []
        for index in range(PARTITIONS):
            assert reader.seen[index] == stored[index]
    finally:
        load.stop()
        reader.stop()


def test_a_graceful_stop_under_load_is_clean_and_loses_nothing(node: NodeProcess) -> None:
    make_topic(node.bootstrap, TOPIC, PARTITIONS)
    load = Load(node.bootstrap)
    try:
        wait_until(lambda: load.has_acked(1_000), "acks", 60)
        node.stop()
        assert node.process.returncode == 0
        node.restart()
        before_end = load.acked_count()
        wait_until(lambda: load.has_acked(before_end + 500), "acks after the restart", 60)
        load.stop()
        assert load.failed == []
        stored = read_all(node.bootstrap)
        for index in range(PARTITIONS):
            assert stored[index] == list(range(load.sent[index]))
    finally:
        load.stop()
