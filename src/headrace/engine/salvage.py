"""Salvage of queues: what can still be known of what queue groups did with a partition.

Every sound event of a damaged state log is applied, in order, to what was known before; a
snapshot counts when it is whole. What comes out is made plain:

    done                   stays done
    leased, being settled, ready again
    resting, on its way
    delayed                stays delayed
    its dead letter waits  dead, whatever else is known of it

Where events were lost, nobody knows which of the messages that are not done were done in
truth. They are delivered again, and not as if they were new: their next delivery is at
least the second one, and its error says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from headrace.core.errors import CorruptLog
from headrace.engine import state as events
from headrace.engine.catalog import Group
from headrace.engine.grant import Failure, count_attempts
from headrace.engine.lane import LANE_COUNT
from headrace.engine.loading import DAMAGED_PREFIX, REPAIRED_FOLDER, STATE_FOLDER, new_replay
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.runs import Runs, count_of, pairs
from headrace.engine.snapshot import parts_of
from headrace.engine.soundness import DAMAGE, damage_text
from headrace.engine.state_log import StateLog, TransactionDecided, events_in
from headrace.engine.window import (
    DELAYED,
    LEASED,
    MOVING,
    READY,
    RETRYING,
    SETTLING,
    WAITING,
    is_done,
)
from headrace.engine.witnesses import Ends
from headrace.log import Log, LogSettings
from headrace.log.checkpoint import make_folder, sync_folder, write_start
from headrace.log.salvage import Lost, salvage

UNSURE = "the state log was damaged and repaired: this message may have been done already"


class SavedGroup(NamedTuple):
    name: str
    # Messages that are not done, and those of them that may have been done in truth.
    pending: int
    unsure: int


class Saved(NamedTuple):
    """What a repair finds, and what it did if it was to."""

    topic: str
    partition: int
    reason: str
    events: int
    # What could not be read or applied, in words.
    lost: list[str]
    groups: list[SavedGroup]
    # The folder with the damaged files; None while nothing was changed.
    kept_in: str | None = None


class Salvage:
    """Of one partition that is open read-only and whose queues are stopped."""

    def __init__(
        self, partition: Partition, groups: Mapping[int, Group], ends: Ends, now_ms: int
    ) -> None:
        """`ends` are known from elsewhere, whatever the state log says."""
        self._partition = partition
        self._ends = ends
        assert partition.queues_stopped is not None
        self._disk = partition.disk
        self._now_ms = now_ms
        topic_id = partition.topic.id
        self._groups = {i: group for i, group in groups.items() if topic_id in group.topics}
        self._source = _source_of(partition)
        self._lost: list[str] = []
        self._count = 0
        self._end = 0
        self.views = self._replay()
        if not self._lost:
            # What is not there at all leaves no trace; the reason knows of it.
            self._lost.append(str(partition.queues_stopped.__cause__ or partition.queues_stopped))
        found = [self._plain(view) for view in self.views.values()]
        self.saved = Saved(
            partition.topic.name,
            partition.index,
            str(partition.queues_stopped),
            self._count,
            self._lost,
            found,
        )

    # Reading.

    def _replay(self) -> dict[int, QueueView]:
        partition = self._partition
        replay = new_replay(partition, self._groups, self._now_ms)
        # Where the event that opened a group is lost, it begins with what there is.
        for group_id in self._groups:
            replay.apply(events.Opened(group_id, partition.log.start_offset, self._now_ms))
        for event in self._whole(self._events()):
            try:
                replay.apply(event)
                self._count += 1
            except DAMAGE as error:
                name = type(event).__name__
                self._lost.append(f"an event ({name}) cannot be applied: {damage_text(error)}")
        views = replay.finish()
        for view in views.values():
            # Leases and moves are given up below, so only the columns count.
            view.window.forget_below(partition.log.start_offset)
        return views

    def _events(self) -> Iterator[events.Event | TransactionDecided | None]:
        """None where something is lost."""
        for found in salvage(self._disk, self._source):
            if isinstance(found, Lost):
                what = f"{found.size_bytes} bytes of {found.file} from byte {found.position} on"
                self._lost.append(f"{what} are no events")
                yield None
                continue
            self._end = found.header.next_offset
            each = events_in(found.data, found.header)
            while True:
                try:
                    _, event = next(each)
                except StopIteration:
                    break
                except DAMAGE as error:
                    # The rest of the batch goes with it.
                    self._lost.append(
                        f"offset {found.header.base_offset} of {self._source}: {damage_text(error)}"
                    )
                    yield None
                    break
                yield event

    @staticmethod
    def _whole(
        found: Iterable[events.Event | TransactionDecided | None],
    ) -> Iterator[events.Event | TransactionDecided]:
        """Without snapshots that something is missing of: what was before them counts."""
        snapshot: list[events.Event | TransactionDecided] | None = None
        for event in found:
            match event:
                case None:
                    snapshot = None
                case events.SnapshotPartition():
                    snapshot = [event]
                case events.SnapshotEnd():
                    yield from snapshot or ()
                    snapshot = None
                case _ if snapshot is not None:
                    snapshot.append(event)
                case (
                    events.SnapshotGroup()
                    | events.SnapshotChunk()
                    | events.SnapshotKeys()
                    | events.SnapshotRest()
                ):
                    # Its beginning is lost.
                    pass
                case _:
                    yield event

    # Making it plain.

    def _plain(self, view: QueueView) -> SavedGroup:
        window = view.window
        for state in (LEASED, SETTLING, RETRYING, MOVING, WAITING):
            for offset in list(window.find_state(state, window.start)):
                window.put(offset, offset + 1, READY)
        for (group_id, offset), end in self._ends.items():
            if group_id == view.group_id and window.start <= offset < window.end:
                if not is_done(window.state_at(offset)):
                    window.put(offset, offset + 1, end)
        window.advance()
        pending = unsure = 0
        for lane in range(LANE_COUNT):
            for state in (READY, DELAYED):
                runs = window.find(lane << 4 | state, window.start, window.end)
                pending += count_of(runs)
                if state == READY:
                    unsure += count_of(runs)
                    self._note_unsure(view, runs)
        fresh = QueueView(view.group_id, view.name, view.settings, view.ordering, window.start)
        fresh.window = window
        fresh.order = view.order
        fresh.totals = view.totals
        fresh.next_grant, fresh.next_move = view.next_grant, view.next_move
        start = self._partition.log.start_offset
        fresh.failures = {o: each for o, each in view.failures.items() if o >= start}
        self.views[view.group_id] = fresh
        return SavedGroup(view.name, pending, unsure)

    def _note_unsure(self, view: QueueView, runs: Runs) -> None:
        split, attempts = count_attempts(view.window, runs, more=0)
        for (start, end), count in zip(pairs(split), attempts, strict=True):
            if count == 0:
                view.window.lease([start, end], 0, 1)
                view.window.put(start, end, READY)
            for offset in range(start, end):
                view.note_failure(offset, Failure(self._now_ms, UNSURE))

    # Writing.

    def write(self, epoch: int) -> Saved:
        """Put the damaged files aside and what was saved in their place."""
        disk, path = self._disk, self._partition.path
        made = f"{path}/{REPAIRED_FOLDER}"
        disk.remove_tree(made)
        make_folder(disk, made)
        # Positions in a state log are never used twice: traces go by them.
        write_start(disk, made, self._end)
        log = Log.open(disk, made, LogSettings(retention_ms=None), self._now_ms)
        state = StateLog(log, lambda: False, lambda: self._partition.log.end_offset)
        views = self.views.values()
        parts = parts_of(views, self._partition.open_scanner(), self._now_ms)
        state.write_snapshot(parts, epoch, self._now_ms)
        log.sync_now()
        log.close()
        kept = self._source
        if kept == f"{path}/{STATE_FOLDER}":
            kept = f"{path}/{DAMAGED_PREFIX}{_next_number(self._partition)}"
            disk.rename(f"{path}/{STATE_FOLDER}", kept)
            sync_folder(disk, path)
        disk.rename(made, f"{path}/{STATE_FOLDER}")
        sync_folder(disk, path)
        return self.saved._replace(kept_in=kept)


def _source_of(partition: Partition) -> str:
    """The folder with the damaged files, which a repair that was cut short has moved."""
    names = partition.disk.list(partition.path)
    if STATE_FOLDER in names:
        return f"{partition.path}/{STATE_FOLDER}"
    numbers = _numbers(partition)
    if not numbers:
        raise CorruptLog(f"{partition.path} has no state log, neither whole nor damaged")
    return f"{partition.path}/{DAMAGED_PREFIX}{numbers[-1]}"


def _numbers(partition: Partition) -> list[int]:
    ends = (
        name.removeprefix(DAMAGED_PREFIX)
        for name in partition.disk.list(partition.path)
        if name.startswith(DAMAGED_PREFIX)
    )
    return sorted(int(end) for end in ends if end.isdigit())


def _next_number(partition: Partition) -> int:
    return max(_numbers(partition), default=0) + 1
