"""Compaction and retention while the node serves: beside it, and never in its way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.calls import Face
from headrace.core.node_settings import NodeSettings
from headrace.core.settings import TopicSettings
from headrace.engine import state_log
from headrace.engine.broker import Broker
from headrace.engine.partition import Partition
from headrace.log.segment import Segment
from headrace.node.serving import open_broker
from headrace.platform.clock import SystemClock
from headrace.platform.directory import RESERVE_FILE, give_up_reserve, keep_reserve
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch, check_batch
from headrace.server import maintenance
from headrace.server.deletion import delete_topics
from headrace.server.loop_calls import Calls
from headrace.server.service import Service
from headrace.server.tracing import trace

COMPACT: dict[str, Any] = {"cleanup": "compact", "retention_ms": None, "segment_bytes": 4_096}


class Bench:
    def __init__(self, **settings: Any) -> None:
        self.disk, self.clock, entropy = MemoryDisk(), SystemClock(), SystemEntropy()
        self.broker = Broker(self.disk, entropy, self.clock.now_ms())
        self.service = Service(
            self.broker, self.disk, self.clock, entropy, node_id=0, cluster_id="c"
        )
        self.topic = self.broker.topics.create(
            "orders", 1, TopicSettings(**settings), self.clock.now_ms()
        )
        self.partition: Partition = self.broker.topics.partition(self.topic, 0)

    async def append(self, count: int, *, timestamp_ms: int | None = None, **more: Any) -> None:
        now_ms = self.clock.now_ms() if timestamp_ms is None else timestamp_ms
        for number in range(count):
            record = NewRecord(b"%d" % (number % 3), b"v" * 100, timestamp_ms=now_ms, **more)
            batch = build_batch([record])
            end = self.partition.append(batch, check_batch(batch), now_ms).next_offset
        commit = self.service.commit()
        commit.data.append((self.partition, end))
        await self.service.finish(commit)

    def offsets(self) -> list[int]:
        log = self.partition.log
        return [record.offset for record in self.partition.read([log.start_offset, log.end_offset])]

    def copies(self) -> list[str]:
        return [name for name in self.disk.list(self.partition.path) if name.endswith(".cleaned")]


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await scenario()

    asyncio.run(limited())


def note_threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the threads that read whole batches, filled as they do."""
    names: set[str] = set()
    real = Segment.read_batch

    def read_batch(self: Segment, *given: Any) -> bytes:
        names.add(threading.current_thread().name)
        return real(self, *given)

    monkeypatch.setattr(Segment, "read_batch", read_batch)
    return names


def test_compaction_reads_in_its_own_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        bench = Bench(**COMPACT)
        await bench.append(200)
        names = note_threads(monkeypatch)
        await bench.service.maintenance.round()
        assert {name.rpartition("_")[0] for name in names} == {"headrace-maintenance"}
        kept = bench.offsets()
        assert len(kept) < 100
        assert kept[-1] == 199
        assert not bench.copies()
        await bench.service.close()

    play(scenario)


def test_the_reserve_for_a_full_disk_is_made_again_while_the_node_serves() -> None:
    async def scenario() -> None:
        disk, clock, entropy = MemoryDisk(), SystemClock(), SystemEntropy()
        broker = open_broker(disk, entropy, clock.now_ms(), NodeSettings())
        service = Service(broker, disk, clock, entropy, node_id=0, cluster_id="c")
        keep_reserve(disk)
        assert give_up_reserve(disk)
        await service.maintenance.round()
        assert disk.exists(RESERVE_FILE)
        await service.close()

    play(scenario)


@pytest.mark.parametrize("cleanup", ["compact", "compact,delete", "delete"])
def test_a_round_for_compacted_topics_sees_to_those_alone(cleanup: str) -> None:
    async def scenario() -> None:
        bench = Bench(cleanup=cleanup, retention_ms=1_000, segment_bytes=4_096)
        await bench.append(100, timestamp_ms=1)
        await bench.append(100)
        await bench.service.maintenance.round(compacted_only=True)
        kept = bench.offsets()
        assert (len(kept) < 100) == (cleanup != "delete")
        is_deleted = bench.partition.log.start_offset > 0
        assert is_deleted == (cleanup == "compact,delete")
        await bench.service.close()

    play(scenario)


