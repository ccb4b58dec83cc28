"""A node beside Spark, and topics to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.interop.conftest import NodeProcess

_numbers = count()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One for all tests, which keep to topics of their own."""
    process = NodeProcess(tmp_path_factory.mktemp("node") / "data")
    yield process
    process.stop()


class Topic:
    """A topic of one test, filled by somebody else's client."""

    def __init__(self, node: NodeProcess, name: str) -> None:
        self.name = name
        self.node = node
        self._admin = AdminClient({"bootstrap.servers": node.bootstrap})

    def create(self, partitions: int, **settings: str) -> None:
        new = NewTopic(self.name, partitions, config=settings)
        self._admin.create_topics([new])[self.name].result(30)

    def delete(self) -> None:
        self._admin.delete_topics([self.name])[self.name].result(30)

    def grow(self, partitions: int) -> None:
        grown = NewPartitions(self.name, partitions)
        self._admin.create_partitions([grown])[self.name].result(30)

    def delete_before(self, offsets: Mapping[int, int]) -> None:
        """As retention would."""
        wanted = [TopicPartition(self.name, index, at) for index, at in offsets.items()]
        for done in self._admin.delete_records(wanted).values():
            done.result(30)

    def publish(
        self,
        values: Iterable[bytes],
        *,
        partition: int | None = None,
        compression: str = "none",
        transactional_id: str | None = None,
    ) -> None:
        """One value each; where no partition is named, they go round."""
        settings = {"bootstrap.servers": self.node.bootstrap, "compression.type": compression}
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        producer = Producer(settings)
        if transactional_id is not None:
            producer.init_transactions(30)
            producer.begin_transaction()
        partitions = len(self._admin.list_topics(self.name).topics[self.name].partitions)
        for number, value in enumerate(values):
            producer.produce(
                self.name, value, partition=number % partitions if partition is None else partition
            )
        if transactional_id is not None:
            producer.commit_transaction(30)
        assert producer.flush(30) == 0

    def consume(self, count: int) -> list[Message]:
        """So many records from the beginning, as a consumer of committed ones sees
        them, and none more."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.node.bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        try:
            partitions = self._admin.list_topics(self.name).topics[self.name].partitions
            consumer.assign([TopicPartition(self.name, index, 0) for index in partitions])
            found: list[Message] = []
            ended: set[int | None] = set()
            while len(ended) < len(partitions):
                for message in consumer.consume(10_000, 1):
                    error = message.error()
                    if error is None:
                        found.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ended.add(message.partition())
                    else:
                        raise AssertionError(error)
        finally:
            consumer.close()
        assert len(found) == count
        return found


@pytest.fixture
def topic(node: NodeProcess) -> Topic:
    made = Topic(node, f"topic-{next(_numbers)}")
    # Tests write records of long ago, which retention would delete under their eyes.
    made.create(2, **{"retention.ms": "-1"})
    return made
