"""Nonsense under a good checksum: the node does not open batches, so it takes it; and
neither it nor the messages around it may suffer, in any view, over any restart.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.interop.conftest import NodeProcess
from tests.interop.wire_client import WireClient, make

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


CORRUPT_MESSAGE = 2


def send(client: WireClient, batch: bytearray) -> Any:
    data = produce.TopicProduceData(
        "orders", partition_data=(produce.PartitionProduceData(0, bytes(batch)),)
    )
    answer = client.call("Produce", 9, produce.ProduceRequest(None, -1, 1_000, (data,)))
    return answer.responses[0].partition_responses[0]


# With the second filling a batch looks as if it had attributes of a queue's in it.
@pytest.mark.parametrize("filling", [b"", b"headrace-delay-ms"])
@pytest.mark.parametrize("codec", [0, 4])
def test_the_messages_around_nonsense_are_delivered(
    node: NodeProcess, codec: int, filling: bytes
) -> None:
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
        assert send(client, nonsense(codec, filling)).error_code == CORRUPT_MESSAGE
        assert send(client, batch_of(b"later")).error_code == 0
    node.stop()
    with headrace.open(str(node.data)) as handle:
        leased = handle.queue("orders", group="billing").lease(10)
        assert [bytes(message.value) for message in leased] == [b"later"]
    node.restart()
