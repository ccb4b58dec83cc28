"""Far more partitions than files may be open: everything works, and comes back.

HEADRACE_LONG=1 does it with ten thousand, and the usual limit of a shell.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.conftest import NodeProcess
from tests.interop.wire_client import WireClient, make

import headrace
from headrace.platform.descriptors import DESCRIPTORS
from headrace.record import NewRecord, build_batch, read_header, read_records
from headrace.wire.kafka.generated import fetch_request as fetch
from headrace.wire.kafka.generated import metadata_request as metadata
from headrace.wire.kafka.generated import produce_request as produce

LONG = os.environ.get("HEADRACE_LONG") == "1"
PARTITIONS = 10_000 if LONG else 300
OPEN_FILES = 1_024 if LONG else 200
# How many partitions one request is about.
CHUNK = 250
TOPIC = "many"

pytestmark = pytest.mark.timeout(1_800 if LONG else 120)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path / "data", open_files=OPEN_FILES)
    yield process
    process.stop()


def chunks() -> list[range]:
    return [range(first, min(PARTITIONS, first + CHUNK)) for first in range(0, PARTITIONS, CHUNK)]


def write(client: WireClient, turn: int) -> None:
    """One record into each partition, which says where it is."""
    # Of now: a segment of old records would be sealed, and end a read.
    now_ms = time.time_ns() // 1_000_000
    for chunk in chunks():
        parts = tuple(
            produce.PartitionProduceData(
                index, bytes(build_batch([NewRecord(None, b"%d %d" % (index, turn), (), now_ms)]))
            )
            for index in chunk
        )
        data = produce.TopicProduceData(TOPIC, partition_data=parts)
        answer = client.call("Produce", 9, produce.ProduceRequest(None, -1, 60_000, (data,)))
        for each in answer.responses[0].partition_responses:
            assert (each.error_code, each.base_offset) == (0, turn)


def check(client: WireClient, turns: int) -> None:
    for chunk in chunks():
        wanted = tuple(fetch.FetchPartition(index, -1, 0, -1, -1, 10_000) for index in chunk)
        request = fetch.FetchRequest(
            max_wait_ms=0, min_bytes=1, topics=(fetch.FetchTopic(TOPIC, partitions=wanted),)
        )
        answer = client.call("Fetch", 11, request)
        for each in answer.responses[0].partitions:
            assert each.error_code == 0
            values = []
            data = bytes(each.records)
            while data:
                header = read_header(data)
                values += [record.value for record in read_records(data[: header.size_bytes])]
                data = data[header.size_bytes :]
            index = each.partition_index
            assert values == [b"%d %d" % (index, turn) for turn in range(turns)]


def test_a_node_serves_more_partitions_than_it_may_open_files(node: NodeProcess) -> None:
    with WireClient(node.bootstrap) as client:
        make(client, TOPIC, PARTITIONS)
        write(client, 0)
        write(client, 1)
        check(client, 2)
    node.restart()
    with WireClient(node.bootstrap) as client:
        (topic,) = client.call("Metadata", 12, metadata.MetadataRequest(None)).topics
        assert len(topic.partitions) == PARTITIONS
        write(client, 2)
        check(client, 3)
    node.restart(kill=True)
    with WireClient(node.bootstrap) as client:
        check(client, 3)
        write(client, 3)
        check(client, 4)
    assert len(os.listdir(f"/proc/{node.process.pid}/fd")) < OPEN_FILES


def test_queues_of_more_partitions_than_open_files_keep_their_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DESCRIPTORS, "_limit", OPEN_FILES // 4)
    count = PARTITIONS // 2
    with headrace.open(tmp_path / "data") as handle:
        handle.create_topic("jobs", partitions=count)
        queue = handle.queue("jobs", group="workers")
        handle.publish_many("jobs", [b"%d" % number for number in range(4 * count)])
        queue.ack(queue.lease(count))
        # What is held and not settled comes back when the directory is opened again.
        queue.lease(count)
        acked = 4 * count - queue.depth()
    assert acked == count
    with headrace.open(tmp_path / "data") as handle:
        queue = handle.queue("jobs", group="workers")
        values = []
        while messages := queue.lease(1_000):
            values += [message.value for message in messages]
            queue.ack(messages)
    assert len(values) == len(set(values)) == 3 * count
