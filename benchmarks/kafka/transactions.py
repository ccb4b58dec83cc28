"""Transactions: how many a node ends in a second, what one costs beside the same writes
without it, and what it costs to read only what was committed.

    producers    begin, 100 x 100 B over 3 partitions, commit; and again     1 and 10 at once
    cost         1,000 messages in a transaction / 1,000 messages and a flush, in turns
    reading      read_committed / read_uncommitted, over a log of committed transactions

Producers and readers are confluent-kafka's, each in a thread of its own. Everything is
durable: of Kafka the topic of transactions syncs every write, too, as ours does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from statistics import median
from typing import Any, NamedTuple

from benchmarks.kafka.bench import Bench
from benchmarks.kafka.brokers import CALL_SECONDS, Broker
from benchmarks.kafka.report import Line, at_least, at_most

PARTITIONS = 3
VALUE = b"x" * 100
MESSAGES = 100
PRODUCERS = (1, 10)
# The target for ten producers.
PER_SECOND = 1_000
# A transaction that is compared with the same writes without it.
COMPARED = 1_000
LEVELS = ("read_committed", "read_uncommitted")
READ_AT_ONCE = 10_000
READ_SECONDS = 60.0
# How often each level reads the log in one run.
READ_TIMES = 3


class Ended(NamedTuple):
    transactions: int
    seconds: float
    broker_cpu_seconds: float

    @property
    def per_second(self) -> float:
        return self.transactions / self.seconds

    @property
    def cpu_ms(self) -> float:
        return self.broker_cpu_seconds / self.transactions * 1000


def transactions(bench: Bench) -> Iterator[Line]:
    ended: dict[tuple[int, str], list[Ended]] = {}
    costs: dict[tuple[str, str], list[float]] = {}
    reads: dict[tuple[str, str], list[float]] = {}
    for number in range(bench.sizes.runs):
        for broker in bench.brokers():
            _prepare(broker)
            for producers in PRODUCERS:
                found = _end_many(bench, broker, producers, number)
                ended.setdefault((producers, broker.name), []).append(found)
                bench.progress(
                    f"{broker.name:9}{producers:2} producers {found.per_second:7,.0f} "
                    f"transactions/s, {found.cpu_ms:.2f} CPU-ms each"
                )
            for what, value in _compare_writes(bench, broker, number).items():
                costs.setdefault((what, broker.name), []).append(value)
                bench.progress(f"{broker.name:9}{what} {value:.2f}")
            for what, value in _compare_reads(bench, broker, number).items():
                reads.setdefault((what, broker.name), []).append(value)
                bench.progress(f"{broker.name:9}{what} {value:.2f}")
    for producers in PRODUCERS:
        ours = ended[producers, "headrace"]
        peer = ended.get((producers, bench.peer), [])
        what = f"{MESSAGES} x 100 B over {PARTITIONS} partitions, {producers} at once"
        yield Line(
            what,
            "transactions/s",
            [each.per_second for each in ours],
            [each.per_second for each in peer],
            at_least(PER_SECOND) if producers > 1 else None,
            f"{median(each.broker_cpu_seconds / each.seconds for each in ours):.2f} cores",
        )
        yield Line(
            what,
            "CPU-ms/transaction",
            [each.cpu_ms for each in ours],
            [each.cpu_ms for each in peer],
        )
    for what in dict.fromkeys(name for name, _ in costs):
        target = at_most(2) if what.startswith("time") else None
        yield Line(
            what, "x", costs[what, "headrace"], costs.get((what, bench.peer), []), target
        )  # fmt: skip
    for what in dict.fromkeys(name for name, _ in reads):
        target = at_most(1.1) if what.startswith("time") else None
        yield Line(
            what, "x", reads[what, "headrace"], reads.get((what, bench.peer), []), target
        )  # fmt: skip


def _producer(broker: Broker, transactional_id: str | None) -> Any:
    from confluent_kafka import Producer

    kind = {"transactional.id": transactional_id} if transactional_id else {}
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 2,
            **kind,
        }
    )
    if transactional_id:
        producer.init_transactions(CALL_SECONDS)
    return producer


def _prepare(broker: Broker) -> None:
    """Make the broker have its topic of transactions, as durable as what they write."""
    from confluent_kafka.admin import (
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    _producer(broker, "prepare")
    if broker.name != "kafka":
        return
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in broker.durability("synced").items()
    ]
    resource = ConfigResource(
        ResourceType.TOPIC, "__transaction_state", incremental_configs=entries
    )
    # It has to live until it is answered.
    admin = broker.admin()
    admin.incremental_alter_configs([resource])[resource].result(CALL_SECONDS)


def _send(producer: Any, topic: str, messages: int) -> None:
    for number in range(messages):
        producer.produce(topic, VALUE, partition=number % PARTITIONS)


def _transact(producer: Any, topic: str, messages: int) -> None:
    producer.begin_transaction()
    _send(producer, topic, messages)
    producer.commit_transaction(CALL_SECONDS)


def _end_many(bench: Bench, broker: Broker, producers: int, run: int) -> Ended:
    """For as long as the sizes say, by so many producers."""
    counts = [0] * producers
    failures: list[BaseException] = []
    start = threading.Barrier(producers + 1)
    over = threading.Event()
    with broker.topic(PARTITIONS) as topic:

        def work(number: int) -> None:
            try:
                producer = _producer(broker, f"many-{run}-{producers}-{number}")
                _transact(producer, topic.name, MESSAGES)
                start.wait(CALL_SECONDS)
                while not over.is_set():
                    _transact(producer, topic.name, MESSAGES)
                    counts[number] += 1
            except BaseException as error:
                failures.append(error)
                start.abort()

        threads = [threading.Thread(target=work, args=(each,)) for each in range(producers)]
        for thread in threads:
            thread.start()
        try:
            start.wait(CALL_SECONDS)
            cpu, began = broker.cpu_seconds(), time.perf_counter()
            over.wait(bench.sizes.seconds)
            # What is under way is ended and counted, and so is its time.
        finally:
            over.set()
            for thread in threads:
                thread.join()
        seconds = time.perf_counter() - began
        used = broker.cpu_seconds() - cpu
    if failures:
        raise failures[0]
    return Ended(sum(counts), seconds, used)


def _compare_writes(bench: Bench, broker: Broker, run: int) -> dict[str, float]:
    """How often as much a transaction takes, beside idempotent writes and a flush."""
    with broker.topic(PARTITIONS) as topic:
        inside = _producer(broker, f"compared-{run}")
        plain = _producer(broker, None)
        seconds = {"inside": 0.0, "plain": 0.0}
        cpu = {"inside": 0.0, "plain": 0.0}

        def write(kind: str) -> None:
            if kind == "inside":
                _transact(inside, topic.name, COMPARED)
            else:
                _send(plain, topic.name, COMPARED)
                plain.flush(CALL_SECONDS)

        for kind in seconds:
            write(kind)
        end = time.perf_counter() + bench.sizes.seconds
        # In turns, so that a busy moment hits both.
        while time.perf_counter() < end:
            for kind in seconds:
                used, began = broker.cpu_seconds(), time.perf_counter()
                write(kind)
                seconds[kind] += time.perf_counter() - began
                cpu[kind] += broker.cpu_seconds() - used
    what = f"of a transaction of {COMPARED:,} messages, beside idempotent writes"
    return {
        f"time {what}": seconds["inside"] / seconds["plain"],
        f"broker CPU {what}": cpu["inside"] / cpu["plain"],
    }


def _compare_reads(bench: Bench, broker: Broker, run: int) -> dict[str, float]:
    """The same log, read by both levels of isolation, in turns."""
    count = max(1, bench.sizes.committed // COMPARED)
    with broker.topic(PARTITIONS) as topic:
        producer = _producer(broker, f"read-{run}")
        for _ in range(count):
            _transact(producer, topic.name, COMPARED)
        seconds = dict.fromkeys(LEVELS, 0.0)
        cpu = dict.fromkeys(LEVELS, 0.0)
        # Whoever reads first pays for what is cold.
        _read(broker, topic.name, LEVELS[-1], count * COMPARED)
        for _ in range(READ_TIMES):
            for level in LEVELS:
                used, began = broker.cpu_seconds(), time.perf_counter()
                _read(broker, topic.name, level, count * COMPARED)
                seconds[level] += time.perf_counter() - began
                cpu[level] += broker.cpu_seconds() - used
    what = "of reading with read_committed, beside read_uncommitted"
    committed, uncommitted = LEVELS
    return {
        f"time {what}": seconds[committed] / seconds[uncommitted],
        f"broker CPU {what}": cpu[committed] / cpu[uncommitted],
    }


def _read(broker: Broker, topic: str, level: str, messages: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reading",
            "isolation.level": level,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "log_level": 2,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
        deadline, left = time.monotonic() + READ_SECONDS, messages
        while left > 0:
            # Only so many as there are: for more it would wait.
            left -= len(consumer.consume(min(left, READ_AT_ONCE), 1.0))
            if time.monotonic() > deadline:
                raise RuntimeError(f"{left} of {messages} messages were not read ({level})")
    finally:
        consumer.close()
