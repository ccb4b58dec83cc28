"""Administration as people do it: with the tools of clients that know nothing of us."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from tests.interop.conftest import NodeProcess
from tests.interop.wire_client import RECORDS, TOPIC, WireClient, fresh_name

from headrace.wire.kafka.generated.init_producer_id_request import InitProducerIdRequest


def untyped(module: str) -> Any:
    """What has no types; kafka-python also warns of its own old calls."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return import_module(module)


aiokafka_admin = untyped("aiokafka.admin")
aiokafka_config = untyped("aiokafka.admin.config_resource")
confluent = untyped("confluent_kafka.admin")
kafka = untyped("kafka")
kafka_admin = untyped("kafka.admin")
kafka_errors = untyped("kafka.errors")

# It reads its own schemas with an old call whenever it first needs one.
pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

TIMEOUT_SECONDS = 20


@pytest.fixture
def admin(admin_node: NodeProcess) -> Any:
    return confluent.AdminClient({"bootstrap.servers": admin_node.bootstrap})


def done(futures: dict[Any, Any]) -> Any:
    """The result of the one thing that was asked for."""
    (future,) = futures.values()
    return future.result(TIMEOUT_SECONDS)


def code_of(futures: dict[Any, Any]) -> tuple[int, str]:
    with pytest.raises(KafkaException) as refused:
        done(futures)
    error = refused.value.args[0]
    return error.code(), error.str()


# confluent-kafka.


def test_confluent_makes_describes_grows_and_deletes_topics(admin: Any) -> None:
    name = fresh_name()
    done(
        admin.create_topics([confluent.NewTopic(name, 3, 1, config={"cleanup.policy": "compact"})])
    )
    code, _ = code_of(admin.create_topics([confluent.NewTopic(name, 3, 1)]))
    assert code == KafkaError.TOPIC_ALREADY_EXISTS
    done(admin.create_partitions([confluent.NewPartitions(name, 5)]))
    described = done(admin.describe_topics(TopicCollection([name])))
    assert [each.id for each in described.partitions] == [0, 1, 2, 3, 4]
    assert all(each.leader.id == each.replicas[0].id for each in described.partitions)
    done(admin.delete_topics([name]))
    code, _ = code_of(admin.delete_topics([name]))
    assert code == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_confluent_lists_all_topics(admin: Any) -> None:
    # librdkafka leaves a few bytes behind this request.
    assert TOPIC in admin.list_topics(timeout=TIMEOUT_SECONDS).topics


def test_confluent_is_told_which_configuration_is_wrong(admin: Any) -> None:
    code, message = code_of(
        admin.create_topics([confluent.NewTopic(fresh_name(), 1, 1, config={"retention.mss": "1"})])
    )
    assert code == KafkaError.INVALID_CONFIG
    assert "retention.mss" in message


def test_confluent_reads_and_changes_configurations(admin: Any) -> None:
    name = fresh_name()
    done(admin.create_topics([confluent.NewTopic(name, 1, 1)]))
    change = confluent.ConfigEntry(
        "headrace.durability", "os", incremental_operation=confluent.AlterConfigOpType.SET
    )
    resource = confluent.ConfigResource(
        confluent.ResourceType.TOPIC, name, incremental_configs=[change]
    )
    done(admin.incremental_alter_configs([resource]))
    shown = done(
        admin.describe_configs([confluent.ConfigResource(confluent.ResourceType.TOPIC, name)])
    )
    assert shown["headrace.durability"].value == "os"
    assert not shown["headrace.durability"].is_default
    assert shown["retention.ms"].is_default


def test_confluent_finds_and_deletes_offsets(admin: Any) -> None:
    latest = done(admin.list_offsets({TopicPartition(TOPIC, 0): confluent.OffsetSpec.latest()}))
    assert (latest.offset, latest.leader_epoch) == (RECORDS, 1)
    newest = done(
        admin.list_offsets({TopicPartition(TOPIC, 0): confluent.OffsetSpec.max_timestamp()})
    )
    assert newest.offset == RECORDS - 1
    name = fresh_name()
    done(admin.create_topics([confluent.NewTopic(name, 1, 1)]))
    code, _ = code_of(admin.delete_records([TopicPartition(name, 0, 5)]))
    assert code == KafkaError.OFFSET_OUT_OF_RANGE


def test_confluent_describes_the_cluster(admin: Any, admin_node: NodeProcess) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT_SECONDS)
    (node,) = cluster.nodes
    assert f"{node.host}:{node.port}" == admin_node.bootstrap
    assert cluster.controller.id == node.id


# kafka-python.


@pytest.fixture
def python_admin(admin_node: NodeProcess) -> Iterator[Any]:
    connected = kafka_admin.KafkaAdminClient(bootstrap_servers=admin_node.bootstrap)
    yield connected
    connected.close()


def test_kafka_python_makes_describes_and_deletes_topics(python_admin: Any) -> None:
    name = fresh_name()
    wanted = kafka_admin.NewTopic(name, 3, 1, topic_configs={"retention.ms": "60000"})
    python_admin.create_topics([wanted])
    with pytest.raises(kafka_errors.TopicAlreadyExistsError):
        python_admin.create_topics([wanted])
    assert {name, TOPIC} <= set(python_admin.list_topics())
    python_admin.create_partitions({name: 4})
    (described,) = python_admin.describe_topics([name])
    assert len(described["partitions"]) == 4
    python_admin.delete_topics([name])
    assert name not in python_admin.list_topics()


