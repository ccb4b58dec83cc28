"""Kafka's internal topics as tools ask about them, and what nobody may do to them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.asking import run
from tests.unit.server.coordinator_door import OFFSETS, TRANSACTIONS, CoordinatorDoor
from tests.unit.server.transaction_door import NAME, NEW, OLD, TOPIC, Transactor

from headrace.record import NewRecord, build_batch
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated import (
    alter_configs_request,
    consumer_group_heartbeat_request,
    create_partitions_request,
    create_topics_request,
    delete_records_request,
    delete_topics_request,
    describe_configs_request,
    describe_topic_partitions_request,
    describe_transactions_request,
    incremental_alter_configs_request,
    list_config_resources_request,
    list_offsets_request,
    metadata_request,
    offset_fetch_request,
    offset_for_leader_epoch_request,
    produce_request,
)

PRODUCE, LIST_OFFSETS, METADATA, OFFSET_FETCH, CREATE, DELETE = 0, 2, 3, 9, 19, 20
DELETE_RECORDS, LEADER_EPOCH, DESCRIBE_CONFIGS, ALTER_CONFIGS = 21, 23, 32, 33
CREATE_PARTITIONS, INCREMENTAL, DESCRIBE_TRANSACTIONS = 37, 44, 65
HEARTBEAT, LIST_RESOURCES, DESCRIBE_TOPICS = 68, 74, 75
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4


async def filled() -> CoordinatorDoor:
    door = CoordinatorDoor()
    await door.commit("readers", {0: 7})
    await Transactor(door, NEW).init()
    return door


@pytest.mark.parametrize("name", [OFFSETS, TRANSACTIONS])
def test_nobody_writes_to_them_or_changes_them(name: str) -> None:
    async def scenario() -> None:
        door = await filled()
        before = await door.read(name)
        topic_id = (await door.find(name)).topic_id
        for refuse, code in (
            (produce, Error.INVALID_TOPIC_EXCEPTION),
            (produce_by_id, Error.INVALID_TOPIC_EXCEPTION),
            (create, Error.TOPIC_ALREADY_EXISTS),
            (delete, Error.INVALID_TOPIC_EXCEPTION),
            (delete_by_id, Error.INVALID_TOPIC_EXCEPTION),
            (alter, Error.INVALID_REQUEST),
            (alter_a_part, Error.INVALID_REQUEST),
            (grow, Error.INVALID_PARTITIONS),
            (delete_records, Error.POLICY_VIOLATION),
        ):
            assert await refuse(door, name, topic_id) == code, refuse
        assert await door.read(name) == before

    run(scenario)


async def produce(door: CoordinatorDoor, name: str, topic_id: bytes, version: int = 9) -> Any:
    batch = bytes(build_batch([NewRecord(b"k", b"v", (), 1)]))
    records = produce_request.PartitionProduceData(0, batch)
    data = produce_request.TopicProduceData(name, topic_id, partition_data=(records,))
    request = produce_request.ProduceRequest(None, -1, 1_000, (data,))
    answer = await door.ask(PRODUCE, version, request)
    return answer.responses[0].partition_responses[0].error_code


async def produce_by_id(door: CoordinatorDoor, name: str, topic_id: bytes) -> Any:
    return await produce(door, "", topic_id, 13)


async def create(door: CoordinatorDoor, name: str, topic_id: bytes) -> Any:
    topic = create_topics_request.CreatableTopic(name, 1, 1)
    request = create_topics_request.CreateTopicsRequest((topic,))
    return (await door.ask(CREATE, 7, request)).topics[0].error_code


async def delete(door: CoordinatorDoor, name: str | None, topic_id: bytes) -> Any:
    topic = delete_topics_request.DeleteTopicState(name, bytes(16) if name else topic_id)
    request = delete_topics_request.DeleteTopicsRequest((topic,))
    return (await door.ask(DELETE, 6, request)).responses[0].error_code


async def delete_by_id(door: CoordinatorDoor, name: str, topic_id: bytes) -> Any:
    return await delete(door, None, topic_id)


async def alter(door: CoordinatorDoor, name: str, topic_id: bytes) -> Any:
    value = alter_configs_request.AlterableConfig("retention.ms", "1")
    resource = alter_configs_request.AlterConfigsResource(TOPIC_RESOURCE, name, (value,))
    request = alter_configs_request.AlterConfigsRequest((resource,))
    return (await door.ask(ALTER_CONFIGS, 2, request)).responses[0].error_code


async def alter_a_part(door: CoordinatorDoor, name: str, topic_id: bytes) -> Any:
    value = incremental_alter_configs_request.AlterableConfig("retention.ms", 0, "1")
    resource = incremental_alter_configs_request.AlterConfigsResource(
        TOPIC_RESOURCE, name, (value,)
    )
    request = incremental_alter_configs_request.IncrementalAlterConfigsRequest((resource,))
    return (await door.ask(INCREMENTAL, 1, request)).responses[0].error_code


async def grow(door: CoordinatorDoor, name: str, topic_id: bytes) -> Any:
    topic = create_partitions_request.CreatePartitionsTopic(name, 5)
    request = create_partitions_request.CreatePartitionsRequest((topic,))
    return (await door.ask(CREATE_PARTITIONS, 3, request)).results[0].error_code


async def delete_records(door: CoordinatorDoor, name: str, topic_id: bytes) -> Any:
    partition = delete_records_request.DeleteRecordsPartition(0, 1)
    topic = delete_records_request.DeleteRecordsTopic(name, (partition,))
    request = delete_records_request.DeleteRecordsRequest((topic,))
    return (await door.ask(DELETE_RECORDS, 2, request)).topics[0].partitions[0].error_code


def test_a_name_that_is_ours_alone_is_not_shown_to_clients_of_kafka() -> None:
    async def scenario() -> None:
        door = await filled()
        unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
        assert (await door.find("__cursors", may_create=False)).error_code == unknown
        refused = await door.find("__cursors")
        assert refused.error_code == Error.INVALID_TOPIC_EXCEPTION
        assert (await door.fetch("__cursors", 0)).error_code == unknown

    run(scenario)


@pytest.mark.parametrize("name", [OFFSETS, TRANSACTIONS])
def test_tools_find_out_what_they_are(name: str) -> None:
    async def scenario() -> None:
        door = await filled()
        found = await door.find(name)
        wanted = metadata_request.MetadataRequestTopic(found.topic_id, None)
        by_id = await door.ask(METADATA, 12, metadata_request.MetadataRequest((wanted,)))
        assert by_id.topics[0] == found
        (described,) = await describe(door, name)
        assert (described.name, described.topic_id) == (name, found.topic_id)
        assert (described.is_internal, len(described.partitions)) == (True, 1)
        assert [each.name for each in await describe(door)] == [OFFSETS, TRANSACTIONS, TOPIC]
        resource = describe_configs_request.DescribeConfigsResource(
            TOPIC_RESOURCE, name, ("cleanup.policy",)
        )
        asked = describe_configs_request.DescribeConfigsRequest((resource,))
        ((config,),) = [
            each.configs for each in (await door.ask(DESCRIBE_CONFIGS, 4, asked)).results
        ]
        assert (config.name, config.value) == ("cleanup.policy", "compact")

    run(scenario)


async def describe(door: CoordinatorDoor, *names: str) -> Any:
    named = tuple(map(describe_topic_partitions_request.TopicRequest, names))
    request = describe_topic_partitions_request.DescribeTopicPartitionsRequest(named)
    return (await door.ask(DESCRIBE_TOPICS, 0, request)).topics


def test_the_node_says_that_each_has_one_partition() -> None:
    async def scenario() -> None:
        door = CoordinatorDoor()
        names = ("offsets.topic.num.partitions", "transaction.state.log.num.partitions")
        resource = describe_configs_request.DescribeConfigsResource(BROKER_RESOURCE, "1", names)
        request = describe_configs_request.DescribeConfigsRequest((resource,))
        (answer,) = (await door.ask(DESCRIBE_CONFIGS, 4, request)).results
        assert {each.name: each.value for each in answer.configs} == dict.fromkeys(names, "1")

    run(scenario)


def test_they_are_among_what_has_a_configuration() -> None:
    async def scenario() -> None:
        door = await filled()
        request = list_config_resources_request.ListConfigResourcesRequest((TOPIC_RESOURCE,))
        found = (await door.ask(LIST_RESOURCES, 1, request)).config_resources
        assert {each.resource_name for each in found} == {OFFSETS, TRANSACTIONS, TOPIC}

    run(scenario)


@pytest.mark.parametrize("name", [OFFSETS, TRANSACTIONS])
def test_their_ends_are_listed(name: str) -> None:
    async def scenario() -> None:
        door = await filled()
        now_ms = door.clock.now_ms()

        async def ask(timestamp: int) -> Any:
            partition = list_offsets_request.ListOffsetsPartition(0, -1, timestamp)
            wanted = list_offsets_request.ListOffsetsTopic(name, (partition,))
            asked = list_offsets_request.ListOffsetsRequest(-1, 0, (wanted,))
            return (await door.ask(LIST_OFFSETS, 8, asked)).topics[0].partitions[0]

        assert [(await ask(each)).offset for each in (-2, -1)] == [0, 1]
        assert [(await ask(each)).timestamp for each in (-3, now_ms)] == [now_ms, now_ms]
        epoch = (await door.find(name)).partitions[0].leader_epoch
        partition = offset_for_leader_epoch_request.OffsetForLeaderPartition(0, epoch, epoch)
        topic = offset_for_leader_epoch_request.OffsetForLeaderTopic(name, (partition,))
        request = offset_for_leader_epoch_request.OffsetForLeaderEpochRequest(-1, (topic,))
        found = (await door.ask(LEADER_EPOCH, 4, request)).topics[0].partitions[0]
        assert (found.error_code, found.end_offset) == (0, 1)

    run(scenario)


def test_a_transaction_with_offsets_names_the_topic_that_kafka_would() -> None:
    async def scenario() -> None:
        door = CoordinatorDoor()
        producer = Transactor(door, OLD)
        await producer.init()
        await producer.add_offsets()
        request = describe_transactions_request.DescribeTransactionsRequest((NAME,))
        (state,) = (await door.ask(DESCRIBE_TRANSACTIONS, 0, request)).transaction_states
        assert [(each.topic, list(each.partitions)) for each in state.topics] == [(OFFSETS, [0])]

    run(scenario)


def test_positions_of_who_follows_as_a_group_are_shown_under_that_name() -> None:
    async def scenario() -> None:
        door = await filled()
        await door.commit("tool", {0: 1}, topic=OFFSETS)
        group = offset_fetch_request.OffsetFetchRequestGroup("tool", topics=None)
        request = offset_fetch_request.OffsetFetchRequest(groups=(group,))
        (topic,) = (await door.ask(OFFSET_FETCH, 9, request)).groups[0].topics
        assert (topic.name, topic.partitions[0].committed_offset) == (OFFSETS, 1)

    run(scenario)


def test_the_node_assigns_them_to_who_names_them() -> None:
    async def scenario() -> None:
        door = await filled()
        topic_id = (await door.find(OFFSETS)).topic_id

        async def join(member: str, **wanted: Any) -> Any:
            request = consumer_group_heartbeat_request.ConsumerGroupHeartbeatRequest(
                member, member, 0, rebalance_timeout_ms=60_000, topic_partitions=(), **wanted
            )
            answer = await door.ask(HEARTBEAT, 1, request)
            assert answer.error_code == 0
            return {each.topic_id for each in answer.assignment.topic_partitions}

        assert await join("names", subscribed_topic_names=(OFFSETS,)) == {topic_id}
        orders = door.broker.topics.named(TOPIC).id
        assert await join("pattern", subscribed_topic_regex=".*") == {orders}

    run(scenario)