def test_rounds_are_for_all_topics_every_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "COMPACT_SECONDS", 0)

    async def scenario() -> None:
        bench = Bench()
        rounds: list[bool] = []
        ended = asyncio.Event()

        async def note(*, compacted_only: bool = False) -> None:
            rounds.append(compacted_only)
            if len(rounds) == 4:
                ended.set()

        monkeypatch.setattr(bench.service.maintenance, "round", note)
        bench.service.maintenance._begin()
        await ended.wait()
        assert rounds[:4] == [True, False, True, False]
        await bench.service.close()

    play(scenario)


def test_appends_go_on_while_a_log_is_compacted() -> None:
    async def scenario() -> None:
        bench = Bench(**COMPACT)
        await bench.append(300)
        compacting = asyncio.ensure_future(bench.service.maintenance.round())
        appended = 0
        while not compacting.done():
            await bench.append(5)
            appended += 5
        await compacting
        kept = bench.offsets()
        assert appended
        assert kept == sorted(set(kept))
        assert kept[-1] == 299 + appended
        assert len(kept) < 300 + appended
        await bench.service.close()

    play(scenario)


def test_a_topic_that_is_deleted_under_its_compaction_ends_it() -> None:
    async def scenario() -> None:
        bench = Bench(**COMPACT)
        await bench.append(300)
        compacting = asyncio.ensure_future(bench.service.maintenance.round())
        await asyncio.sleep(0)
        await delete_topics(bench.service, [bench.topic])
        await compacting
        assert bench.disk.list(bench.topic.folder) == []
        await bench.service.close()

    play(scenario)


def test_a_node_that_stops_under_a_compaction_leaves_no_copy() -> None:
    async def scenario() -> None:
        bench = Bench(**COMPACT)
        await bench.append(300)
        bench.service.maintenance._begin()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await bench.service.close()
        assert not bench.copies()
        assert bench.offsets()[-1] == 299

    play(scenario)


def test_one_partition_that_fails_does_not_keep_the_others_from_their_turn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        bench = Bench(**COMPACT)
        await bench.append(200)
        bad = bench.broker.topics.create("a", 1, TopicSettings(**COMPACT), 1)
        real = bench.broker.maintenance

        def maintenance(partition: Partition, share_bytes: int, now_ms: int) -> Any:
            if partition.topic.id == bad.id:
                raise OSError("no")
            return real(partition, share_bytes, now_ms)

        monkeypatch.setattr(bench.broker, "maintenance", maintenance)
        await bench.service.maintenance.round()
        assert len(bench.offsets()) < 100
        await bench.service.close()

    play(scenario)


def test_old_segments_go_and_delayed_messages_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        bench = Bench(retention_ms=1_000, segment_bytes=1_024)
        await bench.append(30, timestamp_ms=1)
        due = b"%d" % (bench.clock.now_ms() + 1_000_000)
        await bench.append(1, timestamp_ms=1, headers=(("headrace-deliver-at", due),))
        await bench.append(30, timestamp_ms=1)
        names = note_threads(monkeypatch)
        await bench.service.maintenance.round()
        assert all(name.startswith("headrace-maintenance") for name in names)
        kept = bench.offsets()
        assert 0 < kept[0] <= 30
        assert kept[-1] == 60
        await bench.service.close()

    play(scenario)


def test_state_logs_that_wait_to_be_cut_are_followed_beside_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_log, "SNAPSHOT_BYTES_MIN", 2_000)

    async def scenario() -> None:
        bench = Bench(trace_sample=1)
        calls = Calls(bench.service)
        await calls.run(Face.open_queue, "billing", ["orders"], "worker")
        await bench.append(60)
        while True:
            leased = await calls.run(Face.lease, "billing", ["orders"], "worker", 1)
            if not leased:
                break
            await calls.run(Face.ack, "billing", [leased[0].receipt])
        state = bench.partition.state
        assert state is not None
        while bench.broker.follower.due:
            await asyncio.sleep(0)
        assert state.log.start_offset > 0
        for offset in (0, 30, 59):
            told = await trace(calls, f"orders:0:{offset}")
            assert [event.kind for event in told.events] == ["published", "leased", "acked"]
        await bench.service.close()
        bench.broker.close()

    play(scenario)
