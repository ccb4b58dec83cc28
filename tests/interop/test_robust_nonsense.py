"""Nonsense under a good checksum: it is refused; and where a node that does not look has
taken it, neither it nor the messages around it suffer, in any view, over any restart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import quiet
from tests.interop.wire_client import WireClient, fresh_name, make

import headrace
from headrace.record import NewRecord, build_batch
from headrace.record.batch import seal_batch
from headrace.wire.kafka.generated import produce_request as produce


def batch_of(value: bytes) -> bytearray:
    return build_batch([NewRecord(None, value, (), int(time.time() * 1000))])


def nonsense(codec: int, filling: bytes) -> bytearray:
    batch = batch_of(b"x" * 300)
    body = b"\xff" * 10 + filling
    batch[61:] = body + b"\xfe" * (len(batch) - 61 - len(body))
    batch[22] |= codec
    seal_batch(batch, 0, len(batch))
    return batch


INVALID_RECORD = 87


def send(client: WireClient, batch: bytearray, topic: str = "orders") -> Any:
    data = produce.TopicProduceData(
        topic, partition_data=(produce.PartitionProduceData(0, bytes(batch)),)
    )
    answer = client.call("Produce", 9, produce.ProduceRequest(None, -1, 1_000, (data,)))
    return answer.responses[0].partition_responses[0]


@pytest.fixture
def trusting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeProcess]:
    """A node that leaves it to producers what is in their batches."""
    monkeypatch.setenv("HEADRACE_CHECK_RECORDS", "none")
    process = NodeProcess(tmp_path / "data")
    yield process
    process.stop()


# With the second filling a batch looks as if it had attributes of a queue's in it.
@pytest.mark.parametrize("filling", [b"", b"headrace-delay-ms"])
@pytest.mark.parametrize("codec", [0, 4])
def test_the_messages_around_nonsense_are_delivered(
    trusting: NodeProcess, codec: int, filling: bytes
) -> None:
    node = trusting
    with WireClient(node.bootstrap) as client:
        make(client, "orders", 1)
        assert send(client, batch_of(b"before")).error_code == 0
        assert send(client, nonsense(codec, filling)).error_code == 0
        assert send(client, batch_of(b"behind")).error_code == 0
    node.stop()
    with headrace.open(str(node.data)) as handle:
        queue = handle.queue("orders", group="billing")
        leased = queue.lease(10)
        assert [bytes(message.value) for message in leased] == [b"before", b"behind"]
        for message in leased:
            message.ack()
    node.restart()
    with WireClient(node.bootstrap) as client:
        # Now a queue looks at everything before it is appended.
        assert send(client, nonsense(codec, filling)).error_code == INVALID_RECORD
        assert send(client, batch_of(b"later")).error_code == 0
    node.stop()
    with headrace.open(str(node.data)) as handle:
        leased = handle.queue("orders", group="billing").lease(10)
        assert [bytes(message.value) for message in leased] == [b"later"]


@pytest.mark.parametrize("codec", range(5))
def test_nonsense_is_refused_and_consumers_read_on(admin_node: NodeProcess, codec: int) -> None:
    topic = fresh_name()
    with WireClient(admin_node.bootstrap) as client:
        make(client, topic, 1)
        assert send(client, batch_of(b"before"), topic).error_code == 0
        refused = send(client, nonsense(codec, b""), topic)
        assert (refused.error_code, refused.base_offset) == (INVALID_RECORD, -1)
        assert refused.error_message
        assert send(client, batch_of(b"behind"), topic).error_code == 0
    consumer = Consumer({**quiet(admin_node.bootstrap), "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(2, 30)
    consumer.close()
    assert [(each.offset(), each.value()) for each in found] == [(0, b"before"), (1, b"behind")]
