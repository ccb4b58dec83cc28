"""Group commit on an event loop: nobody waits, futures do.

    requests    append  append  append  append          append
    rounds             [ sync ......... ][ sync ............ ]
    answers                             ^ the first two      ^ the rest

The broker lives on the loop's thread. A round begins when the loop has handled what
it was handling, so that all of it is in; its files are synced in threads, which come back
to the loop. What a round contains and ends is decided in `engine/rounds.py`.

Of calls that have a deadline one timer, at the earliest of them, does for all. Rejected: a
timer for each. Most are cancelled a millisecond later, and a fifth of what a small publish
costs goes into them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from headrace.core.errors import SyncFailed
from headrace.core.ports import Clock, Disk
from headrace.core.request_context import NEVER
from headrace.core.system_errors import NODE_REMEDY
from headrace.engine.broker import Broker, Round
from headrace.engine.commit import Commit
from headrace.engine.partition import Partition
from headrace.engine.rounds import Ended, Rounds
from headrace.server.sync_threads import SyncThreads


class LoopCommit:
    def __init__(
        self,
        broker: Broker,
        disk: Disk,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        on_advance: Callable[[Iterable[Partition]], None],
        on_failure: Callable[[SyncFailed], None],
        on_timed: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`on_advance` hears of partitions whose high watermark may have moved,
        `on_timed` how many seconds the sync of a file took."""
        self._clock = clock
        self._loop = loop
        self._on_advance = on_advance
        self._on_failure = on_failure
        self._rounds: Rounds[asyncio.Future[None]] = Rounds(broker, NODE_REMEDY)
        self._timer: asyncio.TimerHandle | None = None
        # The earliest time at which a call gives up, or one before it.
        self._next_deadline = NEVER
        self._deadline_timer: asyncio.TimerHandle | None = None
        # Done when the round is that begins soon or is under way.
        self._round: asyncio.Future[None] | None = None
        self._threads = SyncThreads(disk, loop, on_timed)
        self.failed: SyncFailed | None = None

    @property
    def is_idle(self) -> bool:
        """Nobody waits for the disk."""
        return not self._rounds.waiting

    # Commits.

    def submit(self, commit: Commit, deadline: float = NEVER) -> asyncio.Future[None] | None:
        """None when everything in the commit is safe already; DeadlineExceeded when it is
        not by then, as the loop counts."""
        rounds = self._rounds
        is_done, failure, shown, wake_ms = rounds.take(commit)
        if shown:
            self._on_advance(shown)
        if wake_ms is not None:
            self._wake_in(wake_ms)
        future = None if is_done else self._loop.create_future()
        if failure is not None:
            assert future is not None
            future.set_exception(failure)
        elif future is not None:
            rounds.wait(commit, future, deadline)
            if deadline < self._next_deadline:
                self._wait_until(deadline)
        if self._round is None and (future is not None or rounds.dirty) and rounds.is_due:
            self._begin_soon()
        return future

    async def wait(self, commit: Commit) -> None:
        future = self.submit(commit)
        if future is not None:
            await future

    def go_on_with(self, partitions: Iterable[Partition]) -> None:
        """A round is to come for these, though nobody may wait for it: also where other nodes
        have confirmed more. For none, when other nodes lead what is waited for."""
        self._rounds.go_on_with(partitions)
        self._begin_if_due()

    def on_deleted(self) -> None:
        """A topic was deleted: no round that begins from now on syncs it, and whoever
        waits for it is told."""
        self._end(self._rounds.on_deleted())

    def on_disk_failed(self, failed: SyncFailed) -> None:
        """The disk refused a sync outside of rounds."""
        self._end(self._rounds.on_disk_failed(failed))

    # A round.

    def _begin_if_due(self) -> None:
        if self._round is None and self._rounds.is_due:
            self._begin_soon()

    def _begin_soon(self) -> None:
        self._round = self._loop.create_future()
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        due = self._rounds.begin()
        if isinstance(due, Ended):
            self._end_round()
            self._end(due)
            return
        files = [file for _, ticket in due.tickets for file in ticket.files]
        directories = {name for _, ticket in due.tickets for name in ticket.directories}
        if files or directories:
            self._threads.sync(files, tuple(directories), partial(self._on_synced, due))
        else:
            self._on_synced(due, None)

    def _on_synced(self, due: Round, error: BaseException | None) -> None:
        self._end_round()
        if error is not None:
            self._end(self._rounds.on_sync_failed(error))
        else:
            self._end(self._rounds.on_synced(due, self._clock.now_ms()))

    def _end_round(self) -> None:
        ended, self._round = self._round, None
        if ended is not None and not ended.done():
            ended.set_result(None)

    def _end(self, ended: Ended[asyncio.Future[None]]) -> None:
        for future in ended.done:
            if not future.done():
                future.set_result(None)
        for future, failure in ended.failed:
            if not future.done():
                future.set_exception(failure)
        failed = self._rounds.failed
        if failed is not None:
            if self.failed is None:
                self.failed = failed
                self._on_failure(failed)
            return
        if ended.shown:
            self._on_advance(ended.shown)
        if ended.wake_ms is not None:
            self._wake_in(ended.wake_ms)
        self._begin_if_due()

    # Time.

    def _wake_in(self, ms: int) -> None:
        """If not sooner."""
        due = self._loop.time() + ms / 1000
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._rounds.on_timer()
        self._begin_if_due()

    def _wait_until(self, deadline: float) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self._next_deadline = deadline
        self._deadline_timer = self._loop.call_at(deadline, self._end_late)

    def _end_late(self) -> None:
        self._next_deadline, self._deadline_timer = NEVER, None
        # A timer may be early by what a clock ticks.
        self._end(self._rounds.on_late(self._loop.time() + 0.001))
        earliest = self._rounds.next_deadline()
        if earliest < NEVER:
            self._wait_until(earliest)

    async def close(self) -> None:
        """Sync everything, whatever its durability."""
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        if self._timer is not None:
            self._timer.cancel()
        rounds = self._rounds
        rounds.close()
        while rounds.failed is None and (self._round is not None or rounds.dirty):
            if self._round is None:
                self._begin_soon()
            assert self._round is not None
            await asyncio.wait([self._round])
            await asyncio.sleep(0)
        self._threads.close()
