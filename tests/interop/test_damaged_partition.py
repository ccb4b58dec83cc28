"""A segment is gone when a node starts: real clients read and write all other partitions, and
with the file back a consumer goes on where it was."""

from __future__ import annotations

from typing import Self

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import TOPIC, make_topic, quiet

import headrace
from headrace.inspect import read_catalog
from headrace.platform.clock import SystemClock


def produce(node: NodeProcess, partition: int, value: str) -> str | None:
    """What the node says to it, by the name of the error."""
    errors: list[KafkaError | None] = []
    producer = Producer({**quiet(node.bootstrap), "message.timeout.ms": 3_000})
    producer.produce(
        TOPIC, value, partition=partition, on_delivery=lambda error, _: errors.append(error)
    )
    producer.flush()
    [error] = errors
    return None if error is None else error.name()


class Billing:
    """A consumer of a group that begins at the end where it is told that it is out of range."""

    def __init__(self, node: NodeProcess) -> None:
        group = {"group.id": "billing", "auto.offset.reset": "latest"}
        self._consumer = Consumer({**quiet(node.bootstrap), **group, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(TOPIC, index) for index in range(2)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def commit(self, offset: int) -> None:
        places = [TopicPartition(TOPIC, index, offset) for index in range(2)]
        self._consumer.commit(offsets=places, asynchronous=False)

    def read(self, count: int) -> list[str]:
        values: list[str] = []
        while len(values) < count:
            message = self._consumer.poll(30)
            assert message is not None, f"nothing came behind {values}"
            if message.error() is None:
                values.append((message.value() or b"").decode())
        return sorted(values)


def leased(node: NodeProcess) -> list[str]:
    """What a queue is given, and done with."""
    with headrace.connect(node.bootstrap) as handle, handle.queue(TOPIC, group="jobs") as queue:
        messages = queue.lease(10)
        queue.ack(messages)
        return sorted(bytes(message.value).decode() for message in messages)


def test_one_missing_file_stops_one_partition(node: NodeProcess) -> None:
    make_topic(node.bootstrap, partitions=2)
    for partition in range(2):
        for number in range(3):
            assert produce(node, partition, f"{partition}-{number}") is None
    with Billing(node) as billing:
        billing.commit(1)
    node.stop()
    folder = read_catalog(str(node.data), SystemClock().now_ms()).topics[TOPIC].folder
    [segment] = (node.data / folder / "0").glob("*.log")
    away = segment.rename(node.data.parent / "away.log")
    node.restart()
    assert produce(node, 0, "refused") is not None
    assert produce(node, 1, "1-3") is None
    with Billing(node) as billing:
        assert billing.read(3) == ["1-1", "1-2", "1-3"]
    # A queue that opens meanwhile has the other partition, and this one when it is back.
    assert leased(node) == ["1-0", "1-1", "1-2", "1-3"]
    node.stop()
    away.rename(segment)
    node.restart()
    assert produce(node, 0, "0-3") is None
    with Billing(node) as billing:
        assert billing.read(6) == ["0-1", "0-2", "0-3", "1-1", "1-2", "1-3"]
    assert leased(node) == ["0-0", "0-1", "0-2", "0-3"]
