r"""Threads for functions that block, in which one that hangs is replaced.

    start --> idle thread, or a new one --> ended: idle again
                                        \-> abandoned: its place is free at once, and it
                                            is gone when its function ends, if ever

There are as many threads as run at once, and the abandoned ones. They are daemons: a
function that hangs does not keep the process from ending.

Rejected: ThreadPoolExecutor. It has no way to replace a thread, and joins all of them
when the process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from itertools import count
from queue import SimpleQueue


class Job:
    """A call on a thread. `ended` is set on the loop; `error` is what it raised."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self.ended = asyncio.Event()
        self.error: BaseException | None = None
        # Guarded by the lock of the threads.
        self.has_run = False
        self.is_abandoned = False

    def run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            # Also SystemExit: a thread has no process to end.
            self.error = error

    def tell(self) -> None:
        # The loop may be closed by the time a function that hung ends.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.ended.set)


class Threads:
    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = count()
        self._lock = threading.Lock()
        self._idle: list[_Thread] = []
        self._hung = 0
        self._is_closed = False

    @property
    def hung(self) -> int:
        """How many were abandoned and have not ended."""
        return self._hung

    def start(self, call: Callable[[], object]) -> Job:
        job = Job(call)
        with self._lock:
            thread = self._idle.pop() if self._idle else None
        if thread is None:
            thread = _Thread(f"{self._name}_{next(self._numbers)}", self._on_ran)
            thread.start()
        thread.jobs.put(job)
        return job

    def abandon(self, job: Job) -> None:
        """Count on its thread no more; for whoever waits it has ended. Fine when it really
        has, meanwhile."""
        with self._lock:
            if job.has_run or job.is_abandoned:
                return
            job.is_abandoned = True
            self._hung += 1
        job.ended.set()

    def _on_ran(self, thread: _Thread, job: Job) -> bool:
        """Whether the thread is still wanted."""
        with self._lock:
            job.has_run = True
            if job.is_abandoned:
                self._hung -= 1
                return False
            if self._is_closed:
                return False
            self._idle.append(thread)
            return True

    def close(self) -> None:
        """End the idle ones; those that run end after their function."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for thread in idle:
            thread.jobs.put(None)
        for thread in idle:
            thread.join()


class _Thread(threading.Thread):
    def __init__(self, name: str, on_ran: Callable[[_Thread, Job], bool]) -> None:
        super().__init__(name=name, daemon=True)
        self.jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._on_ran = on_ran

    def run(self) -> None:
        is_wanted = True
        while is_wanted:
            job = self.jobs.get()
            if job is None:
                return
            job.run()
            is_wanted = self._on_ran(self, job)
            job.tell()
            # Nothing that it has handled is kept alive while it waits.
            del job
