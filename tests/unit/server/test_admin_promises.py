"""What an administrative answer promises: that it is on disk, and true."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from crc32c import crc32c
from tests.unit.server.asking import Asking, run

from headrace.core.node_settings import Address
from headrace.core.settings import TopicSettings
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch, read_header
from headrace.record.batch import HEADER_BYTES
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.kafka.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.kafka.generated.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.kafka.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.kafka.generated.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.kafka.generated.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.kafka.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest

LIST_OFFSETS, METADATA, OFFSET_FOR_EPOCH, CREATE_PARTITIONS = 2, 3, 23, 37
PRODUCE, ALTER, GROUP_RESOURCE, SHARE_HEARTBEAT = 0, 44, 32, 76
TOPIC = "orders"


def append(asking: Asking, timestamp_ms: int) -> None:
    """A record that is written and not synced."""
    topics = asking.broker.topics
    partition = topics.partition(topics.named(TOPIC), 0)
    batch = build_batch([NewRecord(None, b"v", (), timestamp_ms)])
    partition.append(batch, read_header(batch), asking.service.clock.now_ms())


async def with_topic(disk: MemoryDisk | None = None) -> Asking:
    asking = Asking(disk or MemoryDisk())
    if TOPIC not in asking.broker.topics.catalog.topics:
        now_ms = asking.service.clock.now_ms()
        asking.broker.topics.create(TOPIC, 1, TopicSettings(), now_ms)
    await asking.service.finish(asking.service.commit())
    return asking


def test_metadata_tells_of_every_partition_since_when_it_is_led() -> None:
    async def scenario() -> None:
        asking = await with_topic()
        topics, now_ms = asking.broker.topics, asking.service.clock.now_ms()
        for name in ("a", "b"):
            topics.create(name, 3, TopicSettings(), now_ms)
        topics.partition(topics.named("b"), 1).become_leader(7, now_ms)
        answer = await asking.ask(METADATA, 12, MetadataRequest(None))
        began = topics.partition(topics.named("a"), 0).epoch
        assert {
            topic.name: [(each.partition_index, each.leader_epoch) for each in topic.partitions]
            for topic in answer.topics
        } == {
            "a": [(0, began), (1, began), (2, began)],
            "b": [(0, began), (1, 7), (2, began)],
            TOPIC: [(0, began)],
        }
        assert {each.leader_id for topic in answer.topics for each in topic.partitions} == {1}

    run(scenario)


def test_a_topic_is_not_told_of_before_it_is_on_disk() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        log = asking.broker.metadata.log
        request = MetadataRequest((MetadataRequestTopic(name="new"),))
        answer = asking.begin(METADATA, 12, request)
        while "new" not in asking.broker.topics.catalog.topics:
            await asyncio.sleep(0)
        assert log.synced_end < log.end_offset
        # Somebody else who asks for everything must not hear of it early either.
        other = asking.begin(METADATA, 12, MetadataRequest(None))
        end = log.end_offset
        for future in (answer, other):
            (topic,) = (await future).topics
            assert (topic.name, topic.error_code) == ("new", 0)
            assert log.synced_end >= end

    run(scenario)


def test_metadata_makes_a_topic_only_where_the_request_and_the_node_want_it() -> None:
    async def scenario() -> None:
        for request_wants in (True, False):
            for node_wants in (True, False):
                asking = Asking(MemoryDisk())
                if not node_wants:
                    asking.broker.topics.auto_create_partitions = 0
                request = MetadataRequest(
                    (MetadataRequestTopic(name="new"), MetadataRequestTopic(name="new.dlq")),
                    request_wants,
                )
                found = (await asking.begin(METADATA, 12, request)).topics
                is_made = request_wants and node_wants
                code = 0 if is_made else Error.UNKNOWN_TOPIC_OR_PARTITION
                assert [each.error_code for each in found] == [code, code]
                assert list(asking.broker.topics.catalog.topics) == ["new", "new.dlq"] * is_made

    run(scenario)


def test_an_offset_is_not_told_of_before_its_record_can_be_read() -> None:
    async def scenario() -> None:
        asking = await with_topic()
        topics = asking.broker.topics
        partition = topics.partition(topics.named(TOPIC), 0)
        for timestamp, offset in ((-3, 0), (1_000, 1)):
            append(asking, 1_000 + offset)
            assert partition.high_watermark == offset
            wanted = ListOffsetsTopic(TOPIC, (ListOffsetsPartition(0, -1, timestamp + offset),))
            request = ListOffsetsRequest(-1, 0, (wanted,))
            (found,) = (await asking.ask(LIST_OFFSETS, 9, request)).topics[0].partitions
            assert (found.offset, found.timestamp) == (offset, 1_000 + offset)
            assert partition.high_watermark == offset + 1

    run(scenario)


def test_the_latest_offset_is_what_can_be_read_and_nothing_is_waited_for() -> None:
    async def scenario() -> None:
        asking = await with_topic()
        append(asking, 1_000)
        request = ListOffsetsRequest(
            -1, 0, (ListOffsetsTopic(TOPIC, (ListOffsetsPartition(0, -1, -1),)),)
        )
        (found,) = (await asking.ask(LIST_OFFSETS, 9, request)).topics[0].partitions
        assert found.offset == 0

    run(scenario)


def test_epochs_that_wrote_nothing_end_where_the_log_did() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        for _ in range(3):
            # Epochs 1 and 3 write a record each, epoch 2 does not.
            asking = await with_topic(disk)
            if asking.broker.metadata.catalog.epoch != 2:
                append(asking, 1_000)
            await asking.close()
        asking = await with_topic(disk)
        assert asking.broker.metadata.catalog.epoch == 4
        ends = []
        for epoch in range(6):
            wanted = OffsetForLeaderTopic(TOPIC, (OffsetForLeaderPartition(0, -1, epoch),))
            request = OffsetForLeaderEpochRequest(-1, (wanted,))
            (found,) = (await asking.ask(OFFSET_FOR_EPOCH, 4, request)).topics[0].partitions
            ends.append((found.leader_epoch, found.end_offset))
        assert ends == [(0, 0), (1, 1), (1, 1), (3, 2), (4, 2), (-1, -1)]

    run(scenario)


def test_new_partitions_are_read_by_the_queue_groups_of_their_topic() -> None:
    async def scenario() -> None:
        asking = await with_topic()
        broker, commit = asking.broker, asking.service.commit()
        now_ms = asking.service.clock.now_ms()
        group = broker.groups.open("workers", [broker.topics.named(TOPIC)], {}, now_ms, commit)
        request = CreatePartitionsRequest((CreatePartitionsTopic(TOPIC, 3, None),), 1_000)
        (result,) = (await asking.ask(CREATE_PARTITIONS, 3, request)).results
        assert result.error_code == 0
        partitions = broker.topics.partitions(broker.topics.named(TOPIC))
        assert [group.id in partition.views for partition in partitions] == [True] * 3

    run(scenario)


class Reached:
    """A transport that knows where its peer came in."""

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.7", 9092) if name == "sockname" else None


def test_nobody_is_told_to_connect_to_a_wildcard() -> None:
    async def scenario() -> None:
        asking = await with_topic()
        asking.connection.transport = cast(Any, Reached())
        for host in ("0.0.0.0", "::", "public.example"):
            asking.door.advertised = Address(host, 9092)
            (broker,) = (await asking.ask(METADATA, 9, MetadataRequest(()))).brokers
            told = host if host == "public.example" else "192.0.2.7"
            assert (broker.host, broker.port) == (told, 9092)
        asking.connection.transport = None

    run(scenario)


def test_what_a_topic_that_finds_duplicates_cannot_read_is_refused_and_not_stored() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        topic = asking.broker.topics.create("once", 1, TopicSettings(dedup=True), 1)
        batch = bytearray(build_batch([NewRecord(None, b"v" * 50)]))
        # A length that leads out of the batch, under a checksum that is right.
        batch[HEADER_BYTES] = 0x7F
        batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
        data = TopicProduceData("once", partition_data=(PartitionProduceData(0, bytes(batch)),))
        answer = await asking.ask(PRODUCE, 9, ProduceRequest(None, -1, 30_000, (data,)))
        assert answer.responses[0].partition_responses[0].error_code == Error.INVALID_RECORD
        assert asking.broker.topics.partition(topic, 0).log.end_offset == 0

    run(scenario)


def test_a_group_that_is_configured_before_it_is_joined_begins_where_others_do() -> None:
    async def scenario() -> None:
        asking = await with_topic()
        config = AlterableConfig("share.record.lock.duration.ms", 0, "15000")
        resource = AlterConfigsResource(GROUP_RESOURCE, "workers", (config,))
        answer = await asking.ask(ALTER, 1, IncrementalAlterConfigsRequest((resource,)))
        assert answer.responses[0].error_code == 0
        # As Kafka's, it is not there before somebody joins it.
        assert "workers" not in asking.broker.topics.catalog.groups
        request = ShareGroupHeartbeatRequest("workers", "m1", 0, None, (TOPIC,))
        assert (await asking.ask(SHARE_HEARTBEAT, 1, request)).error_code == 0
        group = asking.broker.topics.catalog.groups["workers"]
        assert group.settings.start == "latest"
        assert group.settings.visibility_ms == 15_000

    run(scenario)
