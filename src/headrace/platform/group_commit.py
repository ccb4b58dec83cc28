"""Group commit: one thread works and syncs for all who came meanwhile.

    thread 1   work - sync ---------------- answer
    thread 2      queue .................. | lead: work 2, work 3 - sync - answer
    thread 3          queue .............. |  wait .................... answer

There is no background thread. Whoever finds nobody leading leads a round: it
carries out every call in the queue, lets go of the lock, syncs the files of the round
side by side, takes the lock again and lets those go whose work is safe. Then one of
those who are left leads the next round. What a round contains and ends is decided in
`engine/rounds.py`.

A call that only queues and waits costs two switches between threads. Rejected:
every thread appends for itself under the lock. Python lets go of its own lock
around each write, so sixteen threads then spend more time handing these two locks
to one another than working.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from time import monotonic
from typing import Any, TypeVar

from headrace.core.errors import HeadraceError, SyncFailed
from headrace.core.ports import Clock, Disk, File
from headrace.core.system_errors import HANDLE_REMEDY, disk_error
from headrace.engine.broker import Broker, Round
from headrace.engine.commit import Commit
from headrace.engine.rounds import Ended, Rounds

T = TypeVar("T")

SYNC_THREADS = 8
# More than this are left for the next round, so that a round always ends.
CALLS_PER_ROUND_MAX = 1_000


class _Call:
    """Somebody who waits: for their work to be carried out, and then for their
    commit. Changed under the lock alone."""

    __slots__ = ("_turn", "commit", "error", "is_leader", "is_over", "result", "work")

    def __init__(self, commit: Commit | None, work: Callable[[Commit], Any] | None) -> None:
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
        # Whose waiters were carried out and are not known to be safe yet.
        self._rounds: Rounds[_Call] = Rounds(broker, HANDLE_REMEDY)
        self._pool: ThreadPoolExecutor | None = None
        # When it is over, by the system's steady clock, and the timer itself.
        self._timer: tuple[float, threading.Timer] | None = None
        self._is_closed = False
        self.failed: SyncFailed | None = None

    # Calls.

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
            # One that is over may have been woken to lead before.
            while not call.is_over or call.is_leader:
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
        self._rounds.wait(commit, call)
        try:
            if not self._is_led:
                self._lead()
            self._wait_until_over(call)
        except BaseException:
            self._abandon(call)
            raise
        if call.error is not None:
            raise call.error

    def judge(self, error: Exception) -> Exception:
        """What a call is told that failed like this. When it was the disk that
        failed, nobody can be served any more."""
        told = error
        if isinstance(error, OSError) and not isinstance(error, HeadraceError):
            told = disk_error(error, HANDLE_REMEDY)
        if isinstance(told, SyncFailed):
            self._end(self._rounds.on_disk_failed(told))
        return told

    def on_deleted(self) -> None:
        """A topic was deleted: no round that begins from now on syncs it, and whoever
        waits for it is told."""
        self._end(self._rounds.on_deleted())

    def note(self, commit: Commit) -> None:
        """What it holds is synced with the next round, whether anybody waits for it or not."""
        _, wake_ms, _ = self._rounds.note(commit)
        if wake_ms is not None:
            self._wake_in(wake_ms)

    def _wait_until_over(self, call: _Call) -> None:
        """With the lock held; in between it is let go."""
        while not call.is_over or call.is_leader:
            self._lock.release()
            try:
                call.wait()
            finally:
                self._lock.acquire()
            self._lead_if_woken(call)

    def _abandon(self, call: _Call) -> None:
        """Its thread was interrupted. What was not carried out never will be; and
        if it was this thread's turn to lead, somebody else has to."""
        if call in self._queue:
            self._queue.remove(call)
        self._rounds.stop_waiting(call)
        if call.is_leader:
            self._pass_on()

    def _end(self, ended: Ended[_Call]) -> None:
        self.failed = self._rounds.failed
        for call in ended.done:
            call.end()
        for call, failure in ended.failed:
            call.end(failure)
        if ended.wake_ms is not None:
            self._wake_in(ended.wake_ms)

    # A round.

    def _lead_if_woken(self, call: _Call) -> None:
        if call.is_leader:
            call.is_leader = False
            self._lead()

    def _lead(self) -> None:
        self._is_led = True
        try:
            self._carry_out()
            self._run_round()
        finally:
            self._pass_on()

    def _carry_out(self) -> None:
        for _ in range(CALLS_PER_ROUND_MAX):
            if not self._queue:
                return
            call = self._queue.popleft()
            assert call.work is not None and call.commit is not None
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
                # Whether it has to is asked once, when the round is over.
                self._rounds.wait(call.commit, call)

    def _run_round(self) -> None:
        due = self._rounds.begin()
        if isinstance(due, Ended):
            self._end(due)
            return
        failures: list[Exception] = []
        is_over = False
        self._lock.release()
        try:
            self._sync(due, failures)
            is_over = True
        finally:
            self._lock.acquire()
            if failures:
                self._end(self._rounds.on_sync_failed(failures[0]))
            elif not is_over:
                self._rounds.on_interrupted(due)
        if not failures:
            self._end(self._rounds.on_synced(due, self._clock.now_ms()))

    def _sync(self, due: Round, failures: list[Exception]) -> None:
        """What fails is added to `failures`. When it is over, interrupted or not, no file
        is being synced any more."""
        files = [file for _, ticket in due.tickets for file in ticket.files]
        # A file counts as synced only when its name is on disk too.
        names = dict.fromkeys(name for _, ticket in due.tickets for name in ticket.directories)
        try:
            for directory in names:
                self._disk.sync_directory(directory)
            if len(files) > 1:
                self._sync_side_by_side(files, failures)
            elif files:
                files[0].sync()
        except Exception as error:
            failures.append(error)

    def _sync_side_by_side(self, files: list[File], failures: list[Exception]) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(SYNC_THREADS, "headrace-sync")
        running: list[Future[None]] = [self._pool.submit(_sync_file, file) for file in files[1:]]
        try:
            files[0].sync()
        finally:
            wait(running)
            refused = [future.exception() for future in running]
            failures += [each for each in refused if isinstance(each, Exception)]
        for each in refused:
            # What interrupted one of the threads is nothing that the disk said.
            if each is not None and not isinstance(each, Exception):
                raise each

    def _pass_on(self) -> None:
        """Wake one of those who are left to lead the next round."""
        rounds = self._rounds
        self._is_led = False
        # Asked after nobody leads any more: see `run`.
        if rounds.waiting and rounds.is_due:
            following = rounds.waiting[0][1]
        elif self._queue:
            following = self._queue[0]
        else:
            return
        self._is_led = True
        following.wake_to_lead()

    def wait_for_round(self) -> None:
        """Until the round that is under way, if any, is over. With the lock held;
        in between it is let go."""
        if self._is_led:
            call = _Call(None, None)
            self._rounds.wait_for_round(call)
            self._wait_until_over(call)

    # Time.

    def _wake_in(self, ms: int) -> None:
        """If not sooner."""
        due = monotonic() + ms / 1000
        if self._timer is not None:
            if self._timer[0] <= due:
                return
            self._timer[1].cancel()
        timer = threading.Timer(ms / 1000, self._on_timer)
        timer.daemon = True
        self._timer = due, timer
        timer.start()

    def _on_timer(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._timer = None
            self._rounds.on_timer()
            self.wait_for_round()
            # Whoever leads by now leads a round that takes these along.
            if not self._is_led and self._rounds.is_due:
                self._lead()

    def sync_all(self) -> None:
        """Everything, whatever its durability. With the lock held."""
        self._rounds.close()
        while self.failed is None and (self._is_led or self._rounds.dirty):
            if self._is_led:
                self.wait_for_round()
            else:
                self._lead()
        if self.failed is not None:
            raise self.failed

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None
        if self._pool is not None:
            self._pool.shutdown()


def _sync_file(file: File) -> None:
    file.sync()
