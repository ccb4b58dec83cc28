"""MirrorMaker 2 between a node and Apache Kafka, both ways at once: records, configurations and
their changes, and offsets of groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.kafka.brokers import Broker
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from tests.ecosystem.programs import (
    CALL_SECONDS,
    Program,
    make_topics,
    produce,
    reading,
    running,
    wait_until,
)
from tests.ecosystem.tools import BROKERS, java

RECORDS = 500

SETTINGS = """\
clusters=headrace,kafka
headrace.bootstrap.servers={headrace}
kafka.bootstrap.servers={kafka}
headrace->kafka.enabled=true
kafka->headrace.enabled=true
topics=of-.*
groups=readers
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
refresh.topics.interval.seconds=1
refresh.groups.interval.seconds=1
sync.topic.configs.interval.seconds=1
sync.group.offsets.enabled=true
sync.group.offsets.interval.seconds=1
emit.checkpoints.interval.seconds=1
offset.lag.max=0
dedicated.mode.enable.internal.rest=false
"""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Broker]]:
    pair = {name: make(tmp_path_factory.mktemp(name)) for name, make in BROKERS.items()}
    for broker in pair.values():
        broker.start()
    yield pair
    for broker in pair.values():
        broker.stop()


def configs(broker: Broker, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    found = admin.describe_configs([resource])[resource].result(CALL_SECONDS)
    return {name: entry.value for name, entry in found.items()}


def configure(broker: Broker, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(CALL_SECONDS)


def committed(broker: Broker, topic: str) -> int:
    """What readers have committed of the one partition; negative if nothing."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    wanted = ConsumerGroupTopicPartitions("readers", [TopicPartition(topic, 0)])
    [answer] = admin.list_consumer_group_offsets([wanted]).values()
    [partition] = answer.result(CALL_SECONDS).topic_partitions
    return int(partition.offset)


def commit_all(broker: Broker, topic: str) -> None:
    """As a group that has read everything: of what lies before, MirrorMaker translates an
    offset to one before it."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.commit(offsets=[TopicPartition(topic, 0, RECORDS)], asynchronous=False)
    consumer.close()


def test_topics_their_configurations_and_offsets_of_groups_go_both_ways(
    brokers: dict[str, Broker], tmp_path: Path
) -> None:
    addresses = {name: broker.bootstrap for name, broker in brokers.items()}
    for name, address in addresses.items():
        make_topics(address, 1, f"of-{name}", cleanup_policy="compact", retention_ms="7200000")
        produce(address, f"of-{name}", [(f"key {n}", f"value {n}", 0) for n in range(RECORDS)])
    settings = tmp_path / "mirror.properties"
    settings.write_text(SETTINGS.format(**addresses))
    mirror = Program(
        [*java(), "org.apache.kafka.connect.mirror.MirrorMaker", str(settings)],
        tmp_path / "mirror.log",
    )
    with running(mirror):
        for source, target in (("headrace", "kafka"), ("kafka", "headrace")):
            topic, copy = f"of-{source}", f"{source}.of-{source}"
            there = brokers[target]
            wait_until(lambda: configs(there, copy)["cleanup.policy"] == "compact", mirror)  # noqa: B023
            assert configs(there, copy)["retention.ms"] == "7200000"
            with reading(there.bootstrap, copy) as reader:
                reader.wait_until(lambda seen: len(seen) >= RECORDS, mirror)
                values = [(each.value() or b"").decode() for each in reader.records]
            assert values == [f"value {n}" for n in range(RECORDS)]
            # Changes of configurations arrive too, whatever stands beside them.
            configure(brokers[source], topic, "retention.ms", "3600000")
            wait_until(lambda: configs(there, copy)["retention.ms"] == "3600000", mirror)  # noqa: B023
            commit_all(brokers[source], topic)
            wait_until(lambda: committed(there, copy) == RECORDS, mirror)  # noqa: B023
