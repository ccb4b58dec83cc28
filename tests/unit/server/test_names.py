"""Names of topics and groups: by Kafka's rules, with only the node's own taken."""

from __future__ import annotations

import pytest
from tests.unit.server.asking import Asking, run

from headrace.core.errors import InvalidName
from headrace.core.settings import TopicSettings
from headrace.core.values import check_name
from headrace.engine.catalog import RESERVED_TOPICS
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated.create_topics_request import (
    CreatableTopic,
    CreateTopicsRequest,
)
from headrace.wire.kafka.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.kafka.generated.metadata_response import MetadataResponseTopic
from headrace.wire.kafka.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.kafka.generated.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

PRODUCE, METADATA, OFFSET_COMMIT, CREATE_TOPICS = 0, 3, 8, 19
HEARTBEAT_TOPIC = "__debezium-heartbeat.inventory"


async def create(asking: Asking, name: str, *, validate_only: bool = False) -> tuple[int, str]:
    request = CreateTopicsRequest((CreatableTopic(name, 1, 1),), validate_only=validate_only)
    (made,) = (await asking.ask(CREATE_TOPICS, 7, request)).topics
    return made.error_code, made.error_message or ""


async def find(asking: Asking, name: str, *, may_create: bool = True) -> MetadataResponseTopic:
    request = MetadataRequest((MetadataRequestTopic(name=name),), may_create)
    (topic,) = (await asking.ask(METADATA, 12, request)).topics
    assert isinstance(topic, MetadataResponseTopic)
    return topic


async def produce(asking: Asking, name: str) -> int:
    batch = build_batch([NewRecord(None, b"v", (), 1)])
    data = TopicProduceData(name, partition_data=(PartitionProduceData(0, batch),))
    answer = await asking.ask(PRODUCE, 9, ProduceRequest(None, -1, 1_000, (data,)))
    return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize(
    "name", [HEARTBEAT_TOPIC, "__CruiseControlMetrics", "__", "_schemas", "x" * 249]
)
def test_a_name_that_kafka_takes_is_an_ordinary_topic(name: str) -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        topic = await find(asking, name)
        assert (topic.error_code, topic.is_internal) == (0, False)
        assert await produce(asking, name) == 0
        request = MetadataRequest(None)
        assert [each.name for each in (await asking.ask(METADATA, 12, request)).topics] == [name]
        other = Asking(MemoryDisk())
        assert await create(other, name) == (0, "")

    run(scenario)


@pytest.mark.parametrize("name", sorted(RESERVED_TOPICS))
def test_a_producer_to_one_of_the_nodes_own_topics_is_told_at_once(name: str) -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        unasked = await find(asking, name, may_create=False)
        assert unasked.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        code, reason = await create(asking, name)
        assert code == Error.INVALID_TOPIC_EXCEPTION
        assert "Headrace" in reason
        # Those that Kafka's clients read are made, and not written to.
        found = await find(asking, name)
        code = found.error_code or await produce(asking, name)
        assert code == Error.INVALID_TOPIC_EXCEPTION

    run(scenario)


def test_the_nodes_own_topics_are_not_written_to() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        assert await create(asking, "orders") == (0, "")
        moved = OffsetCommitRequestTopic("orders", partitions=(OffsetCommitRequestPartition(0, 0),))
        await asking.ask(OFFSET_COMMIT, 8, OffsetCommitRequest("g", topics=(moved,)))
        assert (await find(asking, "__consumer_offsets")).is_internal
        assert await produce(asking, "__consumer_offsets") == Error.INVALID_TOPIC_EXCEPTION

    run(scenario)


def test_names_that_differ_in_dots_and_underscores_alone_collide_as_in_kafka() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        assert await create(asking, "a.b_c") == (0, "")
        for validate_only in (True, False):
            code, reason = await create(asking, "a_b.c", validate_only=validate_only)
            assert code == Error.INVALID_TOPIC_EXCEPTION
            assert "a.b_c" in reason
        assert (await find(asking, "a_b_c")).error_code == Error.INVALID_TOPIC_EXCEPTION
        assert await create(asking, "a-b-c") == (0, "")
        assert (await create(asking, "a.b_c"))[0] == Error.TOPIC_ALREADY_EXISTS

    run(scenario)


def test_a_topic_may_be_called_like_dead_letters() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        topics = asking.broker.topics
        assert await create(asking, "orders.dlq") == (0, "")
        assert await produce(asking, "orders.dlq") == 0
        assert (await find(asking, "payments.dlq")).error_code == 0
        assert not any(each.source_id for each in topics.catalog.topics.values())
        # Where the topic is there, they are its dead letters.
        assert await create(asking, "bills") == (0, "")
        assert (await find(asking, "bills.dlq")).error_code == 0
        assert topics.catalog.dead_letters_of(topics.named("bills")) is not None

    run(scenario)


def test_a_topic_that_becomes_that_of_dead_letters_keeps_what_it_has_and_gets() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        topics, now_ms = asking.broker.topics, asking.service.clock.now_ms()
        settings = TopicSettings(retention_ms=1_000)
        topics.create("orders.dlq", 1, settings, now_ms)
        assert await produce(asking, "orders.dlq") == 0
        topics.create("orders", 2, TopicSettings(), now_ms)
        letters = asking.broker.groups.dead_letters(topics.named("orders"), now_ms)
        assert (letters.name, letters.partitions) == ("orders.dlq", 1)
        assert (letters.settings.retention, letters.settings.retention_ms) == ("acked", None)
        assert topics.partition(letters, 0).log.end_offset == 1

    run(scenario)


def test_the_longest_name_has_dead_letters_too() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        topics, now_ms = asking.broker.topics, asking.service.clock.now_ms()
        longest = topics.create("x" * 249, 1, TopicSettings(), now_ms)
        letters = asking.broker.groups.dead_letters(longest, now_ms)
        assert check_name("topic", letters.name) == "x" * 249 + ".dlq"
        for name in ("y" * 250, "y" * 249 + ".dlq"):
            with pytest.raises(InvalidName):
                topics.create(name, 1, TopicSettings(), now_ms)

    run(scenario)
