"""Group commit on an event loop: nobody waits, futures do.

    requests    append  append  append  append          append
    rounds             [ sync ......... ][ sync ............ ]
    answers                             ^ the first two      ^ the rest

The broker lives on the loop's thread. A round begins when the loop has handled what
it was handling, so that all of it is in; it takes everything that is dirty, syncs the
files in threads, and comes back to the loop; what was appended meanwhile is the next
round. A failed sync is never retried: the node ends.

Whoever waits has a deadline, and is told DeadlineExceeded when it comes; what was appended
stays, and is synced like all else. One timer, at the earliest, does for all of them.

Rejected: a timer for each. Most are cancelled a millisecond later, and a fifth of what a small
publish costs goes into them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from headrace.core.errors import DeadlineExceeded, SyncFailed
from headrace.core.ports import Clock, Disk
from headrace.core.request_context import NEVER
from headrace.core.system_errors import is_full as says_full
from headrace.engine.broker import Broker, Round
from headrace.engine.commit import Commit
from headrace.engine.partition import Partition
from headrace.server.sync_threads import SyncThreads

# A full disk is asked again after this long.
FULL_RETRY_MS = 100


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
        self._broker = broker
        self._clock = clock
        self._loop = loop
        self._on_advance = on_advance
        self._on_failure = on_failure
        self._dirty: set[Partition] = set()
        self._lazy: set[Partition] = set()
        self._lazy_timer: asyncio.TimerHandle | None = None
        # With the time of the loop at which each gives up.
        self._waiting: list[tuple[Commit, asyncio.Future[None], float]] = []
        # The earliest of those times, or one before it.
        self._next_deadline = NEVER
        self._deadline_timer: asyncio.TimerHandle | None = None
        # Done when the round is that begins soon or is under way.
        self._round: asyncio.Future[None] | None = None
        self._threads = SyncThreads(disk, loop, on_timed)
        self.failed: SyncFailed | None = None

    def submit(self, commit: Commit, deadline: float = NEVER) -> asyncio.Future[None] | None:
        """None when everything in the commit is safe already; DeadlineExceeded when it is
        not by then, as the loop counts."""
        commit.seal()
        self._note(commit)
        if self.failed is None and commit.is_done():
            if self._dirty and self._round is None:
                self._begin_soon()
            return None
        future: asyncio.Future[None] = self._loop.create_future()
        if self.failed is not None:
            future.set_exception(self.failed)
            return future
        self._waiting.append((commit, future, deadline))
        if deadline < self._next_deadline:
            self._wait_until(deadline)
        if self._round is None:
            self._begin_soon()
        return future

    def go_on_with(self, partitions: Iterable[Partition]) -> None:
        """A round is to come for these, though nobody may wait for it: also where other nodes
        have confirmed more."""
        self._dirty.update(partitions)
        if self._round is None and self.failed is None:
            self._begin_soon()

    @property
    def is_idle(self) -> bool:
        """Nobody waits for the disk."""
        return not self._waiting

    def _wait_until(self, deadline: float) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self._next_deadline = deadline
        self._deadline_timer = self._loop.call_at(deadline, self._end_late)

    def _end_late(self) -> None:
        self._next_deadline, self._deadline_timer = NEVER, None
        # A timer may be early by what a clock ticks.
        now = self._loop.time() + 0.001
        left = []
        for commit, future, deadline in self._waiting:
            if deadline > now:
                left.append((commit, future, deadline))
            elif not future.done():
                future.set_exception(
                    DeadlineExceeded(
                        "the disk did not make this safe in time; it may take effect all the "
                        "same: look before you ask again"
                    )
                )
        self._waiting = left
        earliest = min((deadline for _, _, deadline in left), default=NEVER)
        if earliest < NEVER:
            self._wait_until(earliest)

    async def wait(self, commit: Commit) -> None:
        future = self.submit(commit)
        if future is not None:
            await future

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Their topic is gone: no round that begins from now on syncs them."""
        self._dirty.difference_update(partitions)
        self._lazy.difference_update(partitions)

    def _note(self, commit: Commit) -> None:
        for partition in commit.partitions():
            durability = partition.topic.settings.durability
            if durability == "synced":
                self._dirty.add(partition)
            else:
                self._on_advance((partition,))
                if durability == "interval":
                    self._lazy.add(partition)
                    self._start_timer(partition.topic.settings.sync_interval_ms)

    def _start_timer(self, interval_ms: int) -> None:
        if self._lazy_timer is None:
            self._lazy_timer = self._loop.call_later(interval_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._lazy_timer = None
        self._dirty |= self._lazy
        self._lazy = set()
        if self._round is None and self.failed is None:
            self._begin_soon()

    def _begin_soon(self) -> None:
        self._round = self._loop.create_future()
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        if self.failed is not None:
            return
        dirty, self._dirty = self._dirty, set()
        try:
            due = self._broker.begin_sync(dirty)
        except Exception as error:
            self.fail(error)
            return
        files = [file for _, ticket in due.tickets for file in ticket.files]
        directories = {name for _, ticket in due.tickets for name in ticket.directories}
        if files or directories:
            self._threads.sync(files, tuple(directories), partial(self._on_synced, due))
        else:
            self._on_synced(due, None)

    def _on_synced(self, due: Round, error: BaseException | None) -> None:
        if error is not None:
            self.fail(error)
            return
        self._end_round()
        is_full = False
        try:
            self._dirty |= self._broker.on_synced(due, self._clock.now_ms())
        except Exception as raised:
            # What was synced is safe, but what should follow it was not done.
            # Whoever waits for these partitions must not wait for ever.
            self._dirty |= set(due.partitions)
            is_full = says_full(raised)
            if not is_full:
                self.fail(raised)
                return
        left = []
        for entry in self._waiting:
            commit, future, _ = entry
            if commit.is_done():
                if not future.done():
                    future.set_result(None)
            elif (failure := commit.failure()) is not None:
                if not future.done():
                    future.set_exception(failure)
            else:
                left.append(entry)
        self._waiting = left
        self._on_advance(due.partitions)
        if is_full:
            self._start_timer(FULL_RETRY_MS)
        elif (self._dirty or (left and due.tickets)) and self._round is None:
            # Where a round found nothing to sync, those who are left wait for other nodes.
            self._begin_soon()

    def _end_round(self) -> None:
        ended, self._round = self._round, None
        if ended is not None and not ended.done():
            ended.set_result(None)

    def fail(self, error: BaseException) -> None:
        """Nothing is safe any more, and nothing more is synced."""
        if self.failed is not None:
            return
        self.failed = SyncFailed(
            f"the disk refused to sync ({error}); what was written last may be lost: check the "
            "disk and start the node again"
        )
        self.failed.__cause__ = error
        self._end_round()
        for _, future, _ in self._waiting:
            if not future.done():
                future.set_exception(self.failed)
        self._waiting = []
        self._on_failure(self.failed)

    async def close(self) -> None:
        """Sync everything, whatever its durability."""
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        if self._lazy_timer is not None:
            self._lazy_timer.cancel()
        self._broker.moves.close()
        self._dirty |= set(self._broker.topics)
        while self.failed is None and (self._round is not None or self._dirty):
            if self._round is None:
                self._begin_soon()
            assert self._round is not None
            await asyncio.wait([self._round])
            await asyncio.sleep(0)
        self._threads.close()
