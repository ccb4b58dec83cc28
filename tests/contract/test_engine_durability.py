"""The engine over memory and over a real directory, for every durability.

What one process did is what the next one finds, whatever disk is below.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.core.errors import ReadOnly, StaleReceipt
from headrace.core.values import MessageId, Outgoing
from headrace.node import Node
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import attribute_headers

TOPIC, GROUP = "orders", "workers"

OpenNode = Callable[..., Node]


class HandClock:
    def __init__(self) -> None:
        self.time_ms = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms


@pytest.fixture(params=["memory", "directory"])
def open_node(request: pytest.FixtureRequest, tmp_path: Path) -> OpenNode:
    disk = MemoryDisk() if request.param == "memory" else None
    clock = HandClock()

    def open_it(*, read_only: bool = False) -> Node:
        path = str(tmp_path / "queue")
        return Node.open(path, disk=disk, clock=clock, read_only=read_only)

    return open_it


def move_clock(node: Node, passed_ms: int) -> None:
    assert isinstance(node.clock, HandClock)
    node.clock.time_ms += passed_ms


@pytest.mark.parametrize("durability", ["synced", "interval", "os"])
@pytest.mark.parametrize("ordering", ["none", "key", "partition"])
def test_the_life_of_messages_goes_on_where_it_was(
    open_node: OpenNode, durability: str, ordering: str
) -> None:
    node = open_node()
    settings = {"durability": durability, "ordering": ordering}
    node.create_topic(TOPIC, partitions=1, settings=settings)
    node.open_queue(GROUP, [TOPIC], "ann", {"max_attempts": 2})
    node.publish(TOPIC, [Outgoing(b"%d" % number, b"k%d" % number) for number in range(4)])
    late = attribute_headers(delay_ms=5_000, priority="critical")
    node.publish(TOPIC, [Outgoing(b"late", b"l", late)])

    def one() -> tuple[bytes | None, Callable[..., object]]:
        (delivery,) = node.lease(GROUP, [TOPIC], "ann", 1)
        return delivery.value, lambda call, **rest: call(GROUP, [delivery.receipt], **rest)

    value, settle = one()
    assert (value, settle(node.ack)) == (b"0", [None])
    value, settle = one()
    assert (value, settle(node.reject, reason="no")) == (b"1", [None])
    value, settle = one()
    assert value == b"2"

    node.close()
    node = open_node()
    # The lease ended with the process; its attempt counts.
    assert isinstance(settle(node.ack)[0], StaleReceipt)  # type: ignore[index]
    (again,) = node.lease(GROUP, [TOPIC], "ann", 1)
    assert (again.value, again.attempt) == (b"2", 2)
    assert node.nack(GROUP, [again.receipt], error="twice") == [None]

    node.close()
    node = open_node()
    states = [node.status(MessageId(TOPIC, 0, offset), GROUP).state for offset in range(5)]
    assert states == ["acked", "dead-lettered", "dead-lettered", "pending", "delayed"]
    letters = node.dead_letters(TOPIC)
    assert [(letter.value, letter.error) for letter in letters] == [(b"1", "no"), (b"2", "twice")]
    assert node.redrive(TOPIC, [MessageId("orders.dlq", 0, 1)]).redriven == 1
    assert node.purge(TOPIC, [MessageId("orders.dlq", 0, 0)]) == 1
    move_clock(node, 5_000)

    node.close()
    node = open_node()
    assert node.dead_letters(TOPIC) == []
    seen = []
    while leased := node.lease(GROUP, [TOPIC], "ann", 10):
        assert not any(node.ack(GROUP, [delivery.receipt for delivery in leased]))
        seen += [delivery.value for delivery in leased]
    assert sorted(value or b"" for value in seen) == [b"2", b"3", b"late"]
    assert node.queue_statistics(GROUP).depth == 0
    node.close()


def test_a_reader_shows_what_time_has_brought_since(open_node: OpenNode) -> None:
    """It may not write that down, and shows all the same what a lease would find."""
    writer = open_node()
    writer.create_topic(TOPIC, partitions=1)
    writer.open_queue(GROUP, [TOPIC], "ann", {"visibility_ms": 20_000, "max_attempts": 2})
    writer.publish_values(TOPIC, [b"retried", b"leased for the last time", b"leased"])
    held = writer.lease(GROUP, [TOPIC], "ann", 3)
    writer.nack(GROUP, [held[0].receipt], delay_ms=30_000)
    writer.nack(GROUP, [held[1].receipt], delay_ms=0)
    assert [each.attempt for each in writer.lease(GROUP, [TOPIC], "ann", 1)] == [2]
    for headers in (attribute_headers(delay_ms=30_000), attribute_headers(ttl_ms=30_000)):
        writer.publish(TOPIC, [Outgoing(b"x", headers=headers)])
    readers = [open_node(read_only=True) for _ in range(3)]
    numbers = readers[0].queue_statistics(GROUP)
    assert (numbers.ready, numbers.leased, numbers.retrying, numbers.delayed) == (1, 2, 1, 1)
    move_clock(writer, 40_000)
    for _ in range(2):
        numbers = readers[0].queue_statistics(GROUP)
        assert (numbers.ready, numbers.leased, numbers.retrying, numbers.delayed) == (3, 0, 0, 0)
        # What had its last attempt is on its way to the dead letters.
        assert (numbers.moving, numbers.lease_expired, numbers.expired) == (1, 1, 1)
    [totals] = readers[1].overview().groups
    assert (totals.ready, totals.retrying, totals.moving) == (3, 0, 1)
    assert readers[2].status(MessageId(TOPIC, 0, 0), GROUP).state == "pending"
    for reader in readers:
        reader.close()
    numbers = writer.queue_statistics(GROUP)
    assert (numbers.ready, numbers.dead_lettered, numbers.expired) == (3, 1, 1)
    writer.close()


def test_a_reader_beside_the_writer_sees_what_it_did(open_node: OpenNode) -> None:
    writer = open_node()
    writer.create_topic(TOPIC, partitions=2)
    writer.open_queue(GROUP, [TOPIC], "ann")
    writer.publish_values(TOPIC, [b"x"] * 10, partition=1)
    held = writer.lease(GROUP, [TOPIC], "ann", 5)
    writer.ack(GROUP, [delivery.receipt for delivery in held[:3]])
    reader = open_node(read_only=True)
    numbers = reader.queue_statistics(GROUP)
    assert (numbers.ready, numbers.leased, numbers.acked) == (5, 2, 3)
    assert reader.status(MessageId(TOPIC, 1, 4), GROUP).consumer == "ann"
    assert len(reader.read(TOPIC, 1, 0)[0]) == 10
    with pytest.raises(ReadOnly):
        reader.lease(GROUP, [TOPIC], "ann", 1)
    reader.close()
    assert not any(writer.ack(GROUP, [delivery.receipt for delivery in held[3:]]))
    writer.close()
