"""Topics that go away while others use them."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.interop.conftest import NodeProcess
from tests.interop.wire_client import FIRST_MS, WireClient, fresh_name, make, publish

from headrace.record import NewRecord, build_batch
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.generated import create_partitions_request as grow
from headrace.wire.kafka.generated import delete_topics_request as delete
from headrace.wire.kafka.generated import fetch_request as fetch
from headrace.wire.kafka.generated import list_offsets_request as list_offsets
from headrace.wire.kafka.generated import metadata_request as metadata
from headrace.wire.kafka.generated import produce_request as produce


def remove(client: WireClient, name: str) -> int:
    request = delete.DeleteTopicsRequest((delete.DeleteTopicState(name),), (name,), 1_000)
    return int(client.call("DeleteTopics", 5, request).responses[0].error_code)


def try_to_publish(client: WireClient, name: str) -> int:
    batch = bytes(build_batch([NewRecord(None, b"v", (), FIRST_MS)]))
    data = produce.TopicProduceData(name, partition_data=(produce.PartitionProduceData(0, batch),))
    answer = client.call("Produce", 9, produce.ProduceRequest(None, -1, 30_000, (data,)))
    return int(answer.responses[0].partition_responses[0].error_code)


def end_of(client: WireClient, name: str) -> Any:
    wanted = list_offsets.ListOffsetsTopic(
        name, (list_offsets.ListOffsetsPartition(0, timestamp=-1),)
    )
    request = list_offsets.ListOffsetsRequest(-1, 0, (wanted,))
    return client.call("ListOffsets", 5, request).topics[0].partitions[0]


def test_a_waiting_fetch_learns_that_its_topic_is_gone(
    client: WireClient, admin_node: NodeProcess
) -> None:
    name = fresh_name()
    make(client, name)
    # Longer than the client waits for an answer: the deletion must end it.
    request = fetch.FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        topics=(fetch.FetchTopic(name, partitions=(fetch.FetchPartition(0),)),),
    )
    with WireClient(admin_node.bootstrap) as waiting:
        # Once it is answered the node reads both connections, in the order of sending.
        waiting.call("Metadata", 9, metadata.MetadataRequest(()))
        waiting.send("Fetch", 11, request)
        assert remove(client, name) == 0
        (partition,) = waiting.receive("Fetch", 11).responses[0].partitions
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_deleted_and_made_again_while_producers_write_to_it(
    client: WireClient, admin_node: NodeProcess
) -> None:
    name = fresh_name()
    stop = threading.Event()
    codes: set[int] = set()
    acknowledged: list[int] = []

    def write() -> None:
        with WireClient(admin_node.bootstrap) as producer:
            while not stop.is_set():
                code = try_to_publish(producer, name)
                codes.add(code)
                acknowledged.append(code == 0)

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(10):
            make(client, name)
            publish(client, name)
            assert remove(client, name) == 0
    finally:
        stop.set()
        for writer in writers:
            writer.join(30)
    assert acknowledged
    assert codes <= {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    # The node is well, and the topic of that name starts from nothing.
    make(client, name)
    assert end_of(client, name).offset == 0
    assert try_to_publish(client, name) == 0
    assert end_of(client, name).offset == 1


def test_a_topic_that_was_to_be_synced_later_is_deleted_before_that(node: NodeProcess) -> None:
    with WireClient(node.bootstrap) as connected:
        lazy = {"headrace.durability": "interval", "headrace.sync_interval_ms": "200"}
        make(connected, "lazy", configs=lazy)
        make(connected, "other")
        publish(connected, "lazy")
        assert remove(connected, "lazy") == 0
        # The sync that was due comes and goes, and the node still syncs for others.
        due = time.monotonic() + 0.3
        while time.monotonic() < due:
            assert try_to_publish(connected, "other") == 0
        assert try_to_publish(connected, "other") == 0


def test_a_deletion_leaves_no_files_and_outlives_a_kill(node: NodeProcess) -> None:
    with WireClient(node.bootstrap) as connected:
        kept = make(connected, "kept").topic_id
        make(connected, "gone")
        publish(connected, "gone")
        assert remove(connected, "gone") == 0
        assert [path.name for path in (node.data / "topics").iterdir()] == [kept.hex()]
    node.restart(kill=True)
    with WireClient(node.bootstrap) as connected:
        everything = connected.call("Metadata", 9, metadata.MetadataRequest(None))
        assert [topic.name for topic in everything.topics] == ["kept"]


def test_a_topic_that_keeps_the_order_of_keys_does_not_grow(client: WireClient) -> None:
    name = fresh_name()
    make(client, name, configs={"headrace.ordering": "key"})
    request = grow.CreatePartitionsRequest((grow.CreatePartitionsTopic(name, 5, None),), 1_000)
    (answer,) = client.call("CreatePartitions", 3, request).results
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "order" in answer.error_message
