"""Group commit: one thread works and syncs for all who came meanwhile.

    thread 1   work - sync ---------------- answer
    thread 2      queue .................. | lead: work 2, work 3 - sync - answer
    thread 3          queue .............. |  wait .................... answer

There is no background thread. Whoever finds nobody leading leads a round: it
carries out every call in the queue, takes everything that is dirty, lets go of the
lock, syncs the files side by side, takes the lock again and lets those go whose
work is safe. Then one of those who are left leads the next round.

A call that only queues and waits costs two switches between threads. Rejected:
every thread appends for itself under the lock. Python lets go of its own lock
around each write, so sixteen threads then spend more time handing these two locks
to one another than working.

A failed sync is never retried: what the system still holds of the data is not
known any more. The handle is poisoned and says so from then on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from headrace.core.errors import HeadraceError, SyncFailed, UnknownTopic
from headrace.core.ports import Clock, Disk, File
from headrace.core.system_errors import HANDLE_REMEDY, disk_error
from headrace.engine.broker import Broker, Round
from headrace.engine.catalog import Topic
from headrace.engine.commit import Commit
from headrace.engine.partition import Partition

T = TypeVar("T")

SYNC_THREADS = 8
# More than this are left for the next round, so that a round always ends.
CALLS_PER_ROUND_MAX = 1_000


class _Call:
    """Somebody who waits: for their work to be carried out, and then for their
    commit. Changed under the lock alone."""

    __slots__ = ("_turn", "commit", "error", "is_leader", "is_over", "result", "work")

    def __init__(self, commit: Commit, work: Callable[[Commit], Any] | None) -> None:
        self.commit = commit
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_over = False
        # Woken to lead the next round, and not leading yet.
        self.is_leader = False
        self._turn = threading.Lock()
        self._turn.acquire()

    def wait(self) -> None:
        """Until it is over, or it is their turn to lead."""
        self._turn.acquire()

    def wake_to_lead(self) -> None:
        self.is_leader = True
        self._turn.release()

    def end(self, error: BaseException | None = None) -> None:
        self.error = error
        self.is_over = True
        if not self.is_leader:
            self._turn.release()


class GroupCommit:
    def __init__(self, broker: Broker, disk: Disk, clock: Clock, lock: threading.Lock) -> None:
        self._broker = broker
        self._disk = disk
        self._clock = clock
        self._lock = lock
        # Somebody leads, or has been woken to. Changed under the lock alone.
        self._is_led = False
        # Calls to be carried out; may be added to without the lock.
        self._queue: deque[_Call] = deque()
        # Those that were carried out and are not known to be safe yet.
        self._waiting: list[_Call] = []
        self._dirty: set[Partition] = set()
        self._pool: ThreadPoolExecutor | None = None
        # Partitions of topics with durability="interval", and their timer.
        self._lazy: set[Partition] = set()
        self._timer: threading.Timer | None = None
        self.failed: SyncFailed | None = None

    def run(self, work: Callable[[Commit], T]) -> T:
        """What `work` returns or raises, once everything in its commit is safe.
        It runs under the lock, in this thread or another; the caller does not
        hold the lock."""
        call = _Call(self._broker.commit(), work)
        self._queue.append(call)
        try:
            # Asked after the call is queued: a leader who did not see it there
            # has said before that nobody leads.
            if not self._is_led:
                with self._lock:
                    if not self._is_led and not call.is_over:
                        self._lead()
            while not call.is_over:
                call.wait()
                if call.is_leader:
                    with self._lock:
                        self._lead_if_woken(call)
        except BaseException:
            with self._lock:
                self._abandon(call)
            raise
        if call.error is not None:
            raise call.error
        result: T = call.result
        return result

    def finish(self, commit: Commit) -> None:
        """Return when everything in the commit is safe. To be called with the
        lock held, and returns with it held; in between it is let go."""
        self.note(commit)
        if self.failed is None and commit.is_done():
            return
        call = _Call(commit, None)
        self._waiting.append(call)
        try:
            if not self._is_led:
                self._lead()
            while not call.is_over:
                self._wait_unlocked(call)
                self._lead_if_woken(call)
        except BaseException:
            self._abandon(call)
            raise
        if call.error is not None:
            raise call.error

    def _wait_unlocked(self, call: _Call) -> None:
        self._lock.release()
        try:
            call.wait()
        finally:
            self._lock.acquire()

    def _abandon(self, call: _Call) -> None:
        """Its thread was interrupted. What was not carried out never will be; and
        if it was this thread's turn to lead, somebody else has to."""
        if call in self._queue:
            self._queue.remove(call)
        if call in self._waiting:
            self._waiting.remove(call)
        if call.is_leader:
            self._pass_on()

    def note(self, commit: Commit) -> None:
        """What it holds is synced with the next round, whether anybody waits for it or not."""
        commit.seal()
        for partition in commit.partitions():
            durability = partition.topic.settings.durability
            if durability == "synced":
                self._dirty.add(partition)
            elif durability == "interval":
                self._lazy.add(partition)
                self._start_timer(partition)

    # A round.

    def _lead_if_woken(self, call: _Call) -> None:
        if call.is_leader:
            call.is_leader = False
            self._lead()

    def _lead(self) -> None:
        self._is_led = True
        try:
            self._carry_out()
            if self.failed is None:
                self._sync_dirty()
        finally:
            self._pass_on()

    def _carry_out(self) -> None:
        for _ in range(CALLS_PER_ROUND_MAX):
            if not self._queue:
                return
            call = self._queue.popleft()
            assert call.work is not None
            try:
                call.result = call.work(call.commit)
                self.note(call.commit)
            except Exception as error:
                # What it has written before it failed is there.
                self.note(call.commit)
                call.end(self.judge(error))
            except BaseException:
                # The thread that leads was interrupted, not the one that called.
                call.end(
                    HeadraceError(
                        "the thread that carried this call out was interrupted; whether it "
                        "took effect is not known"
                    )
                )
                raise
            else:
                self._waiting.append(call)

    def _sync_dirty(self) -> None:
        dirty, self._dirty = self._dirty, set()
        due = self._broker.begin_sync(dirty)
        is_synced = False
        self._lock.release()
        try:
            self._sync(due)
            is_synced = True
        except OSError as error:
            self.failed = SyncFailed(
                f"the disk refused to sync ({error}); what was written last may be lost: "
                "close this handle, check the disk and open the directory again"
            )
            self.failed.__cause__ = error
        finally:
            self._lock.acquire()
            if not is_synced:
                # An interrupted round counts for nothing: the next one repeats it.
                self._dirty |= dirty
        if is_synced:
            self._go_on(due)

    def _go_on(self, due: Round) -> None:
        try:
            self._dirty |= self._broker.on_synced(due, self._clock.now_ms())
        except BaseException as error:
            # Whoever waits for these partitions must not wait for ever.
            self._dirty |= set(due.partitions)
            if not isinstance(error, (OSError, SyncFailed)):
                raise
            self.judge(error)

    def judge(self, error: Exception) -> Exception:
        """What a call is told that failed like this. When it was the disk that
        failed, nobody can be served any more."""
        if isinstance(error, OSError):
            error = disk_error(error, HANDLE_REMEDY)
        if isinstance(error, SyncFailed):
            self.failed = error
        return error

    def _pass_on(self) -> None:
        """Let those go who are done, and wake one more to lead the next round."""
        left: list[_Call] = []
        for call in self._waiting:
            if self.failed is not None:
                call.end(self.failed)
            elif call.commit.is_done():
                call.end()
            elif (failure := call.commit.failure()) is not None:
                call.end(failure)
            else:
                left.append(call)
        self._waiting = left
        self._is_led = False
        # Asked after nobody leads any more: see `run`.
        following = left or self._queue
        if following:
            self._is_led = True
            following[0].wake_to_lead()

    def _sync(self, due: Round) -> None:
        files = [file for _, ticket in due.tickets for file in ticket.files]
        # A file counts as synced only when its name is on disk too.
        names = dict.fromkeys(name for _, ticket in due.tickets for name in ticket.directories)
        for directory in names:
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
        for call in self._waiting[:]:
            if any(partition.topic.id in gone for partition in call.commit.partitions()):
                self._waiting.remove(call)
                call.end(UnknownTopic("the topic was deleted before this was on disk"))

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
            self._dirty |= self._lazy
            self._lazy = set()
            self.wait_for_round()
            # Whoever leads by now leads a round that takes these along.
            if not self._is_led and self.failed is None:
                self._lead()

    def wait_for_round(self) -> None:
        """Until the round that is under way, if any, is over. With the lock held;
        in between it is let go."""
        if self._is_led:
            call = _Call(self._broker.commit(), None)
            self._waiting.append(call)
            while not call.is_over:
                self._wait_unlocked(call)
                self._lead_if_woken(call)

    def sync_all(self) -> None:
        """Everything, whatever its durability. With the lock held."""
        while self._is_led:
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
