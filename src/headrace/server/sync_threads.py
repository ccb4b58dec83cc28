"""Threads that sync: a round of files goes out together and comes back as one call.

    loop      sync(files) ------------------------------> on_done(error)
    threads          |- file, file --.               .--^  once, when all are done
                     '- file, file ---+- the last ---'

Handing something to a thread and back costs more than many a sync, so a round is
dealt out to a few threads, each with its share of the files, and the loop is woken
once.

Most rounds are of files of the system's alone and take a shorter way; see `sync_pipe`.

Rejected: an executor's futures. Each of a round's files would be queued, locked, and
called back on its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from time import perf_counter

from headrace.core.ports import Disk, File, SystemDisk
from headrace.server.sync_pipe import OnDone, OnTimed, SyncPipe

# How many threads share a round. More files than that wait for one another: the disk
# writes them together anyway.
THREADS_MAX = 4


class _Round:
    """One call of `sync`, until the last of its parts is done."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, parts: int, on_done: OnDone, on_timed: OnTimed
    ) -> None:
        self._loop = loop
        self._on_timed = on_timed
        self._seconds: list[float] = []
        self._left = parts
        self._on_done = on_done
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    def finish(self, error: BaseException | None, seconds: list[float]) -> None:
        with self._lock:
            self._left -= 1
            self._seconds += seconds
            self._error = self._error or error
            if self._left:
                return
        # A loop that is closed has nobody who waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        for seconds in self._seconds:
            self._on_timed(seconds)
        self._on_done(self._error)


_Part = tuple[_Round, Sequence[File], Sequence[str]]


class SyncThreads:
    def __init__(
        self,
        disk: Disk,
        loop: asyncio.AbstractEventLoop,
        on_timed: OnTimed = lambda seconds: None,
    ) -> None:
        """`on_timed` is told, on the loop, how many seconds the sync of a file took."""
        self._disk = disk
        self._loop = loop
        self._on_timed = on_timed
        self._parts: SimpleQueue[_Part | None] = SimpleQueue()
        # Started as they are needed.
        self._threads: list[threading.Thread] = []
        self._system = disk if isinstance(disk, SystemDisk) else None
        self._pipe: SyncPipe | None = None

    def sync(self, files: Sequence[File], directories: Sequence[str], on_done: OnDone) -> None:
        """Sync them all; then call `on_done`, on the loop, with what failed first. A
        file counts only when its name is on disk too, so nothing counts before all
        is done."""
        if files and not directories and self._system is not None:
            if self._pipe is None:
                self._pipe = SyncPipe(self._system, self._loop, self._on_timed)
            self._pipe.sync(files, on_done)
            return
        count = max(1, min(len(files), THREADS_MAX))
        while len(self._threads) < count:
            thread = threading.Thread(target=self._run, name=f"headrace-sync-{len(self._threads)}")
            thread.start()
            self._threads.append(thread)
        round_ = _Round(self._loop, count, on_done, self._on_timed)
        for number in range(count):
            self._parts.put((round_, files[number::count], () if number else directories))

    def _run(self) -> None:
        while (part := self._parts.get()) is not None:
            round_, files, directories = part
            error: BaseException | None = None
            seconds: list[float] = []
            try:
                for directory in directories:
                    self._disk.sync_directory(directory)
                for file in files:
                    began = perf_counter()
                    file.sync()
                    seconds.append(perf_counter() - began)
            except BaseException as raised:
                error = raised
            round_.finish(error, seconds)

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        for _ in self._threads:
            self._parts.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []
