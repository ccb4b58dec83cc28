"""Time passes for an embedded handle when somebody asks it something: transactions end,
positions and transactional ids are forgotten, and all of it is on disk."""

from __future__ import annotations

from datetime import timedelta

from tests.unit.engine.conftest import copy_of
from tests.unit.engine.transaction_bench import TIMEOUT_MS, TOPIC, TransactionBench

from headrace.core.values import Outgoing
from headrace.node import Node
from headrace.platform.memory_disk import MemoryDisk
from headrace.testing import ManualClock

NAME, GROUP = "payments", "readers"


def left_open() -> MemoryDisk:
    """The directory of a node whose Kafka client was in a transaction."""
    disk = MemoryDisk()
    Node.open(":memory:", disk=disk).close()
    bench = TransactionBench(disk)
    bench.make_topic(1)
    owner = bench.init()
    bench.add(owner, 0)
    bench.write(owner, 0, b"never")
    bench.settle()
    return copy_of(bench.disk)


def opened(disk: MemoryDisk, at_ms: int = 1_000_000) -> tuple[Node, ManualClock]:
    clock = ManualClock(at_ms / 1000, autoskip=False)
    return Node.open(":memory:", disk=disk, clock=clock), clock


def test_a_transaction_that_was_left_open_ends_when_somebody_reads() -> None:
    node, clock = opened(left_open())
    node.publish(TOPIC, [Outgoing(b"behind it")])
    assert node.read(TOPIC, 0, 0)[0] == []
    clock.skip(TIMEOUT_MS / 1000)
    assert [record.value for record in node.read(TOPIC, 0, 0)[0]] == [b"behind it"]
    assert [each.state for each in node.transactions()] == ["CompleteAbort"]
    node.close()


def test_one_whose_time_was_over_ends_with_the_open() -> None:
    node, _ = opened(left_open(), 1_000_000 + TIMEOUT_MS)
    node.publish(TOPIC, [Outgoing(b"behind it")])
    assert [record.value for record in node.read(TOPIC, 0, 0)[0]] == [b"behind it"]
    node.close()


def test_positions_and_ids_that_nobody_uses_are_forgotten_for_good() -> None:
    disk = left_open()
    node, clock = opened(disk)
    node.commit(GROUP, {(TOPIC, 0): 0})
    clock.skip(timedelta(minutes=2))
    assert node.transactions()
    for _ in range(8):
        clock.skip(timedelta(days=1))
        node.topics()
    assert node.transactions() == []
    assert GROUP not in {info.name for info in node.groups()}
    again, _ = opened(copy_of(disk), clock.now_ms())
    assert again.transactions() == []
    assert GROUP not in {info.name for info in again.groups()}
    again.close()
    node.close()


def test_a_handle_that_only_reads_leaves_everything_as_it_is() -> None:
    disk = left_open()
    clock = ManualClock(1_000_000 / 1000, autoskip=False)
    node = Node.open(":memory:", disk=disk, clock=clock, read_only=True)
    clock.skip(TIMEOUT_MS / 1000)
    assert [each.state for each in node.transactions()] == ["Ongoing"]
    node.close()
