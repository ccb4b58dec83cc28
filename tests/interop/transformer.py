"""A program that consumes, transforms and produces in transactions, to be disturbed.

    python -m tests.interop.transformer CLIENT BOOTSTRAP NAME COUNT SEED

It reads the partitions of `inputs`, which have COUNT records each, and writes for each
record one to the same partition of `outputs`, a few at a time; the outputs and the
offsets of the inputs are one transaction. Every now and then it aborts one and reads
its inputs again. Each step is told by a line on standard output before it is taken, so
that a test knows when to strike:

    ready      the producer has its epoch
    begin, produced, offsets, commit or abort, ended

Exit code 0 when every input is done, 3 when the client gave up: the program is started
again then, as an operator would have it started. CLIENT is confluent, aiokafka or
kafka-python; the Java clients run Transformer.java, which does the same.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import random
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

INPUTS, OUTPUTS = "inputs", "outputs"
PARTITIONS = 3
# Records in one transaction, and how many of them are aborted.
RECORDS_MAX = 8
ABORTS = 0.25
TIMEOUT_MS = 10_000
SECONDS = 30.0


def tell(step: str) -> None:
    print(step, flush=True)


class Confluent:
    def __init__(self, bootstrap: str, name: str, count: int, chance: random.Random) -> None:
        common = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "error_cb": lambda error: None,
            "reconnect.backoff.max.ms": 500,
            # When its only broker goes, librdkafka 2.16 otherwise begins anew and
            # then waits for ever for the coordinator of the offsets that it forgot.
            "metadata.recovery.strategy": "none",
        }
        self._count = count
        self._chance = chance
        self._consumer = Consumer(
            {
                **common,
                "group.id": name,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._producer = Producer(
            {**common, "transactional.id": name, "transaction.timeout.ms": TIMEOUT_MS}
        )

    def run(self) -> None:
        self._producer.init_transactions(SECONDS)
        tell("ready")
        places = [TopicPartition(INPUTS, index) for index in range(PARTITIONS)]
        self._places = [
            TopicPartition(INPUTS, each.partition, max(each.offset, 0))
            for each in self._consumer.committed(places, SECONDS)
        ]
        self._consumer.assign(self._places)
        while any(each.offset < self._count for each in self._places):
            found = self._consumer.consume(self._chance.randint(1, RECORDS_MAX), 0.2)
            if any(message.error() for message in found):
                raise KafkaException(found[0].error())
            if found:
                self._transform(found)
        self._consumer.close()

    def _transform(self, found: list[Any]) -> None:
        tell("begin")
        self._producer.begin_transaction()
        ends = {each.partition: each.offset for each in self._places}
        for message in found:
            self._producer.produce(OUTPUTS, message.value(), partition=message.partition())
            ends[message.partition()] = message.offset() + 1
        tell("produced")
        after = [TopicPartition(INPUTS, index, end) for index, end in ends.items()]
        self._producer.send_offsets_to_transaction(
            after, self._consumer.consumer_group_metadata(), SECONDS
        )
        tell("offsets")
        if self._chance.random() < ABORTS:
            tell("abort")
            self._producer.abort_transaction(SECONDS)
            self._consumer.assign(self._places)
        else:
            tell("commit")
            self._producer.commit_transaction(SECONDS)
            self._places = after
        tell("ended")


class KafkaPython:
    def __init__(self, bootstrap: str, name: str, count: int, chance: random.Random) -> None:
        kafka: Any = importlib.import_module("kafka")
        self._places = [kafka.TopicPartition(INPUTS, index) for index in range(PARTITIONS)]
        self._offset = importlib.import_module("kafka.structs").OffsetAndMetadata
        self._count = count
        self._chance = chance
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=name,
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=name,
            transaction_timeout_ms=TIMEOUT_MS,
            delivery_timeout_ms=30_000,
        )

    def run(self) -> None:
        self._producer.init_transactions()
        tell("ready")
        self._consumer.assign(self._places)
        done = {each: self._consumer.committed(each) or 0 for each in self._places}
        self._rewind(done)
        while any(end < self._count for end in done.values()):
            most = self._chance.randint(1, RECORDS_MAX)
            polled = self._consumer.poll(timeout_ms=1_000, max_records=most)
            found = [record for records in polled.values() for record in records]
            if found:
                done = self._transform(found, done)

    def _rewind(self, done: dict[Any, int]) -> None:
        for place, end in done.items():
            self._consumer.seek(place, end)

    def _transform(self, found: list[Any], done: dict[Any, int]) -> dict[Any, int]:
        tell("begin")
        self._producer.begin_transaction()
        after = dict(done)
        for record in found:
            self._producer.send(OUTPUTS, record.value, partition=record.partition)
            after[self._places[record.partition]] = record.offset + 1
        tell("produced")
        offsets = {place: self._offset(end, "", -1) for place, end in after.items()}
        self._producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())
        tell("offsets")
        if self._chance.random() < ABORTS:
            tell("abort")
            self._producer.abort_transaction()
            self._rewind(done)
            after = done
        else:
            tell("commit")
            self._producer.commit_transaction()
        tell("ended")
        return after


class Aiokafka:
    def __init__(self, bootstrap: str, name: str, count: int, chance: random.Random) -> None:
        self._library: Any = importlib.import_module("aiokafka")
        self._bootstrap = bootstrap
        self._name = name
        self._count = count
        self._chance = chance

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        places = [self._library.TopicPartition(INPUTS, index) for index in range(PARTITIONS)]
        producer = self._library.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            transactional_id=self._name,
            transaction_timeout_ms=TIMEOUT_MS,
        )
        consumer = self._library.AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=self._name,
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        await producer.start()
        await consumer.start()
        tell("ready")
        consumer.assign(places)
        done = {each: await consumer.committed(each) or 0 for each in places}
        for place, end in done.items():
            consumer.seek(place, end)
        while any(end < self._count for end in done.values()):
            most = self._chance.randint(1, RECORDS_MAX)
            polled = await consumer.getmany(timeout_ms=1_000, max_records=most)
            found = [record for records in polled.values() for record in records]
            if found:
                done = await self._transform(producer, consumer, found, done)
        await producer.stop()
        await consumer.stop()

    async def _transform(
        self, producer: Any, consumer: Any, found: list[Any], done: dict[Any, int]
    ) -> dict[Any, int]:
        tell("begin")
        await producer.begin_transaction()
        after = dict(done)
        sent = []
        for record in found:
            sent.append(await producer.send(OUTPUTS, record.value, partition=record.partition))
            after[self._library.TopicPartition(INPUTS, record.partition)] = record.offset + 1
        tell("produced")
        await asyncio.gather(*sent)
        await producer.send_offsets_to_transaction(after, self._name)
        tell("offsets")
        if self._chance.random() < ABORTS:
            tell("abort")
            await producer.abort_transaction()
            for place, end in done.items():
                consumer.seek(place, end)
            after = done
        else:
            tell("commit")
            await producer.commit_transaction()
        tell("ended")
        return after


CLIENTS: dict[str, Any] = {
    "confluent": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}


def main() -> None:
    client, bootstrap, name, count, seed = sys.argv[1:]
    logging.disable()
    chance = random.Random(int(seed))
    try:
        CLIENTS[client](bootstrap, name, int(count), chance).run()
    except Exception as error:
        # Clients have errors of many kinds; what they mean is: start again.
        tell(f"gave up: {error!r}")
        # Their threads would go on trying to bring what cannot be brought any more.
        sys.stdout.flush()
        os._exit(3)
    os._exit(0)


if __name__ == "__main__":
    main()
