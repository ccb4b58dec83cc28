"""Serving in this process: the lock, the time, and a wait for the disk that blocks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from headrace.calls.served import Served
from headrace.calls.timekeeping import BrokerClock
from headrace.core.errors import Closed, HeadraceError, ReadOnly, SyncFailed, UnknownTopic
from headrace.core.event_log import log_event
from headrace.core.ports import Clock, Disk, Entropy, Lock, read_clock, steady_ms
from headrace.engine.broker import Broker, Deleted
from headrace.engine.commit import Commit
from headrace.engine.partition import Partition
from headrace.node.reporting import report_troubles
from headrace.platform.directory import give_up_reserve, keep_reserve
from headrace.platform.group_commit import GroupCommit

T = TypeVar("T")

logger = logging.getLogger("headrace")

MAINTAIN_MS = 30_000
# Of a topic that is made by publishing to it. A node has a setting for that.
AUTO_CREATE_PARTITIONS = 3
# A duty that the disk had no room for is tried again after this long.
RETRY_MS = 1_000
# About a millisecond of work.
FOLLOW_BYTES = 32 * 1024


class Embedded(Served):
    def __init__(
        self, disk: Disk, clock: Clock, entropy: Entropy, claimed: Lock | None, *,
        auto_create: bool, free_bytes_min: int,
    ) -> None:  # fmt: skip
        self.clock = clock
        self.closed = False
        self._disk = disk
        # The lock on the directory; without it the node only reads.
        self._claimed = claimed
        self._auto_create = auto_create
        self._lock = threading.Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()
        now_ms = clock.now_ms()
        self._broker = Broker(
            disk,
            entropy,
            now_ms,
            read_only=claimed is None,
            free_bytes_min=free_bytes_min,
            on_full=lambda: give_up_reserve(disk),
            keep_reserve=lambda: keep_reserve(disk),
        )
        report_troubles(self._broker)
        if auto_create:
            self._broker.topics.auto_create_partitions = AUTO_CREATE_PARTITIONS
        # The time for who holds the lock; others ask the clock itself.
        self._time = BrokerClock(clock, self._broker)
        self._commits = GroupCommit(self._broker, disk, self._time, self._lock)
        # When that was done last, and when duties are to be looked at next, by a time that
        # nobody sets. A handle that is dropped must go at once, so nothing below refers to it.
        self._maintained_ms = self._duties_ms = steady_ms(clock)
        # A transaction that could not be ended is left alone until then.
        self._retry_ms = now_ms
        if claimed is not None:
            with self._writing():
                self._broker.maintain(now_ms)

    @contextmanager
    def _reading(self) -> Iterator[int]:
        """The lock, and the time."""
        if self._is_duty_due() and not self.closed:
            with self._writing():
                pass
        with self._lock:
            if self.closed:
                raise Closed("this handle is closed; open the directory again")
            yield self._time.now_ms()

    @contextmanager
    def _writing(self) -> Iterator[tuple[int, Commit]]:
        """The lock, the time and a commit, which is finished at the end: the
        call is answered when everything it did is safe."""
        with self._lock:
            self._check_writable()
            commit = self._broker.commit()
            now_ms = self._see_to_duties(commit)
            try:
                yield now_ms, commit
            except Exception as error:
                # What it has written before it failed is there.
                self._commits.note(commit)
                if not isinstance(error, (OSError, SyncFailed)):
                    raise
                judged = self._commits.judge(error)
                raise judged from judged.__cause__
            self._wait_for_moves(commit)
            self._commits.finish(commit)
            if self._broker.follower.due:
                self._follow()

    def _follow(self) -> None:
        """Nobody works in the background here, so whoever calls does a bit of what
        tracing keeps of state logs before they are cut."""
        if self.closed:
            return
        try:
            self._broker.follower.advance(self._time.now_ms(), FOLLOW_BYTES)
        except SyncFailed as error:
            judged = self._commits.judge(error)
            raise judged from judged.__cause__

    def _write(self, work: Callable[[int, Commit], T], *, waits: bool = True) -> T:
        """The same for calls that many threads make at once: whichever of them
        has the lock carries out the work of all. What never waits for the disk
        is carried out at once, and not after somebody else's sync."""
        if not waits:
            with self._writing() as (now_ms, commit):
                return work(now_ms, commit)

        def carry_out(commit: Commit) -> T:
            self._check_writable()
            result = work(self._see_to_duties(commit), commit)
            self._wait_for_moves(commit)
            return result

        result = self._commits.run(carry_out)
        if self._broker.follower.due:
            with self._lock:
                self._follow()
        return result

    # Nobody works in the background here: time passes when somebody asks.

    def _is_duty_due(self) -> bool:
        if self._claimed is None or self._commits.failed is not None:
            return False
        now_ms, stepped_ms, _ = read_clock(self.clock)
        return self._is_due(now_ms, stepped_ms)

    def _is_due(self, now_ms: int, stepped_ms: int) -> bool:
        deadline_ms = self._broker.duties.next_deadline_ms()
        return now_ms - stepped_ms >= self._duties_ms or (
            deadline_ms is not None and now_ms >= deadline_ms and self._retry_ms <= now_ms
        )

    def _see_to_duties(self, commit: Commit) -> int:
        """Whatever is due now; what is written is waited for with the call. The time."""
        now_ms, duties = self._time.now_ms(), self._broker.duties
        if not self._is_due(now_ms, self._time.stepped_ms):
            return now_ms
        self._duties_ms = now_ms - self._time.stepped_ms + MAINTAIN_MS
        try:
            for name in duties.end_late(now_ms, commit):
                log_event(logger, logging.WARNING, "transaction timed out", transactional_id=name)
            duties.forget(now_ms, commit)
        except (HeadraceError, OSError):
            # Whoever calls now has nothing to do with it; it is tried again.
            logger.exception("housekeeping failed")
            self._retry_ms = now_ms + RETRY_MS
        return now_ms

    def _check_writable(self) -> None:
        if self.closed:
            raise Closed("this handle is closed; open the directory again")
        if self._claimed is None:
            raise ReadOnly("the directory is open for reading only")
        if self._commits.failed is not None:
            raise self._commits.failed.without_frames()

    def _wait_for_moves(self, commit: Commit) -> None:
        if self._broker.moves:
            commit.wait_for_moves(self._broker.moves.pending())

    @contextmanager
    def _looking(self, find: Callable[[], Sequence[Partition]]) -> Iterator[int]:
        if self._claimed is not None and self._commits.failed is None:
            # A topic that was deleted meanwhile is not there when it looks.
            with suppress(UnknownTopic), self._writing() as (now_ms, commit):
                self._broker.fates.tick(find(), now_ms, commit)
        with self._reading() as now_ms:
            if self._claimed is None:
                self._broker.fates.show(find(), now_ms)
            yield now_ms

    def _catch_up(self) -> None:
        # Every write was waited for.
        return

    def _remove(self, deleted: Deleted, commit: Commit) -> None:
        self._commits.on_deleted()
        self._commits.finish(commit)
        # A round that is under way may still be at work on their files.
        self._commits.wait_for_round()
        for partition in deleted.partitions:
            partition.close_files()
        for topic in deleted.topics:
            self._broker.topics.remove_files(topic)

    def _on_sync_failed(self, error: SyncFailed) -> None:
        # Nothing more is written, and what the call has written is not waited for.
        self._commits.judge(error)

    def _maintain(self, now_ms: int) -> None:
        passed_ms = now_ms - self._time.stepped_ms
        if passed_ms - self._maintained_ms >= MAINTAIN_MS:
            self._maintained_ms = passed_ms
            self._broker.maintain(now_ms)

    # Waiting.

    def add_listener(self, wake: Callable[[], None], topics: Sequence[str] = ()) -> None:
        with self._lock:
            self._listeners = (*self._listeners, wake)

    def remove_listener(self, wake: Callable[[], None]) -> None:
        with self._lock:
            listeners = list(self._listeners)
            if wake in listeners:
                listeners.remove(wake)
            self._listeners = tuple(listeners)

    def _notify(self) -> None:
        for wake in self._listeners:
            wake()

    # In one process looking again is cheap, so everybody is woken by everything.

    def _notify_published(self) -> None:
        for wake in self._listeners:
            wake()

    def _notify_freed(self, group: str) -> None:
        self._notify()

    def _notify_changed(self) -> None:
        self._notify()