def test_kafka_python_reads_and_changes_configurations(python_admin: Any) -> None:
    name = fresh_name()
    python_admin.create_topics([kafka_admin.NewTopic(name, 1, 1)])
    kind = kafka_admin.ConfigResourceType.TOPIC
    python_admin.alter_configs([kafka_admin.ConfigResource(kind, name, {"retention.ms": "60000"})])
    shown = python_admin.describe_configs(
        [kafka_admin.ConfigResource(kind, name)], config_filter="all"
    )
    assert shown["topic"][name]["retention.ms"]["value"] == "60000"


def test_kafka_python_describes_the_node(python_admin: Any, admin_node: NodeProcess) -> None:
    assert len(python_admin.describe_cluster()["brokers"]) == 1
    (broker,) = python_admin.describe_log_dirs()
    assert [each["log_dir"] for each in broker["log_dirs"]] == [str(admin_node.data)]
    (quorum,) = python_admin.describe_metadata_quorum()["topics"][0]["partitions"]
    assert [voter["replica_id"] for voter in quorum["current_voters"]] == [quorum["leader_id"]]
    partition = kafka.TopicPartition(TOPIC, 0)
    latest = kafka_admin.OffsetSpec.LATEST
    found = python_admin.list_partition_offsets({partition: latest})
    assert found[partition].offset == RECORDS


# aiokafka.


def test_aiokafka_makes_changes_and_deletes_topics(admin_node: NodeProcess) -> None:
    name = fresh_name()

    async def run() -> None:
        admin = aiokafka_admin.AIOKafkaAdminClient(bootstrap_servers=admin_node.bootstrap)
        await admin.start()
        try:
            made = await admin.create_topics([aiokafka_admin.NewTopic(name, 2, 1)])
            assert made.topic_errors[0][1] == 0
            await admin.create_partitions({name: aiokafka_admin.NewPartitions(3)})
            (described,) = await admin.describe_topics([name])
            assert len(described["partitions"]) == 3
            kind = aiokafka_config.ConfigResourceType.TOPIC
            await admin.alter_configs(
                [aiokafka_config.ConfigResource(kind, name, {"retention.ms": "60000"})]
            )
            (shown,) = await admin.describe_configs([aiokafka_config.ConfigResource(kind, name)])
            entries = {entry[0]: entry[1] for entry in shown.resources[0][4]}
            assert entries["retention.ms"] == "60000"
            assert {name, TOPIC} <= set(await admin.list_topics())
            await admin.delete_topics([name])
            assert name not in await admin.list_topics()
            assert await admin.find_coordinator("group") == 1
        finally:
            await admin.close()

    asyncio.run(run())


# What lasts.


def test_topics_configurations_and_deletions_survive_a_kill(node: NodeProcess) -> None:
    admin = confluent.AdminClient({"bootstrap.servers": node.bootstrap})
    for name in ("kept", "gone"):
        done(admin.create_topics([confluent.NewTopic(name, 2, 1)]))
    change = confluent.ConfigEntry(
        "retention.ms", "60000", incremental_operation=confluent.AlterConfigOpType.SET
    )
    resource = confluent.ConfigResource(
        confluent.ResourceType.TOPIC, "kept", incremental_configs=[change]
    )
    done(admin.incremental_alter_configs([resource]))
    done(admin.create_partitions([confluent.NewPartitions("kept", 3)]))
    before = done(admin.describe_topics(TopicCollection(["kept"])))
    done(admin.delete_topics(["gone"]))
    node.restart(kill=True)
    admin = confluent.AdminClient({"bootstrap.servers": node.bootstrap})
    after = done(admin.describe_topics(TopicCollection(["kept"])))
    assert str(after.topic_id) == str(before.topic_id)
    assert len(after.partitions) == 3
    shown = done(
        admin.describe_configs([confluent.ConfigResource(confluent.ResourceType.TOPIC, "kept")])
    )
    assert shown["retention.ms"].value == "60000"
    code, _ = code_of(admin.delete_topics(["gone"]))
    assert code == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_producer_numbers_are_never_given_twice(node: NodeProcess) -> None:
    seen = []
    for _ in range(3):
        with WireClient(node.bootstrap) as client:
            for _ in range(5):
                answer = client.call("InitProducerId", 4, InitProducerIdRequest(None, 1_000))
                seen.append(answer.producer_id)
        node.restart(kill=True)
    assert len(set(seen)) == len(seen)


def test_tools_that_ask_for_security_are_told_that_there_is_none(admin: Any) -> None:
    binding = confluent.AclBinding(
        confluent.ResourceType.TOPIC,
        TOPIC,
        confluent.ResourcePatternType.LITERAL,
        "User:ann",
        "*",
        confluent.AclOperation.READ,
        confluent.AclPermissionType.ALLOW,
    )
    code, reason = code_of(admin.create_acls([binding]))
    assert (code, reason) == (KafkaError.SECURITY_DISABLED, "No Authorizer is configured.")
    assert admin.describe_user_scram_credentials().result(TIMEOUT_SECONDS) == {}
