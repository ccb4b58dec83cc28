"""Topics and their configuration, changed in every version that is offered."""

from __future__ import annotations

from typing import Any

import pytest
from tests.interop.conftest import NodeProcess
from tests.interop.wire_client import (
    RECORDS,
    WireClient,
    each_version,
    fresh_name,
    make,
    publish,
)

from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.generated import alter_configs_request as alter_configs
from headrace.wire.kafka.generated import create_partitions_request as grow
from headrace.wire.kafka.generated import create_topics_request as create
from headrace.wire.kafka.generated import delete_records_request as delete_records
from headrace.wire.kafka.generated import delete_topics_request as delete
from headrace.wire.kafka.generated import describe_configs_request as describe_configs
from headrace.wire.kafka.generated import incremental_alter_configs_request as incremental
from headrace.wire.kafka.generated import join_group_request as join
from headrace.wire.kafka.generated import metadata_request as metadata

UNKNOWN_ID = b"\x01" * 16


# Topics.


@each_version("CreateTopics")
def test_topics_are_made_as_asked(client: WireClient, version: int) -> None:
    name = fresh_name()
    config = create.CreatableTopicConfig("retention.ms", "5000")
    wanted = create.CreatableTopic(name, -1 if version >= 4 else 2, 1, (), (config,))
    request = create.CreateTopicsRequest((wanted,), validate_only=True)
    assert client.call("CreateTopics", version, request).topics[0].error_code == 0
    request = request._replace(validate_only=False)
    (made,) = client.call("CreateTopics", version, request).topics
    assert made.error_code == 0
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (2, 1)
        (shown,) = [each for each in made.configs if each.name == "retention.ms"]
        assert (shown.value, shown.config_source) == ("5000", 1)
    if version >= 7:
        assert made.topic_id != bytes(16)
    (again,) = client.call("CreateTopics", version, request).topics
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert again.error_message


