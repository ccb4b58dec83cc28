"""Threads that sync: a round is done once, when all of it is, and says what failed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.server.syncing import syncing

from headrace.platform.memory_disk import MemoryDisk
from headrace.server.sync_threads import THREADS_MAX, SyncThreads


class NotedFile:
    def __init__(self, error: OSError | None = None, gate: threading.Event | None = None) -> None:
        self.error = error
        self.gate = gate
        self.synced_in: str | None = None

    def sync(self) -> None:
        if self.gate is not None:
            assert self.gate.wait(30)
        self.synced_in = threading.current_thread().name
        if self.error is not None:
            raise self.error


class NotedDisk(MemoryDisk):
    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def sync_directory(self, path: str) -> None:
        self.synced.append(path)


def play(scenario: Callable[[SyncThreads, NotedDisk], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        before = syncing()
        disk = NotedDisk()
        threads = SyncThreads(disk, asyncio.get_running_loop())
        async with asyncio.timeout(30):
            await scenario(threads, disk)
        threads.close()
        assert syncing() <= before

    asyncio.run(limited())


async def sync(threads: SyncThreads, files: list[Any], *directories: str) -> BaseException | None:
    done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    threads.sync(files, directories, done.set_result)
    return await done


@pytest.mark.parametrize("count", [0, 1, 2, THREADS_MAX, 3 * THREADS_MAX + 1])
def test_every_file_and_folder_of_a_round_is_synced_before_it_is_done(count: int) -> None:
    async def scenario(threads: SyncThreads, disk: NotedDisk) -> None:
        for _ in range(2):
            files = [NotedFile() for _ in range(count)]
            assert await sync(threads, files, "a", "b") is None
            assert all(file.synced_in for file in files)
            assert len({file.synced_in for file in files}) <= THREADS_MAX
        assert disk.synced == ["a", "b"] * 2

    play(scenario)


def test_a_file_that_fails_is_told_when_the_others_are_done() -> None:
    async def scenario(threads: SyncThreads, disk: NotedDisk) -> None:
        gate = threading.Event()
        bad, slow = NotedFile(OSError("rot")), NotedFile(gate=gate)
        asked = asyncio.ensure_future(sync(threads, [bad, slow]))
        while bad.synced_in is None:
            await asyncio.sleep(0)
        assert not asked.done()
        gate.set()
        error = await asked
        assert error is bad.error
        assert slow.synced_in is not None
        # The threads go on: what a failure means is for others to say.
        assert await sync(threads, [NotedFile()]) is None

    play(scenario)


def test_rounds_that_overlap_are_done_one_by_one() -> None:
    async def scenario(threads: SyncThreads, disk: NotedDisk) -> None:
        gate = threading.Event()
        first = asyncio.ensure_future(sync(threads, [NotedFile(gate=gate), NotedFile()]))
        second = asyncio.ensure_future(sync(threads, [NotedFile()]))
        assert await second is None
        assert not first.done()
        gate.set()
        assert await first is None

    play(scenario)
