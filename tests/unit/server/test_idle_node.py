"""A node that nobody asks anything: what time brings reaches the disk, once, and a
month of it costs neither memory nor disk."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.calls import Face
from headrace.core.settings import TopicSettings
from headrace.core.values import Outgoing
from headrace.engine.broker import Broker
from headrace.engine.commit import Commit
from headrace.engine.coordinator.transaction import Transaction
from headrace.engine.cursor import Commitment
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.loop_calls import Calls
from headrace.server.service import Service
from headrace.testing import ManualClock

DAY = 24 * 3_600
GROUPS = 2_000
ROUND_SECONDS = 900


class Node:
    """Without doors, and with a clock that moves when it is told to."""

    def __init__(self) -> None:
        self.disk, self.clock = MemoryDisk(), ManualClock()
        entropy = SystemEntropy()
        self.broker = Broker(self.disk, entropy, self.clock.now_ms())
        self.service = Service(
            self.broker, self.disk, self.clock, entropy, node_id=0, cluster_id="c"
        )
        self.calls = Calls(self.service)

    async def finish(self, commit: Commit) -> None:
        await self.service.finish(commit)

    async def days(self, count: float) -> None:
        """Rounds of maintenance, as its timer would begin them."""
        for _ in range(int(count * DAY / ROUND_SECONDS)):
            self.clock.skip(ROUND_SECONDS)
            await self.service.maintenance.round()
            self.service._on_maintained()
            await self.settle()

    async def settle(self) -> None:
        """Until what was begun is on disk."""
        while self.service.commits._round is not None or not self.service.commits.is_idle:
            await asyncio.sleep(0)

    def disk_bytes(self) -> int:
        return sum(partition.log.size_bytes for partition in self.broker.topics) + sum(
            partition.state.log.size_bytes
            for partition in self.broker.topics
            if partition.state is not None
        )

    async def close(self) -> None:
        await self.service.close()
        self.broker.close()


def play(scenario: Callable[[Node], Coroutine[Any, Any, None]]) -> Node:
    async def limited() -> Node:
        node = Node()
        try:
            async with asyncio.timeout(60):
                await scenario(node)
        finally:
            await node.close()
        return node

    return asyncio.run(limited())


async def commit_positions(node: Node, groups: int) -> None:
    topic = node.broker.topics.create("orders", 1, TopicSettings(), node.clock.now_ms())
    commit = node.service.commit()
    for number in range(groups):
        commit.data.append(
            node.broker.cursors.commit(
                f"readers-{number}", {(topic.id, 0): Commitment(0)}, node.clock.now_ms()
            )
        )
    await node.finish(commit)


async def open_transaction(node: Node, name: str, timeout_ms: int) -> None:
    table, now_ms = node.broker.transactions, node.clock.now_ms()
    begun = table.init(name, timeout_ms, None, now_ms)
    assert isinstance(begun, Transaction)
    topic = node.broker.topics.named("orders")
    table.add(name, begun.producer_id, begun.epoch, {(topic.id, 0)}, now_ms)
    commit = node.service.commit()
    commit.data += table.depends(name)
    await node.finish(commit)


def test_expired_positions_reach_the_disk_of_an_idle_node() -> None:
    async def scenario(node: Node) -> None:
        await commit_positions(node, 10)
        await node.days(7.1)
        assert node.broker.cursors.groups() == set()

    node = play(scenario)
    again = Broker(node.disk, SystemEntropy(), node.clock.now_ms())
    assert again.cursors.groups() == set()
    again.close()


def test_what_is_about_to_be_forgotten_is_not_written_again() -> None:
    async def scenario(node: Node) -> None:
        await commit_positions(node, 10)
        await node.days(6.9)
        log = next(p.log for p in node.broker.topics if p.topic.name == "__cursors")
        before = log.end_offset
        node.clock.skip(DAY)
        for _ in range(3):
            # The disk has not said yet that it has the first of them.
            commit = node.service.commit()
            node.broker.duties.forget(node.clock.now_ms(), commit)
        assert log.end_offset == before + 10

    play(scenario)


def test_a_month_of_an_idle_node_with_much_to_expire_is_flat() -> None:
    async def scenario(node: Node) -> None:
        await commit_positions(node, GROUPS)
        for number in range(300):
            await open_transaction(node, f"payments-{number}", 60_000)
        await node.days(1)
        assert not node.broker.transactions.unfinished()
        await node.days(8)
        assert node.broker.cursors.groups() == set()
        assert not list(node.broker.transactions.items())
        before = node.disk_bytes(), _objects()
        await node.days(21)
        assert node.disk_bytes() <= before[0]
        assert _objects() < before[1] + 1_000

    play(scenario)


def test_what_retention_gives_up_reaches_the_dead_letters_of_an_idle_node() -> None:
    async def scenario(node: Node) -> None:
        settings = TopicSettings(
            retention_ms=DAY * 1_000, retention_owed="dead-letter", segment_bytes=1_024
        )
        topic = node.broker.topics.create("orders", 1, settings, node.clock.now_ms())
        await node.calls.run(Face.open_queue, "billing", ["orders"], "worker")
        await node.calls.run(Face.publish, "orders", [Outgoing(b"late")])
        await node.days(1.1)
        letters = node.broker.dead_letters(topic, None, None, 10).items
        assert [letter.value for letter in letters] == [b"late"]
        assert not node.broker.moves
        before = node.disk_bytes(), _objects()
        await node.days(29)
        assert node.disk_bytes() <= before[0]
        assert _objects() < before[1] + 1_000

    play(scenario)


def _objects() -> int:
    gc.collect()
    return len(gc.get_objects())
