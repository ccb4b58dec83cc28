"""Group commit: the first one who waits syncs for all.

    thread 1   append --- lead: sync ------------------- answer
    thread 2     append --- wait ----------------------- answer    in the same round
    thread 3            append --- wait --- lead: sync --- answer  came too late for it

There is no background thread. Whoever finds no round under way leads one: it takes
everything that is dirty, lets go of the lock, syncs the files side by side, takes
the lock again and lets those go whose work is done. One of the others leads next.

A failed sync is never retried: what the system still holds of the data is not
known any more. The handle is poisoned and says so from then on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from headrace.core.errors import SyncFailed
from headrace.core.ports import Clock, Disk, File
from headrace.engine.broker import Broker, Round
from headrace.engine.catalog import Topic
from headrace.engine.commit import Commit
from headrace.engine.partition import Partition

SYNC_THREADS = 8


class GroupCommit:
    def __init__(self, broker: Broker, disk: Disk, clock: Clock, lock: threading.Lock) -> None:
        self._broker = broker
        self._disk = disk
        self._clock = clock
        self._lock = lock
        self._is_syncing = False
        self._dirty: set[Partition] = set()
        self._waiters: list[tuple[Commit, threading.Lock]] = []
        self._pool: ThreadPoolExecutor | None = None
        # Partitions of topics with durability="interval", and their timer.
        self._lazy: set[Partition] = set()
        self._timer: threading.Timer | None = None
        self.failed: SyncFailed | None = None

    def finish(self, commit: Commit) -> None:
        """Return when everything in the commit is safe. To be called with the
        lock held, and returns with it held; in between it is let go."""
        commit.seal()
        self._note(commit)
        while not commit.is_done():
            if self.failed is not None:
                raise self.failed
            if self._is_syncing:
                self._wait(commit)
            else:
                self._lead()

    def _note(self, commit: Commit) -> None:
        for partition in commit.partitions():
            durability = partition.topic.settings.durability
            if durability == "synced":
                self._dirty.add(partition)
            elif durability == "interval":
                self._lazy.add(partition)
                self._start_timer(partition)

    def _wait(self, commit: Commit) -> None:
        turn = threading.Lock()
        turn.acquire()
        self._waiters.append((commit, turn))
        self._lock.release()
        try:
            turn.acquire()
        finally:
            self._lock.acquire()

    def _lead(self) -> None:
        self._is_syncing = True
        try:
            due = self._broker.begin_sync(self._dirty)
            self._dirty = set()
            self._lock.release()
            try:
                self._sync(due)
            except OSError as error:
                self.failed = SyncFailed(
                    f"the disk refused to sync ({error}); what was written last may be lost: "
                    "close this handle, check the disk and open the directory again"
                )
                self.failed.__cause__ = error
            finally:
                self._lock.acquire()
            if self.failed is None:
                self._go_on(due)
        finally:
            self._is_syncing = False
            self._wake()

    def _go_on(self, due: Round) -> None:
        try:
            self._dirty |= self._broker.on_synced(due, self._clock.now_ms())
        except OSError as error:
            self.failed = SyncFailed(
                f"the disk failed after a sync ({error}); close this handle, check the disk and "
                "open the directory again"
            )
            self.failed.__cause__ = error

    def _wake(self) -> None:
        """Let those go who are done, and one more, to lead the next round."""
        left: list[tuple[Commit, threading.Lock]] = []
        for commit, turn in self._waiters:
            if self.failed is not None or commit.is_done():
                turn.release()
            else:
                left.append((commit, turn))
        if left:
            left.pop(0)[1].release()
        self._waiters = left

    def _sync(self, due: Round) -> None:
        files = [file for _, ticket in due.tickets for file in ticket.files]
        # A file counts as synced only when its name is on disk too.
        for directory in {name for _, ticket in due.tickets for name in ticket.directories}:
            self._disk.sync_directory(directory)
        if len(files) <= 1:
            for file in files:
                file.sync()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(SYNC_THREADS, "headrace-sync")
        running: list[Future[None]] = [self._pool.submit(_sync_file, file) for file in files[1:]]
        files[0].sync()
        for future in running:
            future.result()

    def forget(self, topics: Iterable[Topic]) -> None:
        """These topics are gone: nobody waits for them any more."""
        gone = {topic.id for topic in topics}
        self._dirty = {p for p in self._dirty if p.topic.id not in gone}
        self._lazy = {p for p in self._lazy if p.topic.id not in gone}

    # Topics that sync now and then.

    def _start_timer(self, partition: Partition) -> None:
        if self._timer is None:
            seconds = partition.topic.settings.sync_interval_ms / 1000
            self._timer = threading.Timer(seconds, self._on_timer)
            self._timer.daemon = True
            self._timer.start()

    def _on_timer(self) -> None:
        with self._lock:
            self._timer = None
            if self._is_syncing:
                # It is not the turn of this one yet.
                self._start_timer(next(iter(self._lazy)))
                return
            self._dirty |= self._lazy
            self._lazy = set()
            if self.failed is None:
                self._lead()

    def wait_for_round(self) -> None:
        """Until no sync is under way. With the lock held."""
        while self._is_syncing:
            self._wait(Commit(self._broker.metadata))

    def sync_all(self) -> None:
        """Everything, whatever its durability. With the lock held."""
        self.wait_for_round()
        self._dirty |= set(self._broker.topics)
        self._lead()
        if self.failed is not None:
            raise self.failed

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pool is not None:
            self._pool.shutdown()


def _sync_file(file: File) -> None:
    file.sync()
