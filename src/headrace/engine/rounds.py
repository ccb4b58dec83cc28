"""Rounds of syncs: what the next one contains, which calls it ends, and how.

    take, go_on_with   partitions become dirty, or are to be synced now and then; or other
                       nodes have confirmed more of them, or lead them now
    begin              everything that is dirty: one Round for the driver to sync
    on_...             how that went; what it ends is returned as an Ended

    from            on                            to
    IDLE, RESTING   begin                         SYNCING, or FAILED, or RESTING *
    SYNCING         on_synced                     IDLE, or FAILED, or RESTING *
    SYNCING         on_interrupted                IDLE, and all of it is dirty again
    RESTING         take, go_on_with, on_timer    IDLE
    any             on_sync_failed                FAILED, which has no way out
                    on_disk_failed

    * Something ran out, such as room on the disk: what is synced is safe, and what should
    follow it is tried again by the next call, or after `Ended.wake_ms`.

There is one round at a time: what becomes dirty meanwhile is the next one. A failed sync
is never repeated: what the system still holds of the data is not known any more. Calls that
are left by a round which found nothing to sync wait for other nodes: no round begins for them
before there is news of those (`go_on_with`).

A call may have a deadline, and is told DeadlineExceeded when it comes (`on_late`). What was
appended stays, and is synced like all else.

It does nothing itself. A driver syncs the files of a round, keeps the timers, and hands
the answers to its callers, which it names as `waiter`: `server/loop_commit.py` on an event
loop, `platform/group_commit.py` for threads.

Rejected: each driver decides what its rounds contain and end. The two drifted apart: a
call whose topic was deleted succeeded in one and failed in the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Final, Generic, NamedTuple, TypeVar

from headrace.core.errors import DeadlineExceeded, HeadraceError, SyncFailed
from headrace.core.request_context import NEVER
from headrace.core.system_errors import disk_error, is_shortage
from headrace.engine.broker import Broker, Round
from headrace.engine.commit import Commit
from headrace.engine.partition import Partition

Waiter = TypeVar("Waiter")

# What found no room is tried again after this long.
RETRY_MS: Final = 100


class Phase(Enum):
    IDLE = auto()
    SYNCING = auto()
    # Nothing begins by itself before the time is over.
    RESTING = auto()
    FAILED = auto()


class Taken(NamedTuple):
    """What became of a commit. One that is neither done nor failed has to wait."""

    # Everything in it is safe already.
    is_done: bool
    # Why it will never be.
    failure: HeadraceError | None = None
    # Partitions whose readers may see more at once.
    shown: Sequence[Partition] = ()
    # `on_timer` is to be called after this long, if not sooner.
    wake_ms: int | None = None


class Ended(NamedTuple, Generic[Waiter]):
    """What an event has brought about."""

    # Everything in their commits is safe.
    done: Sequence[Waiter] = ()
    # It will never be; each with the reason.
    failed: Sequence[tuple[Waiter, HeadraceError]] = ()
    # As in `Taken`.
    shown: Sequence[Partition] = ()
    wake_ms: int | None = None


# Of most commits, as each new one would take as long as the rest.
_DONE: Final = Taken(True)
_WAITS: Final = Taken(False)
# Of the others, without the call that names the fields.
_new_tuple: Final = tuple.__new__
_IDLE: Final = Phase.IDLE
_SYNCING: Final = Phase.SYNCING
_RESTING: Final = Phase.RESTING


class Rounds(Generic[Waiter]):
    def __init__(self, broker: Broker, remedy: str) -> None:
        """`remedy` says what to do when the disk has failed."""
        self._broker = broker
        self._remedy = remedy
        self.phase = _IDLE
        self.failed: SyncFailed | None = None
        # Partitions for the next round.
        self.dirty: set[Partition] = set()
        # Those of topics with durability="interval", for the round after the timer.
        self._lazy: set[Partition] = set()
        # Commits that are not safe yet, the oldest first, and when each gives up.
        self.waiting: list[tuple[Commit, Waiter, float]] = []
        # A round may bring those who wait further, though no partition is dirty.
        self._is_wanted = False
        self._is_closing = False

    @property
    def is_due(self) -> bool:
        """Whether a round has to begin now."""
        return self.phase is _IDLE and (self._is_wanted or bool(self.dirty))

    # Commits.

    def take(self, commit: Commit) -> Taken:
        """Everything of a call is in the commit. `wait` follows if it has to wait."""
        if self.failed is not None:
            return Taken(False, self.failed)
        shown, wake_ms, is_any_lost = self.note(commit)
        is_done = commit.is_done()
        if not shown and not is_any_lost:
            return _DONE if is_done else _WAITS
        failure = commit.failure() if is_any_lost and not is_done else None
        return _new_tuple(Taken, (is_done, failure, shown, wake_ms))

    def note(self, commit: Commit) -> tuple[Sequence[Partition], int | None, bool]:
        """What it holds is in a round, whether or not a call waits for it. Returns `shown` and
        `wake_ms` as in `Taken`, and whether a partition of it is deleted, or led elsewhere."""
        commit.seal()
        if self.phase is _RESTING:
            self.phase = _IDLE
        shown: tuple[Partition, ...] = ()
        wake_ms = None
        is_any_lost = False
        for partition in commit.partitions():
            if not partition.is_leader:
                is_any_lost = True
            settings = partition.topic.settings
            if settings.durability == "synced":
                self.dirty.add(partition)
                continue
            shown = (*shown, partition) if shown else (partition,)
            if settings.durability == "interval" and partition not in self._lazy:
                self._lazy.add(partition)
                wake_ms = _sooner(wake_ms, settings.sync_interval_ms)
        return shown, wake_ms, is_any_lost

    def wait(self, commit: Commit, waiter: Waiter, deadline: float = NEVER) -> None:
        """`waiter` is done once everything in the commit is safe."""
        self.waiting.append((commit, waiter, deadline))
        self._is_wanted = True

    def wait_for_round(self, waiter: Waiter) -> None:
        """`waiter` is done when the round that is under way, or else the next one, is over."""
        self.wait(Commit(self._broker.metadata), waiter)

    def stop_waiting(self, waiter: Waiter) -> None:
        self.waiting = [each for each in self.waiting if each[1] is not waiter]

    def go_on_with(self, partitions: Iterable[Partition]) -> None:
        """A round has to come for these, whether or not a call waits for it: also where other
        nodes have confirmed more. For none, when other nodes lead what is waited for."""
        self.dirty.update(partitions)
        self._is_wanted = True
        if self.phase is _RESTING:
            self.phase = _IDLE

    def on_deleted(self) -> Ended[Waiter]:
        """A topic was deleted. Its partitions are in no round that begins from now on, and
        calls that wait for one of them have failed."""
        failed: list[tuple[Waiter, HeadraceError]] = []
        left = []
        for each in self.waiting:
            failure = each[0].failure()
            if failure is None:
                left.append(each)
            else:
                failed.append((each[1], failure))
        self.waiting = left
        return Ended((), failed)

    def on_late(self, now: float) -> Ended[Waiter]:
        """Calls whose deadline has come wait no longer."""
        failed: list[tuple[Waiter, HeadraceError]] = []
        left = []
        for each in self.waiting:
            if each[2] > now:
                left.append(each)
            else:
                why = DeadlineExceeded(
                    "the disk did not make this safe in time; it may take effect all the same: "
                    "look before you ask again"
                )
                failed.append((each[1], why))
        self.waiting = left
        return Ended((), failed)

    def next_deadline(self) -> float:
        return min((deadline for _, _, deadline in self.waiting), default=NEVER)

    # A round.

    def begin(self) -> Round | Ended[Waiter]:
        """What is to be synced now; or what came of it, when no round can begin."""
        if self.failed is not None:
            return self.on_disk_failed(self.failed)
        assert self.phase is not _SYNCING
        # Files of a topic that was deleted may be gone.
        dirty, self.dirty = self.dirty, set()
        self._is_wanted = False
        for partition in dirty:
            if partition.is_deleted:
                dirty = set(_there(dirty))
                break
        try:
            due = self._broker.begin_sync(dirty)
        except Exception as error:
            if not is_shortage(error):
                return self.on_sync_failed(error)
            return self._rest(error, dirty)
        except BaseException:
            self.go_on_with(dirty)
            raise
        self.phase = _SYNCING
        return due

    def on_synced(self, due: Round, now_ms: int) -> Ended[Waiter]:
        """All of its files and directories are on disk."""
        if self.failed is not None:
            # Something else failed meanwhile.
            return self.on_disk_failed(self.failed)
        self.phase = _IDLE
        for partition in due.partitions:
            if partition.is_deleted:
                due = Round(due.tickets, _there(due.partitions))
                break
        shortage: Exception | None = None
        try:
            self.dirty |= self._broker.on_synced(due, now_ms)
        except Exception as error:
            if not is_shortage(error):
                return self.on_sync_failed(error)
            shortage = error
        except BaseException:
            self.go_on_with(due.partitions)
            raise
        done: list[Waiter] = []
        failed: list[tuple[Waiter, HeadraceError]] = []
        left = []
        for each in self.waiting:
            commit = each[0]
            if commit.is_done():
                done.append(each[1])
            elif (failure := commit.failure()) is not None:
                failed.append((each[1], failure))
            else:
                left.append(each)
        self.waiting = left
        if left and due.tickets:
            # Where it found nothing to sync, those who are left wait for other nodes.
            self._is_wanted = True
        wake_ms = None
        if shortage is not None:
            _, more, _, wake_ms = self._rest(shortage, due.partitions)
            failed += more
        return _new_tuple(Ended, (done, failed, due.partitions, wake_ms))

    def on_interrupted(self, due: Round) -> None:
        """The thread that synced it was interrupted, and no file is being synced any more.
        The round counts for nothing: the next one repeats it."""
        if self.failed is None:
            self.phase = _IDLE
            self.go_on_with(due.partitions)

    def on_sync_failed(self, error: BaseException) -> Ended[Waiter]:
        """The disk refused a part of the round."""
        reason = error.__cause__ if isinstance(error, SyncFailed) else None
        failed = SyncFailed(
            f"the disk refused to sync ({reason or error}); what was written last may be lost: "
            f"{self._remedy}"
        )
        failed.__cause__ = error
        return self.on_disk_failed(failed)

    def on_disk_failed(self, failed: SyncFailed) -> Ended[Waiter]:
        """The disk failed, here or under a call that syncs on its own. Every call that
        waits or comes fails, with the first such error."""
        self.failed = self.failed or failed
        self.phase = Phase.FAILED
        return self._end_all(self.failed)

    def _end_all(self, failure: HeadraceError) -> Ended[Waiter]:
        failed = [(waiter, failure) for _, waiter, _ in self.waiting]
        self.waiting = []
        return Ended((), failed)

    def _rest(self, shortage: Exception, partitions: Iterable[Partition]) -> Ended[Waiter]:
        """No round can begin, or what should follow one was not done, for want of something."""
        if self._is_closing:
            # What is on disk is safe, and the next start goes on from there.
            self._is_wanted = False
            if isinstance(shortage, OSError):
                shortage = disk_error(shortage, self._remedy)
            assert isinstance(shortage, HeadraceError)
            return self._end_all(shortage)
        self.go_on_with(partitions)
        self.phase = Phase.RESTING
        return Ended(wake_ms=RETRY_MS)

    # Time, and the end.

    def on_timer(self) -> None:
        """The time is over that was asked for."""
        self.dirty |= self._lazy
        self._lazy = set()
        if self.phase is _RESTING:
            self.phase = _IDLE

    def close(self) -> None:
        """Everything is to be synced, whatever its durability, in rounds that follow for as
        long as something is dirty."""
        self._is_closing = True
        self._lazy = set()
        self._broker.moves.close()
        self.go_on_with(self._broker.topics)


def _there(partitions: Iterable[Partition]) -> list[Partition]:
    """Without those of topics that were deleted."""
    return [partition for partition in partitions if not partition.is_deleted]


def _sooner(one_ms: int | None, other_ms: int) -> int:
    return other_ms if one_ms is None else min(one_ms, other_ms)
