"""Group commit on a loop: what its callers hear of that is no answer. Its rounds are those of
`tests/contract/test_group_commit.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest

from headrace.calls import Face
from headrace.core.errors import FencedLeader, SyncFailed, UnknownTopic
from headrace.core.settings import TopicSettings
from headrace.engine.broker import Broker, Round
from headrace.engine.confirmed import Confirmed
from headrace.engine.partition import Partition
from headrace.platform.clock import SystemClock
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch, check_batch
from headrace.server.deletion import delete_topics
from headrace.server.loop_calls import Calls
from headrace.server.service import Service


class Bench:
    """A service on a memory disk, with a topic to write to."""

    def __init__(self, **settings: Any) -> None:
        self.disk, clock, entropy = MemoryDisk(), SystemClock(), SystemEntropy()
        self.broker = Broker(self.disk, entropy, clock.now_ms())
        self.service = Service(self.broker, self.disk, clock, entropy, node_id=0, cluster_id="c")
        topic = self.broker.topics.create("orders", 1, TopicSettings(**settings), clock.now_ms())
        self.partition: Partition = self.broker.topics.partition(topic, 0)

    def append(self) -> asyncio.Future[None] | None:
        batch = build_batch([NewRecord(None, b"value")])
        appended = self.partition.append(batch, check_batch(batch), 1)
        commit = self.service.commit()
        commit.data.append((self.partition, appended.next_offset))
        return self.service.submit(commit)


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await scenario()

    asyncio.run(limited())


def test_where_the_disk_is_not_waited_for_the_watermark_moves_at_once() -> None:
    async def scenario() -> None:
        bench = Bench(durability="os")
        first = bench.append()
        if first is not None:
            # Only the topic's own creation has to be on disk.
            await first
        woken: list[int] = []
        bench.service.wait_on([bench.partition], lambda: woken.append(1))
        assert bench.append() is None
        assert bench.partition.high_watermark == 2
        assert woken == [1]
        await bench.service.close()

    play(scenario)


def test_who_waits_for_messages_is_woken_by_the_round_that_makes_them_safe() -> None:
    async def scenario() -> None:
        bench = Bench()
        waiting = bench.append()
        assert waiting is not None
        seen: list[int] = []
        bench.service.wait_on(
            [bench.partition], lambda: seen.append(bench.partition.high_watermark)
        )
        await waiting
        assert seen == [1]
        await bench.service.close()

    play(scenario)


def test_a_sync_that_fails_under_a_call_ends_the_node() -> None:
    async def scenario() -> None:
        bench = Bench()
        calls = Calls(bench.service)

        def refuse(*_: object) -> None:
            raise SyncFailed("the disk refused to sync")

        bench.broker.delete_records = refuse  # type: ignore[assignment, method-assign]
        for _ in range(2):
            with pytest.raises(SyncFailed):
                await calls.run(Face.delete_records, "orders", 0, 0)
        assert bench.service.failed.done()
        waiting = bench.append()
        assert waiting is not None
        with pytest.raises(SyncFailed):
            await waiting
        await bench.service.close()

    play(scenario)


def test_deleting_topics_fails_no_deletion_of_them() -> None:
    async def scenario() -> None:
        bench = Bench()
        waiting = bench.append()
        assert waiting is not None
        await delete_topics(bench.service, [bench.partition.topic])
        with pytest.raises(UnknownTopic):
            await waiting
        assert bench.service.commits.failed is None
        await bench.service.close()

    play(scenario)


@pytest.mark.parametrize("durability", ["synced", "os"])
def test_who_waits_for_another_node_waits_in_peace_and_is_told_when_it_has_it(
    durability: str,
) -> None:
    async def scenario() -> None:
        bench = Bench(durability=durability)
        other, rounds = Confirmed(), []
        bench.partition.become_leader(bench.partition.epoch + 1, 1, other)
        real = bench.broker.begin_sync

        def begin_sync(dirty: Iterable[Partition]) -> Round:
            rounds.append(1)
            return real(dirty)

        bench.broker.begin_sync = begin_sync  # type: ignore[method-assign, assignment]
        waiting = bench.append()
        assert waiting is not None
        while bench.partition.log.synced_end < 1 and durability == "synced":
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        # The disk has all of it: there is nothing to be done before the other node speaks.
        assert len(rounds) <= 3
        other.data_end = 1
        bench.service.commits.go_on_with([bench.partition])
        await waiting
        assert bench.partition.high_watermark == 1
        await bench.service.close()

    play(scenario)


def test_who_waits_for_another_node_hears_that_the_lead_is_lost() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.partition.become_leader(bench.partition.epoch + 1, 1, Confirmed())
        waiting = bench.append()
        assert waiting is not None
        while bench.partition.log.synced_end < 1:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        bench.broker.leading.resign(bench.partition)
        with pytest.raises(FencedLeader):
            await waiting
        await bench.service.close()

    play(scenario)
