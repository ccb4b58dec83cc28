"""Group commit on a loop: rounds, failures, and that nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest

from headrace.core.errors import DiskFull, FencedLeader, SyncFailed
from headrace.core.settings import TopicSettings
from headrace.engine.broker import Broker, Round
from headrace.engine.confirmed import Confirmed
from headrace.engine.partition import Partition
from headrace.platform.clock import SystemClock
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch, check_batch
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

    def break_on_synced(self, error: Exception, times: int) -> None:
        real = self.broker.on_synced
        left = [times]

        def on_synced(done: Round, now_ms: int) -> set[Partition]:
            if left[0]:
                left[0] -= 1
                raise error
            return real(done, now_ms)

        self.broker.on_synced = on_synced  # type: ignore[method-assign]


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await scenario()

    asyncio.run(limited())


def test_an_append_is_safe_when_its_future_is_done_and_not_before() -> None:
    async def scenario() -> None:
        bench = Bench()
        waiting = bench.append()
        assert waiting is not None
        assert bench.partition.high_watermark == 0
        await waiting
        assert bench.partition.high_watermark == 1
        await bench.service.close()

    play(scenario)


def test_appends_during_a_round_share_the_next_one() -> None:
    async def scenario() -> None:
        bench = Bench()
        rounds = []
        real = bench.broker.begin_sync

        def begin_sync(dirty: Iterable[Partition]) -> Round:
            rounds.append(1)
            return real(dirty)

        bench.broker.begin_sync = begin_sync  # type: ignore[method-assign, assignment]
        waiting = [bench.append() for _ in range(100)]
        await asyncio.gather(*(each for each in waiting if each is not None))
        assert len(rounds) <= 2
        assert bench.partition.high_watermark == 100
        await bench.service.close()

    play(scenario)


def test_where_the_disk_is_not_waited_for_the_watermark_moves_at_once() -> None:
    async def scenario() -> None:
        bench = Bench(durability="os")
        first = bench.append()
        if first is not None:
            # Only the topic's own creation has to be on disk.
            await first
        assert bench.append() is None
        assert bench.partition.high_watermark == 2
        await bench.service.close()

    play(scenario)


def test_a_failed_sync_fails_who_waits_and_all_who_come_later() -> None:
    async def scenario() -> None:
        bench = Bench()
        first = bench.append()
        assert first is not None
        await first
        bench.break_on_synced(OSError(5, "input/output error"), 1)
        second = bench.append()
        assert second is not None
        with pytest.raises(SyncFailed):
            await second
        assert bench.service.failed.done()
        third = bench.append()
        assert third is not None
        with pytest.raises(SyncFailed):
            await third
        await bench.service.close()

    play(scenario)


def test_a_defect_ends_the_node_and_does_not_leave_anybody_waiting() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.break_on_synced(RuntimeError("a bug of ours"), 1)
        waiting = bench.append()
        assert waiting is not None
        with pytest.raises(SyncFailed, match="a bug of ours"):
            await waiting
        await bench.service.close()

    play(scenario)


@pytest.mark.parametrize("error", [OSError(28, "no space"), DiskFull("no space")])
def test_a_full_disk_is_asked_again_until_there_is_room(error: Exception) -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.break_on_synced(error, 2)
        waiting = bench.append()
        assert waiting is not None
        await waiting
        assert bench.service.commits.failed is None
        assert bench.partition.high_watermark == 1
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
