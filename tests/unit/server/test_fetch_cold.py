"""A fetch of what is not in memory: a thread waits for the disk, and nobody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.unit.server.asking import Asking, run

from headrace.core.ports import Buffer, File, WouldWait
from headrace.core.settings import TopicSettings
from headrace.platform.memory_disk import MemoryContent, MemoryDisk, MemoryFile
from headrace.record import NewRecord, build_batch, read_header, read_records
from headrace.server.kafka.fetch import WARMINGS_MAX
from headrace.wire.kafka.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic


class ColdDisk(MemoryDisk):
    """A disk that must be waited for: where something was read once, it is warm."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cold = False
        self.forgets = False
        self.warm: set[tuple[str, int]] = set()
        self.waited_in: list[threading.Thread] = []
        self.may_wait = True

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        self.may_wait = False
        try:
            yield
        finally:
            self.may_wait = True

    def _handle(self, path: str, content: MemoryContent, read_only: bool) -> File:
        return ColdFile(self, path, content, read_only)


class ColdFile(MemoryFile):
    def __init__(self, disk: ColdDisk, path: str, content: MemoryContent, read_only: bool) -> None:
        super().__init__(path, content, read_only)
        self._disk = disk

    def read(self, length: int, position: int) -> bytes:
        disk = self._disk
        if disk.is_cold and (self.path, position) not in disk.warm:
            if not disk.may_wait:
                raise WouldWait(self, length, position)
            disk.waited_in.append(threading.current_thread())
            if not disk.forgets:
                disk.warm.add((self.path, position))
        return super().read(length, position)

    def view(self, length: int, position: int) -> Buffer:
        return self.read(length, position)


def ask_for(*indexes: int, max_wait_ms: int = 0, min_bytes: int = 1) -> FetchRequest:
    partitions = tuple(FetchPartition(index, -1, 0, partition_max_bytes=10**6) for index in indexes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        session_epoch=-1,
        topics=(FetchTopic("orders", partitions=partitions),),
    )


def filled(disk: ColdDisk) -> Asking:
    asking = Asking(disk)
    topic = asking.broker.topics.create("orders", 2, TopicSettings(durability="os"), 0)
    for index in range(2):
        partition = asking.broker.topics.partition(topic, index)
        batch = build_batch([NewRecord(None, b"%d" % index, (), 1)])
        partition.append(batch, read_header(batch), 0)
    disk.is_cold = True
    return asking


def values(answer: Any) -> list[bytes | None]:
    [topic] = answer.responses
    return [read_records(part.records)[0].value for part in topic.partitions]


@pytest.mark.parametrize("min_bytes", [1, 10**6])
def test_cold_records_are_waited_for_in_a_thread_and_answered(min_bytes: int) -> None:
    async def scenario() -> None:
        disk = ColdDisk()
        asking = filled(disk)
        answer = await asking.ask(1, 12, ask_for(0, 1, min_bytes=min_bytes))
        assert values(answer) == [b"0", b"1"]
        assert disk.waited_in
        assert threading.main_thread() not in disk.waited_in

    run(scenario)


def test_a_fetch_behind_the_end_still_waits_for_news_after_cold_reads() -> None:
    async def scenario() -> None:
        disk = ColdDisk()
        asking = filled(disk)
        asked = asking.begin(1, 12, ask_for(0, max_wait_ms=30_000, min_bytes=150))
        topic = asking.broker.topics.named("orders")
        while not disk.waited_in:
            await asking.skip(0)
        for _ in range(100):
            await asking.skip(0)
        assert not asked.done()
        batch = build_batch([NewRecord(None, b"x" * 100, (), 1)])
        partition = asking.broker.topics.partition(topic, 0)
        partition.append(batch, read_header(batch), 0)
        asking.service.wake_partitions([partition])
        answer = await asked
        assert len(answer.responses[0].partitions[0].records) > 150

    run(scenario)


def test_memory_that_is_always_short_ends_in_waiting_and_not_in_a_circle() -> None:
    async def scenario() -> None:
        disk = ColdDisk()
        disk.forgets = True
        asking = filled(disk)
        assert values(await asking.ask(1, 12, ask_for(0))) == [b"0"]
        in_threads = [each for each in disk.waited_in if each is not threading.main_thread()]
        assert len(in_threads) == WARMINGS_MAX

    run(scenario)


def test_a_connection_that_closes_while_its_fetch_is_cold_gets_no_answer() -> None:
    async def scenario() -> None:
        asking = filled(ColdDisk())
        asked = asking.begin(1, 12, ask_for(0))
        asking.connection.is_closed = True
        while not asked.done():
            await asking.skip(0)
        assert asked.cancelled()

    run(scenario)
