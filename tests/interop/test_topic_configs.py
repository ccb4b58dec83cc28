"""Configurations of topics as Kafka's own clients set them, and what comes of them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from importlib import import_module
from typing import Any, NamedTuple

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from tests.interop.conftest import NodeProcess
from tests.interop.wire_client import WireClient, fresh_name

from headrace.engine.conversion import CODECS
from headrace.record import NewRecord, build_batch
from headrace.record.batch import split_batches
from headrace.record.compression import Codec
from headrace.wire.kafka.generated import fetch_request as fetch
from headrace.wire.kafka.generated import produce_request as produce

confluent: Any = import_module("confluent_kafka.admin")

TIMEOUT_SECONDS = 20

Change = tuple[str, str, str | None]


class Admin:
    """confluent-kafka's client, one topic at a time."""

    def __init__(self, bootstrap: str) -> None:
        self.client = confluent.AdminClient({"bootstrap.servers": bootstrap})

    def make(self, *, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        name = fresh_name()
        self.create(name, partitions=partitions, configs=configs)
        return name

    def create(
        self, name: str, *, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> None:
        wanted = confluent.NewTopic(name, partitions, 1, config=configs or {})
        _done(self.client.create_topics([wanted]))

    def change(self, name: str, *changes: Change) -> None:
        """Each a name, what is done (SET, DELETE, APPEND, SUBTRACT), and a value."""
        entries = [
            confluent.ConfigEntry(
                config, value, incremental_operation=getattr(confluent.AlterConfigOpType, what)
            )
            for config, what, value in changes
        ]
        resource = confluent.ConfigResource(
            confluent.ResourceType.TOPIC, name, incremental_configs=entries
        )
        _done(self.client.incremental_alter_configs([resource]))

    def shown(self, name: str) -> dict[str, Any]:
        resource = confluent.ConfigResource(confluent.ResourceType.TOPIC, name)
        found: dict[str, Any] = _done(self.client.describe_configs([resource]))
        return found

    def values(self, name: str, configs: Iterable[str]) -> dict[str, str]:
        shown = self.shown(name)
        return {config: shown[config].value for config in configs}

    def set_ones(self, name: str) -> set[str]:
        """Configurations that somebody set for the topic."""
        of_topic = confluent.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {entry.name for entry in self.shown(name).values() if entry.source == of_topic}


def _done(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_SECONDS)


@pytest.fixture(scope="module")
def admin(admin_node: NodeProcess) -> Admin:
    return Admin(admin_node.bootstrap)


def test_to_delete_what_is_unknown_or_not_set_succeeds_and_the_rest_is_done(admin: Admin) -> None:
    name = admin.make()
    admin.change(
        name,
        ("no.such.config", "DELETE", None),
        ("segment.bytes", "DELETE", None),
        ("min.insync.replicas", "DELETE", None),
        ("retention.ms", "SET", "60000"),
    )
    assert admin.shown(name)["retention.ms"].value == "60000"
    with pytest.raises(KafkaException) as refused:
        admin.change(name, ("no.such.config", "SET", "1"), ("retention.ms", "SET", "70000"))
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert admin.shown(name)["retention.ms"].value == "60000"


def test_what_frameworks_set_is_taken_and_shown_as_set(admin: Admin) -> None:
    """Kafka Streams' windowed, session and versioned stores, and what others like to set."""
    wanted = {
        "cleanup.policy": "compact,delete",
        "min.compaction.lag.ms": "86400000",
        "max.compaction.lag.ms": "172800000",
        "min.cleanable.dirty.ratio": "0.01",
        "message.timestamp.type": "CreateTime",
        "retention.ms": "604800000",
        "retention.bytes": "-1",
        "segment.index.bytes": "1000000",
        "file.delete.delay.ms": "10000",
        "flush.ms": "12345678",
        "flush.messages": "10000",
        "preallocate": "true",
        "min.insync.replicas": "1",
        "local.retention.ms": "5000",
        "unclean.leader.election.enable": "true",
    }
    name = admin.make(configs=wanted)
    assert admin.values(name, wanted) == wanted
    assert admin.set_ones(name) == set(wanted)
    changes = [(config, "DELETE", None) for config in wanted if config != "retention.ms"]
    admin.change(name, *changes)
    assert admin.set_ones(name) == {"retention.ms"}


def test_the_last_cleanup_policy_can_be_taken_away(node: NodeProcess) -> None:
    admin = Admin(node.bootstrap)
    name = admin.make()
    admin.change(name, ("cleanup.policy", "SUBTRACT", "delete"))
    node.restart(kill=True)
    assert admin.values(name, ["cleanup.policy"]) == {"cleanup.policy": ""}
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for _ in range(5):
        producer.produce(name, b"kept")
    assert producer.flush(TIMEOUT_SECONDS) == 0
    # Nothing goes by itself, and what a client deletes does.
    deleted = admin.client.delete_records([TopicPartition(name, 0, 3)])
    assert [each.result(TIMEOUT_SECONDS).low_watermark for each in deleted.values()] == [3]
    admin.change(name, ("cleanup.policy", "APPEND", "compact"))
    assert admin.values(name, ["cleanup.policy"]) == {"cleanup.policy": "compact"}


def test_configurations_survive_a_kill_and_a_growth(node: NodeProcess) -> None:
    wanted = {"segment.index.bytes": "1000", "retention.ms": "604800000"}
    admin = Admin(node.bootstrap)
    name = admin.make(configs=wanted)
    _done(admin.client.create_partitions([confluent.NewPartitions(name, 2)]))
    assert admin.set_ones(name) == set(wanted)
    node.restart(kill=True)
    assert Admin(node.bootstrap).values(name, wanted) == wanted
    assert Admin(node.bootstrap).set_ones(name) == set(wanted)


@pytest.mark.parametrize(
    "configs",
    [
        {"min.insync.replicas": "2"},
        {"remote.storage.enable": "true"},
        {"headrace.durability": "os", "flush.messages": "1"},
        {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
    ],
)
def test_what_cannot_hold_is_refused_with_the_reason(admin: Admin, configs: dict[str, str]) -> None:
    name = admin.make()
    with pytest.raises(KafkaException) as refused:
        admin.make(configs=configs)
    error = refused.value.args[0]
    assert error.code() == KafkaError.INVALID_CONFIG
    assert len(error.str()) > 20
    with pytest.raises(KafkaException):
        admin.change(name, *[(config, "SET", value) for config, value in configs.items()])
    assert admin.set_ones(name) == set()


class Stored(NamedTuple):
    """A record as a consumer gets it."""

    value: bytes | None
    timestamp_type: int
    timestamp_ms: int


def produced(
    bootstrap: str, name: str, values: Iterable[bytes], **options: Any
) -> list[KafkaError]:
    """Send them, one second after 1970 unless told otherwise; what went wrong."""
    timestamp_ms = options.pop("timestamp_ms", 1_000)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **options})
    errors: list[KafkaError] = []

    def note(error: KafkaError | None, _: object) -> None:
        if error is not None:
            errors.append(error)

    for value in values:
        producer.produce(name, value, timestamp=timestamp_ms, on_delivery=note)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    return errors


def consumed(bootstrap: str, name: str, count: int) -> list[Stored]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": fresh_name()})
    consumer.assign([TopicPartition(name, 0, 0)])
    found = [
        Stored(message.value(), *message.timestamp())
        for message in consumer.consume(count, TIMEOUT_SECONDS)
        if message.error() is None
    ]
    consumer.close()
    return found


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_is_stored_under_its_codec_and_read_by_others(
    admin: Admin, admin_node: NodeProcess, codec: str
) -> None:
    name = admin.make(configs={"compression.type": codec})
    # What is compressed by the thread, and on the spot.
    values = [b"%d" % number * 100 for number in range(2_000)]
    for sent in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert produced(admin_node.bootstrap, name, values, **{"compression.type": sent}) == []
    found = consumed(admin_node.bootstrap, name, 5 * len(values))
    assert [each.value for each in found] == values * 5
    assert {each.timestamp_ms for each in found} == {1_000}
    with WireClient(admin_node.bootstrap) as client:
        assert codecs_of(client, name) == {codec}


def codecs_of(client: WireClient, name: str) -> set[str]:
    wanted = fetch.FetchTopic(name, partitions=(fetch.FetchPartition(0, -1, 0),))
    request = fetch.FetchRequest(max_wait_ms=0, max_bytes=1 << 24, topics=(wanted,))
    (part,) = client.call("Fetch", 12, request).responses[0].partitions
    names = {codec: config for config, codec in CODECS.items()}
    return {names[Codec(header.codec)] for _, header in split_batches(part.records)}


def test_records_have_the_time_of_appending_where_that_is_wanted(
    admin: Admin, admin_node: NodeProcess
) -> None:
    name = admin.make(configs={"message.timestamp.type": "LogAppendTime"})
    values = [b"%d" % number for number in range(10)]
    assert produced(admin_node.bootstrap, name, values) == []
    found = consumed(admin_node.bootstrap, name, 10)
    assert [each.value for each in found] == values
    assert {each.timestamp_type for each in found} == {TIMESTAMP_LOG_APPEND_TIME}
    assert all(each.timestamp_ms > 1_600_000_000_000 for each in found)
    admin.change(name, ("message.timestamp.type", "SET", "CreateTime"))
    assert produced(admin_node.bootstrap, name, [b"later"]) == []
    assert consumed(admin_node.bootstrap, name, 11)[-1] == (b"later", TIMESTAMP_CREATE_TIME, 1_000)


def test_times_that_a_topic_does_not_take_are_refused(
    admin: Admin, admin_node: NodeProcess
) -> None:
    name = admin.make(configs={"message.timestamp.before.max.ms": "3600000"})
    ahead_ms = int(time.time() * 1000) + 7_200_000
    for timestamp_ms, expected in ((1_000, 1), (ahead_ms, 1), (ahead_ms - 7_200_000, 0)):
        errors = produced(admin_node.bootstrap, name, [b"x"], timestamp_ms=timestamp_ms)
        assert len(errors) == expected
        assert {error.code() for error in errors} <= {KafkaError.INVALID_TIMESTAMP}
    admin.change(
        name,
        ("message.timestamp.before.max.ms", "DELETE", None),
        ("message.timestamp.after.max.ms", "SET", str(2**63 - 1)),
    )
    for timestamp_ms in (1_000, ahead_ms):
        assert produced(admin_node.bootstrap, name, [b"x"], timestamp_ms=timestamp_ms) == []


def test_a_topic_that_was_refused_is_not_made_for_a_producer(
    admin: Admin, admin_node: NodeProcess
) -> None:
    name = fresh_name()
    with pytest.raises(KafkaException):
        admin.create(name, configs={"min.insync.replicas": "2"})
    producer = Producer({"bootstrap.servers": admin_node.bootstrap})
    found = producer.list_topics(name, TIMEOUT_SECONDS).topics[name]
    assert found.error is not None
    assert found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    admin.create(name)
    assert len(producer.list_topics(name, TIMEOUT_SECONDS).topics[name].partitions) == 1


def test_of_a_batch_the_record_of_a_wrong_time_is_named(
    admin: Admin, admin_node: NodeProcess
) -> None:
    name = admin.make()
    now_ms = int(time.time() * 1000)
    times = [now_ms, now_ms, now_ms + 7_200_000, now_ms]
    batch = build_batch([NewRecord(None, b"x", (), each) for each in times])
    data = produce.TopicProduceData(
        name, partition_data=(produce.PartitionProduceData(0, bytes(batch)),)
    )
    with WireClient(admin_node.bootstrap) as client:
        answer = client.call("Produce", 9, produce.ProduceRequest(None, -1, 30_000, (data,)))
    (part,) = answer.responses[0].partition_responses
    assert part.error_code == KafkaError.INVALID_TIMESTAMP
    assert [each.batch_index for each in part.record_errors] == [2]
