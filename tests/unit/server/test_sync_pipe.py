"""The pipe to the syncing threads: each round is done once, and says what failed."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.twins import both
from tests.unit.server.syncing import syncing

from headrace.core.ports import File
from headrace.platform.descriptors import Descriptor
from headrace.platform.disk import RealDisk
from headrace.server.sync_pipe import UNDER_WAY_MAX, SyncPipe

Serve = Callable[[int, int], None]


class NoNumber(Descriptor):
    """What the system does not know."""

    def __init__(self) -> None:
        self.number = 1 << 20
        self.used = True

    def __del__(self) -> None:
        pass


class NotedDisk(RealDisk):
    def __init__(self, root: Path, serve: Serve) -> None:
        super().__init__(root)
        self.serve = serve
        self.ended: list[File] = []
        self.broken: list[File] = []
        self.begun = 0
        self.most_open = 0

    def begin_sync(self, file: File) -> Descriptor:
        begun = super().begin_sync(file)
        self.begun += 1
        self.most_open = max(self.most_open, self.begun - len(self.ended))
        return NoNumber() if file in self.broken else begun

    def end_sync(self, file: File, error: OSError | None) -> None:
        super().end_sync(file, error)
        self.ended.append(file)

    def serve_syncs(self, jobs: int, results: int) -> None:
        self.serve(jobs, results)

    def written(self, count: int) -> list[File]:
        files = [self.open(f"{number}", create=True) for number in range(count)]
        for file in files:
            file.write(b"x", 0)
        return files


@pytest.fixture(params=both("headrace.platform.sync_service.serve_syncs"))
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> NotedDisk:
    return NotedDisk(tmp_path, request.param)


def play(disk: NotedDisk, scenario: Callable[[SyncPipe], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        before = syncing()
        pipe = SyncPipe(disk, asyncio.get_running_loop())
        async with asyncio.timeout(60):
            await scenario(pipe)
        pipe.close()
        assert syncing() <= before

    asyncio.run(limited())


def begin(pipe: SyncPipe, files: list[File]) -> asyncio.Future[BaseException | None]:
    done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    pipe.sync(files, done.set_result)
    return done


@pytest.mark.parametrize("count", [1, 7, UNDER_WAY_MAX + 90])
def test_every_file_of_a_round_is_synced_before_it_is_done(disk: NotedDisk, count: int) -> None:
    files = disk.written(count)

    async def scenario(pipe: SyncPipe) -> None:
        for _ in range(2):
            assert await begin(pipe, files) is None
            assert sorted(map(id, disk.ended)) == sorted(map(id, files))
            assert not any(file.is_dirty for file in files)  # type: ignore[attr-defined]
            assert disk.most_open <= UNDER_WAY_MAX
            disk.begun = 0
            disk.ended.clear()

    play(disk, scenario)


def test_rounds_that_overlap_are_each_done(disk: NotedDisk) -> None:
    files = disk.written(9)

    async def scenario(pipe: SyncPipe) -> None:
        assert await asyncio.gather(*(begin(pipe, files[: 3 * n]) for n in (1, 2, 3))) == [None] * 3
        assert len(disk.ended) == 18

    play(disk, scenario)


def test_a_file_that_fails_is_told_when_the_others_are_done_and_fails_for_ever(
    disk: NotedDisk,
) -> None:
    files = disk.written(5)
    disk.broken = files[2:3]

    async def scenario(pipe: SyncPipe) -> None:
        error = await begin(pipe, files)
        assert isinstance(error, OSError) and error.errno == errno.EBADF
        assert len(disk.ended) == 5
        disk.broken = []
        # The system reports a failed write once; asked again it would say that all is well.
        assert await begin(pipe, files) is error
        with pytest.raises(OSError, match="Bad file descriptor"):
            files[2].sync()
        assert await begin(pipe, files[:2]) is None

    play(disk, scenario)