@pytest.mark.parametrize(
    ("partitions", "replicas", "placed", "config", "code"),
    [
        (1, 3, (), (), ErrorCode.INVALID_REPLICATION_FACTOR),
        (0, 1, (), (), ErrorCode.INVALID_PARTITIONS),
        (-2, 1, (), (), ErrorCode.INVALID_PARTITIONS),
        (20_000, 1, (), (), ErrorCode.INVALID_PARTITIONS),
        (1, 1, (), ("no.such.config", "1"), ErrorCode.INVALID_CONFIG),
        (1, 1, (), ("retention.ms", "soon"), ErrorCode.INVALID_CONFIG),
        (1, 1, (), ("min.insync.replicas", "2"), ErrorCode.INVALID_CONFIG),
        (-1, -1, ((0, (99,)),), (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, ((1, (1,)),), (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (1, 1, ((0, (1,)),), (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, ((0, (1,)), (1, (1,))), (), ErrorCode.NONE),
    ],
)
def test_topics_that_cannot_be_are_refused_and_say_why(
    client: WireClient,
    partitions: int,
    replicas: int,
    placed: tuple[tuple[int, tuple[int, ...]], ...],
    config: tuple[str, ...],
    code: ErrorCode,
) -> None:
    wanted = create.CreatableTopic(
        fresh_name(),
        partitions,
        replicas,
        tuple(create.CreatableReplicaAssignment(*each) for each in placed),
        (create.CreatableTopicConfig(*config),) if config else (),
    )
    (made,) = client.call("CreateTopics", 7, create.CreateTopicsRequest((wanted,))).topics
    assert made.error_code == code, made
    assert bool(made.error_message) == bool(code)


def test_a_topic_that_is_named_twice_is_not_made(client: WireClient) -> None:
    wanted = create.CreatableTopic(fresh_name(), 1, 1)
    (made,) = client.call("CreateTopics", 7, create.CreateTopicsRequest((wanted, wanted))).topics
    assert made.error_code == ErrorCode.INVALID_REQUEST


@each_version("DeleteTopics")
def test_topics_are_deleted(client: WireClient, admin_node: NodeProcess, version: int) -> None:
    name = fresh_name()
    topic_id = make(client, name).topic_id
    publish(client, name)
    folder = admin_node.data / "topics" / topic_id.hex()
    assert folder.exists()
    request = delete.DeleteTopicsRequest((delete.DeleteTopicState(name),), (name,), 1_000)
    (gone,) = client.call("DeleteTopics", version, request).responses
    assert (gone.error_code, gone.name) == (0, name)
    assert not folder.exists()
    (again,) = client.call("DeleteTopics", version, request).responses
    assert again.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert make(client, name).topic_id != topic_id


def test_topics_are_deleted_by_id(client: WireClient) -> None:
    name = fresh_name()
    topic_id = make(client, name).topic_id
    request = delete.DeleteTopicsRequest(
        (delete.DeleteTopicState(None, topic_id), delete.DeleteTopicState(None, UNKNOWN_ID))
    )
    gone, unknown = client.call("DeleteTopics", 6, request).responses
    assert (gone.error_code, gone.name, gone.topic_id) == (0, name, topic_id)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@each_version("CreatePartitions")
def test_topics_grow_and_never_shrink(client: WireClient, version: int) -> None:
    name = fresh_name()
    make(client, name)

    def answer(total: int, placed: Any = None, *, validate_only: bool = False) -> int:
        topic = grow.CreatePartitionsTopic(name, total, placed)
        request = grow.CreatePartitionsRequest((topic,), 1_000, validate_only)
        return int(client.call("CreatePartitions", version, request).results[0].error_code)

    assert answer(4, validate_only=True) == 0
    assert answer(3, (grow.CreatePartitionsAssignment((99,)),)) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT
    )
    assert answer(4) == 0
    assert answer(4) == ErrorCode.INVALID_PARTITIONS
    assert answer(2) == ErrorCode.INVALID_PARTITIONS
    asked = metadata.MetadataRequest((metadata.MetadataRequestTopic(name=name),))
    assert len(client.call("Metadata", 9, asked).topics[0].partitions) == 4


@each_version("DeleteRecords")
def test_records_are_deleted_up_to_an_offset(client: WireClient, version: int) -> None:
    name = fresh_name()
    make(client, name)
    publish(client, name)

    def answer(offset: int, index: int = 0) -> tuple[int, int]:
        topic = delete_records.DeleteRecordsTopic(
            name, (delete_records.DeleteRecordsPartition(index, offset),)
        )
        request = delete_records.DeleteRecordsRequest((topic,), 1_000)
        (found,) = client.call("DeleteRecords", version, request).topics[0].partitions
        return found.error_code, found.low_watermark

    assert answer(4) == (0, 4)
    assert answer(2) == (0, 4)
    assert answer(RECORDS + 1) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert answer(-1) == (0, RECORDS)
    assert answer(0, index=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


# Configurations.


def config_of(client: WireClient, name: str, key: str, kind: int = 2) -> Any:
    resource = describe_configs.DescribeConfigsResource(kind, name, (key,))
    request = describe_configs.DescribeConfigsRequest((resource,), True, True)
    (result,) = client.call("DescribeConfigs", 4, request).results
    assert result.error_code == 0
    (entry,) = result.configs
    return entry


@each_version("DescribeConfigs")
def test_configurations_are_described(client: WireClient, version: int) -> None:
    name = fresh_name()
    given = {"retention.ms": "-1", "retention.bytes": "9", "headrace.durability": "interval"}
    make(client, name, configs=given)
    node = client.call("Metadata", 1, metadata.MetadataRequest(())).brokers[0].node_id
    request = describe_configs.DescribeConfigsRequest(
        tuple(
            describe_configs.DescribeConfigsResource(*each)
            for each in ((2, name, None), (4, str(node), None), (32, "g", None), (4, "77", None))
        ),
        True,
        True,
    )
    topic, broker, group, unknown = client.call("DescribeConfigs", version, request).results
    shown = {each.name: each for each in topic.configs}
    assert shown["retention.ms"].value == "-1"
    # As in Kafka, where log.retention.ms is not set, and log.retention.bytes is.
    assert list(shown["retention.ms"].synonyms) == [("retention.ms", "-1", 1)]
    assert list(shown["retention.bytes"].synonyms) == [
        ("retention.bytes", "9", 1),
        ("log.retention.bytes", "-1", 5),
    ]
    assert shown["headrace.durability"].config_source == 1
    assert shown["flush.ms"].value == str(2**63 - 1) and not shown["flush.ms"].read_only
    assert shown["cleanup.policy"].config_source == 5
    of_node = {each.name: each for each in broker.configs}
    assert of_node["num.partitions"].value == "2"
    assert [each.source for each in of_node["num.partitions"].synonyms] == [4, 5]
    assert of_node["log.dirs"].read_only and not of_node["num.partitions"].read_only
    assert {each.name: each.value for each in group.configs}["share.delivery.count.limit"] == "5"
    assert unknown.error_code == ErrorCode.INVALID_REQUEST


@each_version("AlterConfigs")
def test_configurations_are_replaced_as_a_whole(client: WireClient, version: int) -> None:
    name = fresh_name()
    make(client, name, configs={"segment.bytes": "2048", "headrace.ordering": "key"})

    def answer(*, validate_only: bool) -> int:
        config = alter_configs.AlterableConfig("retention.ms", "7000")
        resource = alter_configs.AlterConfigsResource(2, name, (config,))
        request = alter_configs.AlterConfigsRequest((resource,), validate_only)
        return int(client.call("AlterConfigs", version, request).responses[0].error_code)

    assert answer(validate_only=True) == 0
    assert config_of(client, name, "segment.bytes").value == "2048"
    assert answer(validate_only=False) == 0
    assert config_of(client, name, "retention.ms").value == "7000"
    assert config_of(client, name, "segment.bytes").config_source == 5
    # What is chosen once is not a default to go back to.
    assert config_of(client, name, "headrace.ordering").value == "key"


@each_version("IncrementalAlterConfigs")
def test_configurations_change_one_by_one(client: WireClient, version: int) -> None:
    name = fresh_name()
    make(client, name, configs={"segment.bytes": "2048"})

    def answer(*configs: tuple[str, int, str | None], validate_only: bool = False) -> Any:
        resource = incremental.AlterConfigsResource(
            2, name, tuple(incremental.AlterableConfig(*each) for each in configs)
        )
        request = incremental.IncrementalAlterConfigsRequest((resource,), validate_only)
        return client.call("IncrementalAlterConfigs", version, request).responses[0]

    assert answer(("retention.ms", 0, "7000"), validate_only=True).error_code == 0
    assert config_of(client, name, "retention.ms").config_source == 5
    assert answer(("retention.ms", 0, "7000")).error_code == 0
    assert config_of(client, name, "retention.ms").value == "7000"
    assert config_of(client, name, "segment.bytes").value == "2048"
    assert answer(("segment.bytes", 1, None)).error_code == 0
    assert config_of(client, name, "segment.bytes").config_source == 5
    refused = answer(("retention.ms", 0, "9000"), ("no.such.config", 0, "1"))
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "no.such.config" in refused.error_message
    assert config_of(client, name, "retention.ms").value == "7000"
    assert answer(("cleanup.policy", 2, "compact")).error_code == 0
    assert config_of(client, name, "cleanup.policy").value == "delete,compact"
    assert answer(("cleanup.policy", 3, "delete")).error_code == 0
    assert config_of(client, name, "cleanup.policy").value == "compact"
    # As in Kafka nothing may be left of it: then nothing goes by itself.
    assert answer(("cleanup.policy", 3, "compact")).error_code == 0
    assert config_of(client, name, "cleanup.policy").value == ""
    assert answer(("cleanup.policy", 0, "shred")).error_code == ErrorCode.INVALID_CONFIG
    assert answer(("retention.ms", 2, "1")).error_code == ErrorCode.INVALID_CONFIG
    assert answer(("headrace.ordering", 0, "key")).error_code == ErrorCode.INVALID_CONFIG


def test_a_share_groups_configuration_can_come_before_the_group(client: WireClient) -> None:
    group = fresh_name()
    resource = incremental.AlterConfigsResource(
        32, group, (incremental.AlterableConfig("share.record.lock.duration.ms", 0, "12000"),)
    )
    request = incremental.IncrementalAlterConfigsRequest((resource,))
    (answer,) = client.call("IncrementalAlterConfigs", 1, request).responses
    assert answer.error_code == 0
    assert config_of(client, group, "share.record.lock.duration.ms", kind=32).value == "12000"


def test_a_group_that_reads_streams_may_be_configured_too(client: WireClient) -> None:
    group = fresh_name()
    joined = join.JoinGroupRequest(
        group, 10_000, 100, "", None, "consumer", (join.JoinGroupRequestProtocol("range", b""),)
    )
    assert client.call("JoinGroup", 3, joined).error_code == 0
    resource = incremental.AlterConfigsResource(
        32, group, (incremental.AlterableConfig("share.auto.offset.reset", 0, "earliest"),)
    )
    request = incremental.IncrementalAlterConfigsRequest((resource,))
    (answer,) = client.call("IncrementalAlterConfigs", 1, request).responses
    assert answer.error_code == 0
    assert config_of(client, group, "share.auto.offset.reset", kind=32).config_source == 8
    # It is still the kind of group that it was.
    assert client.call("JoinGroup", 3, joined).error_code == 0


def test_a_nodes_configuration_changes_where_it_can_at_run_time(client: WireClient) -> None:
    def alter(name: str, operation: int, value: str | None) -> int:
        config = incremental.AlterableConfig(name, operation, value)
        resource = incremental.AlterConfigsResource(4, "1", (config,))
        request = incremental.IncrementalAlterConfigsRequest((resource,))
        (answer,) = client.call("IncrementalAlterConfigs", 1, request).responses
        return int(answer.error_code)

    assert alter("group.share.delivery.count.limit", 0, "9") == 0
    assert config_of(client, fresh_name(), "share.delivery.count.limit", kind=32).value == "9"
    assert alter("group.share.delivery.count.limit", 1, None) == 0
    assert alter("leader.replication.throttled.rate", 1, None) == 0
    assert alter("log.dirs", 0, "/tmp") == ErrorCode.INVALID_REQUEST
