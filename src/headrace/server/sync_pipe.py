"""A pipe to threads that sync without Python's lock.

    loop      number, number, number ──pipe──> thread   fdatasync
              on_done <── tag, tag, tag ──pipe── thread   fdatasync

A thread that comes back from the disk waits for whatever Python runs on the loop, once
for each file, which can be longer than the sync took. So these threads live outside of
Python, where there is a compiler: the loop writes the system's numbers of files into a
pipe, the threads take them out, and the loop reads from another pipe which are done.
The system does the queueing.

Rejected: io_uring. It is switched off in many containers, and it has threads of its
own for this, too.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final

from headrace.core.ports import SYNC_PAIR, SYNC_STOP, File, SystemDisk, SystemFile

OnDone = Callable[[BaseException | None], None]
# How many seconds the sync of one file took.
OnTimed = Callable[[float], None]

THREADS: Final = 4
# What is in the pipe at most. Each holds a file open, of which there may be few, and
# the loop must not wait for the pipe.
UNDER_WAY_MAX: Final = 4 * THREADS


class _Round:
    """One call of `sync`, until the last of its files is done."""

    def __init__(self, left: int, on_done: OnDone) -> None:
        self._left = left
        self._on_done = on_done
        self._error: OSError | None = None

    def end_one(self, error: OSError | None) -> None:
        self._error = self._error or error
        self._left -= 1
        if not self._left:
            self._on_done(self._error)


class SyncPipe:
    def __init__(
        self,
        disk: SystemDisk,
        loop: asyncio.AbstractEventLoop,
        on_timed: OnTimed = lambda seconds: None,
    ) -> None:
        self._disk = disk
        self._loop = loop
        self._on_timed = on_timed
        self._jobs = os.pipe()
        self._results = os.pipe()
        os.set_blocking(self._results[0], False)
        loop.add_reader(self._results[0], self._on_results)
        self._threads = [
            threading.Thread(
                target=disk.serve_syncs,
                args=(self._jobs[0], self._results[1]),
                name=f"headrace-sync-{number}",
            )
            for number in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()
        self._tag = 0
        # By tag: whose it is, and when it was sent. The file's number is its own as
        # long as this holds it.
        self._under_way: dict[int, tuple[_Round, File, SystemFile, float]] = {}
        self._waiting: deque[tuple[_Round, File]] = deque()

    def sync(self, files: Sequence[File], on_done: OnDone) -> None:
        """Sync them, at least one; then call `on_done`, on the loop, with what failed
        first."""
        round_ = _Round(len(files), on_done)
        self._waiting += [(round_, file) for file in files]
        self._send()

    def _send(self) -> None:
        jobs = []
        while self._waiting and len(self._under_way) < UNDER_WAY_MAX:
            round_, file = self._waiting.popleft()
            try:
                begun = self._disk.begin_sync(file)
            except OSError as error:
                self._loop.call_soon(round_.end_one, error)
                continue
            self._tag = (self._tag + 1) & 0x7FFFFFFF
            self._under_way[self._tag] = round_, file, begun, perf_counter()
            jobs.append(SYNC_PAIR.pack(self._tag, begun.number))
        if jobs:
            os.write(self._jobs[1], b"".join(jobs))

    def _on_results(self) -> None:
        for tag, failure in SYNC_PAIR.iter_unpack(
            os.read(self._results[0], UNDER_WAY_MAX * SYNC_PAIR.size)
        ):
            round_, file, _, sent = self._under_way.pop(tag)
            self._on_timed(perf_counter() - sent)
            error = OSError(failure, os.strerror(failure)) if failure else None
            self._disk.end_sync(file, error)
            round_.end_one(error)
        self._send()

    def close(self) -> None:
        """What is under way is synced, and nobody hears of it."""
        self._loop.remove_reader(self._results[0])
        for _ in self._threads:
            os.write(self._jobs[1], SYNC_PAIR.pack(0, SYNC_STOP))
        for thread in self._threads:
            thread.join()
        for number in (*self._jobs, *self._results):
            os.close(number)
