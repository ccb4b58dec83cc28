"""The state log: a partition's companion, where outcomes are written.

    append ... append          deltas, one batch for one call; those of a transaction
                               count when its marker comes
    [begin .. columns .. end]  a snapshot, from which older segments can go
    append ...

An event that somebody waits for takes effect when it is synced; until then it is
in `waiting`. A snapshot may be taken meanwhile: it holds the waiting events again,
behind its columns. It is written by one call; of one that a loss of power tore, a
part without its end may be left, which is cut off at the next open.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.core import limits
from headrace.core.errors import DiskFull
from headrace.core.ports import Buffer
from headrace.engine.records import iterate_batches
from headrace.engine.stability import marker_batch
from headrace.engine.state import (
    AckHeld,
    Closed,
    Cut,
    Event,
    HeldDecided,
    MessageEvent,
    Opened,
    Revived,
    SnapshotEnd,
    SnapshotPartition,
    decode_event,
    encode_event,
)
from headrace.engine.state_marks import MARK_BYTES, Marks
from headrace.log import Log
from headrace.record import (
    BatchHeader,
    build_values_batch,
    read_control,
    read_header,
    read_records,
)
from headrace.record.control import ControlKind, ControlMarker

if TYPE_CHECKING:
    from headrace.engine.queue import QueueView

# A snapshot is due after this much, or several times its own size.
SNAPSHOT_BYTES_MIN = 4 * 1024 * 1024
SNAPSHOT_FACTOR = 4
BATCH_BYTES = 4 * 1024 * 1024
_SNAPSHOT_BOUNDS = (SnapshotPartition, SnapshotEnd)


class Waiting(NamedTuple):
    end: int
    view: QueueView
    event: MessageEvent | HeldDecided


class TransactionDecided(NamedTuple):
    """A marker, as it is read back."""

    producer: int
    at: int
    commit: bool


class StateLog:
    def __init__(self, log: Log, on_full: Callable[[], bool], data_end: Callable[[], int]) -> None:
        """`on_full` makes room on a full disk, if it can: acks must go on when
        publishing cannot. `data_end` says where the log of the messages ends."""
        self.log = log
        self._on_full = on_full
        self._data_end = data_end
        # Where to look for a message, and the last event that was about groups or about
        # the log, or brought back messages that were done: from there on all that comes
        # is about messages that are not done.
        self.marks = Marks()
        self.turned_at = -1
        self._mark_due = MARK_BYTES
        self._told_end = 0
        self.waiting: deque[Waiting] = deque()
        # Groups, by producer, whose acks a transaction will decide.
        self.holding: dict[int, set[int]] = {}
        self._bytes = 0
        # About how much the last snapshot has.
        self.snapshot_bytes = 0
        self._bytes_due = SNAPSHOT_BYTES_MIN
        # What has to be written before anything else, and found no room.
        self.first: tuple[Cut, int, int] | None = None
        # Where a snapshot begins whose end was not found.
        self._torn_at: int | None = None
        # Start and end of the last snapshot, until it is synced.
        self._snapshot: tuple[int, int] | None = None
        # Whether somebody has to read what a snapshot replaces before it is cut, and
        # what waits for that.
        self.is_followed = False
        self.cut_below: int | None = None

    def append(self, events: Sequence[Event], epoch: int, now_ms: int) -> int:
        """One batch; returns the log's end behind it."""
        values = [encode_event(event) for event in events]
        return self._append(build_values_batch(values, now_ms), epoch, now_ms)

    def append_turn(self, event: Opened | Closed | Cut, epoch: int, now_ms: int) -> None:
        """The same for what is not about messages."""
        self.turned_at = self.append([event], epoch, now_ms) - 1

    def append_first(self, event: Cut, epoch: int, now_ms: int) -> None:
        """As `append_turn`; on a full disk before whatever is appended next."""
        try:
            self.append_turn(event, epoch, now_ms)
        except DiskFull:
            self.first = (event, epoch, now_ms)

    def write_first(self) -> None:
        """What `append_first` found no room for; DiskFull when there is none yet."""
        if self.first is not None:
            event, epoch, now_ms = self.first
            self.first = None
            try:
                self.append_turn(event, epoch, now_ms)
            except DiskFull:
                self.first = (event, epoch, now_ms)
                raise
            self.log.sync_now()

    def append_held(self, event: AckHeld, producer_epoch: int, epoch: int, now_ms: int) -> int:
        """The same for an ack that is part of a transaction."""
        batch = build_values_batch(
            [encode_event(event)],
            now_ms,
            producer_id=event.producer,
            producer_epoch=producer_epoch,
            transactional=True,
        )
        end = self._append(batch, epoch, now_ms)
        self.holding.setdefault(event.producer, set()).add(event.group)
        return end

    def append_marker(self, marker: ControlMarker, epoch: int) -> int:
        """The same for the marker that decides it."""
        return self._append(marker_batch(marker), epoch, marker.timestamp_ms)

    def _append(self, batch: bytearray, epoch: int, now_ms: int) -> int:
        self.write_first()
        try:
            end = self.log.append(batch, epoch, now_ms)[1]
        except DiskFull:
            if not self._on_full():
                raise
            end = self.log.append(batch, epoch, now_ms)[1]
        self._bytes += len(batch)
        if self._bytes >= self._mark_due:
            self._mark(end, self._data_end())
        return end

    def _mark(self, position: int, end: int) -> None:
        self.marks.add(position, end)
        self._mark_due = self._bytes + MARK_BYTES

    def note_held(self, views: Iterable[QueueView]) -> None:
        """After a replay: whose acks still wait for a marker."""
        for view in views:
            for producer_id in view.held_acks.producers():
                self.holding.setdefault(producer_id, set()).add(view.group_id)

    def replay(self) -> Iterator[Event | TransactionDecided]:
        """Every event that counts, in order, from the last whole snapshot on. What lies
        between a snapshot's begin and end comes once the end was seen."""
        snapshot: list[Event | TransactionDecided] | None = None
        start, torn = self._replay_start()
        first, self._torn_at = start, torn
        for offset, event in self._events(start, torn or self.log.end_offset):
            match event:
                case SnapshotPartition():
                    snapshot = [event]
                    first = self._torn_at = offset
                case SnapshotEnd():
                    yield from snapshot or ()
                    yield event
                    snapshot = None
                    self._torn_at = torn
                    self._on_snapshot_read(first, offset + 1)
                case _ if snapshot is not None:
                    snapshot.append(event)
                case _:
                    self._note(offset, event)
                    yield event

    def _replay_start(self) -> tuple[int, int | None]:
        """The last snapshot that is whole, or the log's start; and where one begins that a
        loss of power tore. A snapshot begins a segment, so only those are looked at."""
        torn: int | None = None
        for segment in reversed(list(self.log.segment_list)):
            base = segment.base_offset
            if base <= self.log.start_offset:
                break
            kinds = (type(event) for _, event in self._read(base, self.log.end_offset))
            if next(kinds, None) is SnapshotPartition:
                if next((kind for kind in kinds if kind in _SNAPSHOT_BOUNDS), None) is SnapshotEnd:
                    return base, torn
                torn = base
        return self.log.start_offset, torn

    def _on_snapshot_read(self, start: int, end: int) -> None:
        """As after `write_snapshot`."""
        if start > self.log.start_offset:
            # What it replaces was not cut yet.
            self._snapshot = (start, end)
        self.snapshot_bytes = self._bytes
        self._bytes_due = max(SNAPSHOT_BYTES_MIN, SNAPSHOT_FACTOR * self._bytes)
        self._bytes = 0
        # What was said before it, and was not read, may be about any message.
        self._told_end = max(self._told_end, self._data_end())
        self.turned_at = max(self.turned_at, start)
        self._mark(end, self._told_end)

    def _note(self, position: int, event: Event | TransactionDecided) -> None:
        if self._bytes >= self._mark_due:
            self._mark(position, self._told_end)
        if isinstance(event, Opened | Closed | Cut | Revived):
            self.turned_at = position
        told: int = event.start if isinstance(event, Opened) else _end_of(event)
        self._told_end = max(self._told_end, told)

    def cut_torn_snapshot(self) -> None:
        """After a replay: what follows must not look like a part of it."""
        if self._torn_at is not None:
            self.log.truncate_to(self._torn_at)
            self._torn_at = None

    def _events(self, start: int, end: int) -> Iterator[tuple[int, Event | TransactionDecided]]:
        """Counted as what a replay has to read."""
        for data, position in iterate_batches(self.log, start, end):
            header = read_header(data, position)
            self._bytes += header.size_bytes
            yield from events_in(data[position : position + header.size_bytes], header)

    def _read(self, start: int, end: int) -> Iterator[tuple[int, Event | TransactionDecided]]:
        for data, position in iterate_batches(self.log, start, end):
            header = read_header(data, position)
            yield from events_in(data[position : position + header.size_bytes], header)

    @property
    def bytes_since_snapshot(self) -> int:
        """What the next start has to replay."""
        return self._bytes

    @property
    def has_unsynced_snapshot(self) -> bool:
        return self._snapshot is not None

    def is_snapshot_due(self) -> bool:
        return self._bytes >= self._bytes_due and self._snapshot is None

    def write_snapshot(self, parts: Sequence[Event], epoch: int, now_ms: int) -> None:
        """Replaces everything before it, once it is synced."""
        self.write_first()
        self.log.roll(now_ms)
        batches = bytearray()
        values: list[bytes] = []
        size = 0
        for event in [*parts, *(waiting.event for waiting in self.waiting), SnapshotEnd(now_ms)]:
            values.append(encode_event(event))
            size += len(values[-1])
            if size >= BATCH_BYTES or isinstance(event, SnapshotEnd):
                batches += build_values_batch(values, now_ms)
                values, size = [], 0
        self._snapshot = self.log.append(batches, epoch, now_ms)
        self.snapshot_bytes = len(batches)
        self._bytes_due = max(SNAPSHOT_BYTES_MIN, SNAPSHOT_FACTOR * len(batches))
        self._bytes = 0
        self._mark(self._snapshot[1], self._data_end())

    def on_synced(self) -> None:
        """Older segments go once the snapshot that replaces them is on disk, and was
        followed where it has to be. They do not wait for that for ever."""
        if self._snapshot is None or self.log.synced_end < self._snapshot[1]:
            return
        below = self._snapshot[0]
        if self.is_followed and self._bytes_below(below) <= limits.TRACE_UNCARRIED_BYTES_MAX:
            self.cut_below = below
            self._snapshot = None
            return
        with contextlib.suppress(DiskFull):
            self.cut(below)
            self._snapshot = None

    def cut(self, below: int) -> None:
        """A snapshot that is on disk begins here, or behind it."""
        self.log.release(below)
        self.marks.forget_below(self.log.start_offset)

    def _bytes_below(self, offset: int) -> int:
        return sum(
            segment.size_bytes for segment in self.log.segment_list if segment.next_offset <= offset
        )


def events_in(
    batch: Buffer, header: BatchHeader
) -> Iterator[tuple[int, Event | TransactionDecided]]:
    """The events of one batch, with their offsets; CorruptLog for one of no known kind."""
    if header.is_control:
        marker = read_control(batch, header)
        is_commit = marker.kind is ControlKind.COMMIT
        decided = TransactionDecided(marker.producer_id, marker.timestamp_ms, is_commit)
        yield marker.offset, decided
        return
    for record in read_records(batch, header):
        yield record.offset, decode_event(record.value or b"")


def _end_of(event: Event | TransactionDecided) -> int:
    runs: list[int] = getattr(event, "runs", [])
    return runs[-1] if runs else 0
