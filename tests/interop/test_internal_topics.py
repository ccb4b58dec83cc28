"""Kafka's internal topics, as unmodified clients read them; what Kafka's own tools print of them
is in tests/ecosystem."""

from __future__ import annotations

import json
import warnings
from contextlib import closing
from importlib import import_module
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import TOPIC, make_topic, publish, quiet
from tests.unit.wire.coordinator_decoder import decode_offset_key, decode_offset_value

# kafka-python warns of its own old calls.
with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    kafka: Any = import_module("kafka")

OFFSETS = "__consumer_offsets"
POLLS_MAX = 300

# Group, topic, partition; the offset, or None: forgotten.
Seen = tuple[str, str, int, int | None]


def commit(bootstrap: str, group: str, offset: int, partition: int = 0, topic: str = TOPIC) -> None:
    with closing(Consumer({**quiet(bootstrap), "group.id": group})) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)


def seen(key: bytes | None, value: bytes | None) -> Seen:
    assert key is not None
    return (*decode_offset_key(key), None if value is None else decode_offset_value(value).offset)


def first_of(consumer: Consumer) -> Message:
    for _ in range(POLLS_MAX):
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None
            return message
    raise AssertionError("nothing came")


class Follower:
    """A lag exporter: it reads all of the topic and then what comes."""

    def __init__(self, bootstrap: str, isolation: str = "read_committed", start: int = 0) -> None:
        self.consumer = Consumer(
            {
                **quiet(bootstrap),
                "group.id": "never used",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self.consumer.assign([TopicPartition(OFFSETS, 0, start)])
        self.next_offset = start

    def read(self, count: int) -> list[Seen]:
        found: list[Seen] = []
        for _ in range(POLLS_MAX):
            if len(found) == count:
                return found
            message: Message | None = self.consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.append(seen(message.key(), message.value()))
                self.next_offset = (message.offset() or 0) + 1
        raise AssertionError(f"only {found} came")


def test_a_lag_exporter_follows_commits_as_they_are_made(node: NodeProcess) -> None:
    make_topic(node.bootstrap)
    publish(node.bootstrap, map(str, range(100)))
    commit(node.bootstrap, "billing", 1)
    commit(node.bootstrap, "shipping", 2, partition=3)
    follower = Follower(node.bootstrap)
    with closing(follower.consumer):
        assert follower.read(2) == [("billing", TOPIC, 0, 1), ("shipping", TOPIC, 3, 2)]
        commit(node.bootstrap, "billing", 3)
        assert follower.read(1) == [("billing", TOPIC, 0, 3)]
        node.restart(kill=True)
        commit(node.bootstrap, "billing", 4)
        assert follower.read(1) == [("billing", TOPIC, 0, 4)]
    # Another one that comes later finds the same at the same offsets.
    later = Follower(node.bootstrap, start=follower.next_offset - 1)
    with closing(later.consumer):
        assert later.read(1) == [("billing", TOPIC, 0, 4)]


def test_offsets_of_transactions_are_followed_when_they_are_committed(node: NodeProcess) -> None:
    make_topic(node.bootstrap)
    publish(node.bootstrap, map(str, range(100)))
    settings = {**quiet(node.bootstrap), "group.id": "billing", "auto.offset.reset": "earliest"}
    committed = Follower(node.bootstrap)
    everything = Follower(node.bootstrap, "read_uncommitted")
    with (
        closing(Consumer(settings)) as consumer,
        closing(committed.consumer),
        closing(everything.consumer),
    ):
        consumer.subscribe([TOPIC])
        first_of(consumer)
        producer = Producer({**quiet(node.bootstrap), "transactional.id": "payments"})
        producer.init_transactions()
        for offset, end in (
            (5, producer.commit_transaction),
            (6, producer.abort_transaction),
            (7, producer.commit_transaction),
        ):
            producer.begin_transaction()
            producer.send_offsets_to_transaction(
                [TopicPartition(TOPIC, 0, offset)], consumer.consumer_group_metadata()
            )
            end()
        assert [each[3] for each in committed.read(2)] == [5, 7]
        assert [each[3] for each in everything.read(3)] == [5, 6, 7]


def test_who_reads_past_a_deleted_topic_gets_on(node: NodeProcess) -> None:
    """kafka-python and librdkafka alike, over a batch in which nothing is left to show."""
    make_topic(node.bootstrap)
    publish(node.bootstrap, map(str, range(100)))
    commit(node.bootstrap, "billing", 1)
    admin = AdminClient(quiet(node.bootstrap))
    admin.delete_topics([TOPIC])[TOPIC].result()
    make_topic(node.bootstrap)
    publish(node.bootstrap, map(str, range(100)))
    commit(node.bootstrap, "billing", 2)
    expected = [("billing", TOPIC, 0, None), ("billing", TOPIC, 0, 2)]
    follower = Follower(node.bootstrap)
    with closing(follower.consumer):
        assert follower.read(2) == expected
    with closing(
        kafka.KafkaConsumer(
            bootstrap_servers=node.bootstrap,
            auto_offset_reset="earliest",
            exclude_internal_topics=False,
            consumer_timeout_ms=30_000,
        )
    ) as consumer:
        consumer.assign([kafka.TopicPartition(OFFSETS, 0)])
        records = (next(consumer) for _ in range(2))
        assert [seen(each.key, each.value) for each in records] == expected


def test_a_group_reads_them_as_any_topic(node: NodeProcess) -> None:
    make_topic(node.bootstrap)
    publish(node.bootstrap, map(str, range(100)))
    commit(node.bootstrap, "billing", 1)
    for protocol in ("classic", "consumer"):
        settings = {
            **quiet(node.bootstrap),
            "group.id": f"tool of {protocol}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        with closing(Consumer(settings)) as consumer:
            consumer.subscribe([OFFSETS])
            found = first_of(consumer)
            assert seen(found.key(), found.value()) == ("billing", TOPIC, 0, 1)
            consumer.commit(message=found, asynchronous=False)
            (position,) = consumer.committed([TopicPartition(OFFSETS, 0)], timeout=30)
            assert position.offset == 1


def test_tools_list_them_as_internal_and_cannot_delete_them(node: NodeProcess) -> None:
    make_topic(node.bootstrap)
    commit(node.bootstrap, "billing", 0)
    admin = AdminClient(quiet(node.bootstrap))
    assert set(admin.list_topics(timeout=30).topics) == {OFFSETS, TOPIC}
    (described,) = admin.describe_topics(TopicCollection([OFFSETS])).values()
    assert described.result().is_internal
    (deleted,) = admin.delete_topics([OFFSETS]).values()
    with pytest.raises(KafkaException, match="TOPIC_EXCEPTION"):
        deleted.result()
    with closing(kafka.KafkaAdminClient(bootstrap_servers=node.bootstrap)) as other:
        sizes = json.dumps(other.describe_log_dirs(), default=str)
        assert OFFSETS in sizes
        assert "__cursors" not in sizes
