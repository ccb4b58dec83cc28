"""The partition: one ordered log, and everything that is said about it.

    log          the records                      <partition>/
    state log    what queue groups did with them  <partition>/state/
    sidecar      their queue attributes           <partition>/attributes/

It is driven by leadership: `become_leader`, `load`, `append`, `on_synced`, `truncate_to`,
`resign` (see `leadership`). Three numbers say how far each of the two logs is: its end, its
synced end, and its high watermark. Above that of the log nothing is readable or leasable;
above that of the state log nothing is settled. A leader moves both up to what every member
of the in-sync set has. Alone, that is the synced end, or the end where the topic does not
wait for the disk. Before this node leads, nothing is readable; where another node leads,
both stay where they were.

Order of effects: validate, append, sync, then apply and answer.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from headrace.core.errors import CorruptLog, DiskFull
from headrace.core.ports import Disk
from headrace.engine import state as events
from headrace.engine.arrivals import Arrivals
from headrace.engine.catalog import Group, Topic
from headrace.engine.confirmed import Confirmed
from headrace.engine.contents import Contents, Found, known_of
from headrace.engine.dedup import DedupWindow
from headrace.engine.dedup_replay import check_readable, find_duplicate, load_window, remember_ids
from headrace.engine.held_acks import decide_held
from headrace.engine.leadership import Leadership
from headrace.engine.loading import load_queues
from headrace.engine.opening import open_messages
from headrace.engine.outlived import divide_outlived
from headrace.engine.producer import OpenTransaction, ProducerState
from headrace.engine.queue import QueueView
from headrace.engine.records import RecordReader
from headrace.engine.runs import Runs, below
from headrace.engine.scan import Scan
from headrace.engine.scanner import Scanner
from headrace.engine.snapshot import parts_of
from headrace.engine.stability import Stability
from headrace.engine.state_log import StateLog, Waiting
from headrace.log import AbortedTransaction, Log, LogSettings
from headrace.record import BatchHeader, Record, read_header, split_batches
from headrace.record.control import ControlKind, ControlMarker


class Appended(NamedTuple):
    first_offset: int
    next_offset: int
    duplicate: bool
    # The end of the state log, where a marker decided acks as well.
    state_end: int = 0


class Partition(Leadership):
    def __init__(
        self,
        disk: Disk,
        topic: Topic,
        index: int,
        now_ms: int,
        *,
        read_only: bool = False,
        on_full: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__()
        self.disk = disk
        self._on_full = on_full
        self.topic = topic
        self.index = index
        self.path = f"{topic.folder}/{index}"
        opened = open_messages(disk, topic, index, self.path, now_ms, read_only=read_only)
        self.log = opened.log
        # Damaged files are left as they are.
        self.read_only = read_only or opened.damage is not None
        self.stopped = self.queues_stopped = opened.damage
        # Whoever only looks sees all that is there.
        self.high_watermark = self.log.end_offset if self.read_only else self.log.start_offset
        self._opened = now_ms, self.log.end_offset
        self.arrivals = Arrivals(self.log.end_offset, now_ms)
        self.records = RecordReader(self.log, lambda: self.on_trouble())
        self.views: dict[int, QueueView] = {}
        # Messages whose TTL ended while somebody held them.
        self._outlived: set[int] = set()
        # There is one as soon as somebody has to know attributes.
        self.scanner: Scanner | None = None
        self._producer_note = opened.note
        self._stability = Stability(self.log, opened.producers)
        self.dedup: DedupWindow | None = opened.dedup

    # Opening and leadership.

    def load(self, groups: Mapping[int, Group], now_ms: int) -> None:
        """Bring back what queue groups did here, where this node leads: it may write."""
        load_queues(self, groups, now_ms)
        # A message that an event speaks of was safe before that was written.
        seen = max((view.window.end for view in self.views.values()), default=0)
        if seen > self.high_watermark:
            self._move_up(seen, now_ms)

    def adopt_views(self, views: dict[int, QueueView]) -> None:
        """Views as a state log tells of them."""
        self.views = views
        if self.state is not None:
            self.state.note_held(views.values())
        for view in views.values():
            # The start is moved without a word in the state log, and may be ahead
            # of what survived of that.
            view.forget_below(self.log.start_offset)
        self._load_due()

    def become_leader(
        self, epoch: int, now_ms: int, others: Confirmed | None = None, *, reign: int = 0
    ) -> None:
        """Take appends in this epoch, and show what is safe: alone all that is there, since
        it was synced when it was opened; with `others` what they confirm from now on. `load`
        comes next, where this node did not lead."""
        is_behind_another = self.begin_reign(epoch, reign, others)
        try:
            if is_behind_another:
                self._read_again(now_ms)
        except CorruptLog as error:
            self.stop(error)
        self._advance(now_ms)

    def _read_again(self, now_ms: int) -> None:
        """The messages, as when they are opened: another node has written them meanwhile."""
        log = self.log
        log.sync_now()
        self.records.forget()
        self.views, self._outlived = {}, set()
        if self.scanner is not None:
            self.scanner.close()
            self.scanner = None
        self._stability = Stability(log, self._producer_note.load())
        self.dedup = load_window(log, self.topic.settings, now_ms)
        self._opened = now_ms, log.end_offset
        self.arrivals = Arrivals(log.end_offset, now_ms)
        if self.state is not None:
            self._adopt_state(self.state.log)

    def making_room(self, act: Callable[[], object]) -> None:
        """Do what makes room on the disk, which takes some itself: on a full one that of
        the reserve."""
        try:
            act()
        except DiskFull:
            if not self._on_full():
                raise
            act()

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop everything at and above `offset`, which no leader has confirmed. Where another
        node leads, what is said about the rest is its business."""
        self._producer_note.cut(offset)
        self.log.truncate_to(offset)
        end = self.log.end_offset
        self.high_watermark = min(self.high_watermark, end)
        self.records.forget()
        if self.is_led_elsewhere:
            if self.scanner is not None:
                self.scanner.on_truncated()
            return
        self._stability.truncate_to(end, self._producer_note.load())
        if self.dedup is not None:
            self.dedup.truncate_to(end)
        if self.scanner is not None:
            self.scanner.on_truncated()
        for view in self.views.values():
            view.truncate_to(end)
        self._outlived = {offset for offset in self._outlived if offset < end}
        if self.scanner is not None:
            self._load_due()
        if self.state is not None:
            self.state.append_turn(events.Cut(end), self.epoch, now_ms)

    # Appending.

    def append(
        self, batch: bytearray | memoryview, header: BatchHeader, now_ms: int, contents: Found = ()
    ) -> Appended:
        """One checked batch, or several of one producer in sequence, with the header of
        the first and what is known of each. A duplicate, of several the first, is answered
        with its offset and not written. A first transactional batch opens a transaction."""
        self.check_leading()
        if header.producer_id >= 0:
            duplicate = self.producers.check(header, now_ms)
            if duplicate is not None:
                return Appended(duplicate.first_offset, duplicate.last_offset + 1, True)
        known = known_of(contents, self.scanner, self.dedup)
        if self.dedup is not None and not known:
            check_readable(batch)
        first, end = self.log.append(batch, self.epoch, now_ms)
        self.arrivals.note(first, header.first_timestamp_ms, now_ms)
        if header.producer_id >= 0 or self.dedup is not None or self.scanner is not None:
            view = memoryview(batch)
            for (position, each), found in zip_longest(split_batches(batch), known):
                piece = view[position : position + each.size_bytes]
                self._note_appended(piece, each, now_ms, found)
        if not self.is_durable:
            self._advance(now_ms)
        return Appended(first, end, False)

    def _note_appended(
        self, batch: memoryview, header: BatchHeader, now_ms: int, contents: Contents | None
    ) -> None:
        if header.producer_id >= 0:
            self.producers.on_append(header, header.base_offset, now_ms)
        if self.dedup is not None:
            remember_ids(self.dedup, self._stability, batch, header, contents)
        if self.scanner is not None:
            self.scanner.scan(batch, header, contents)

    # Transactions.

    @property
    def producers(self) -> ProducerState:
        return self._stability.producers

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        now_ms: int,
    ) -> Appended:
        """Write the marker that decides the producer's open transaction here, acks
        included. It counts once it is safe, in both logs. One with nothing left to
        decide is a duplicate: wait for its end. FencedProducer, FencedCoordinator
        when a later epoch was here."""
        self.check_leading()
        is_news = self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        kind = ControlKind.COMMIT if commit else ControlKind.ABORT
        marker = ControlMarker(kind, -1, now_ms, producer_id, producer_epoch, coordinator_epoch)
        state_end = decide_held(self, marker)
        if not is_news or (state_end and not self.producers.is_known(producer_id)):
            # Of a transaction that only acked here, the data log hears nothing.
            end = self.log.end_offset
            return Appended(end, end, True, state_end)
        batch = self._stability.write_marker(marker, self.epoch, self._on_full)
        header = read_header(batch)
        if self.scanner is not None:
            self.scanner.scan(batch, header)
        if not self.is_durable:
            self._advance(now_ms)
        return Appended(header.base_offset, header.next_offset, False, state_end)

    @property
    def last_stable_offset(self) -> int:
        """Everything below is decided, and safe."""
        return self._stability.last_stable_offset(self.high_watermark)

    def open_transactions(self) -> list[OpenTransaction]:
        """Those that no marker has decided, the oldest first."""
        return self.producers.open_transactions()

    def aborted_between(self, first: int, end: int) -> list[AbortedTransaction]:
        """Every aborted transaction that may have records in this range, which lies
        below the last stable offset."""
        return self.log.aborted.between(first, end)

    def _advance(self, now_ms: int) -> None:
        """Move the high watermark up to what is safe, and show it to the views."""
        safe = self.safe_end()
        if safe > self.high_watermark:
            self._move_up(safe, now_ms)

    def _move_up(self, end: int, now_ms: int) -> None:
        self.high_watermark = end
        self._stability.on_high_watermark(end)
        self.show(now_ms)

    def show(self, now_ms: int) -> None:
        """Let every queue group see as far as it may."""
        if self.scanner is not None:
            end, stable = self.high_watermark, self.last_stable_offset
            self.scanner.show(self.views.values(), end, stable, now_ms)

    def on_synced(self, now_ms: int) -> None:
        """Some of the partition's files were synced, or others confirmed more. Where another
        node leads, that one says what counts."""
        if self.is_led_elsewhere:
            return
        if self.is_leader:
            self._advance(now_ms)
        state = self.state
        if state is not None:
            while state.waiting and state.waiting[0].end <= self.state_high_watermark:
                _, view, event = state.waiting.popleft()
                view.apply(event)
            state.on_synced()
        with contextlib.suppress(OSError, DiskFull):
            # Only saves work at the next open, so a full disk may prevent it.
            if self.scanner is not None:
                self.scanner.on_synced()
            self._producer_note.write_if_due(self.producers)
            self.snapshot(now_ms)

    # State.

    def write(self, view: QueueView, event: events.MessageEvent, now_ms: int, *, wait: bool) -> int:
        """Append an event; it is applied once it is safe, or at once when nobody
        waits for it. Returns the end of the state log behind it."""
        return self.write_all([(view, event)], now_ms, wait=wait)

    def write_all(
        self,
        changes: Sequence[tuple[QueueView, events.MessageEvent]],
        now_ms: int,
        *,
        wait: bool,
    ) -> int:
        state = self.open_state(now_ms)
        end = state.append([event for _, event in changes], self.epoch, now_ms)
        for view, event in changes:
            if wait:
                self.apply_when_safe(end, view, event)
            else:
                view.apply(event)
        return end

    def apply_when_safe(self, end: int, view: QueueView, event: events.MessageEvent) -> None:
        """The event is in the state log, up to `end`; nobody else gets the messages."""
        if self.is_awaited:
            view.reserve(event.runs)
            self.open_state(event.at).waiting.append(Waiting(end, view, event))
        else:
            view.apply(event)

    def open_view(self, view: QueueView, start: int, now_ms: int) -> None:
        """A queue group begins to read here. Lasting once the state log is synced."""
        state = self.open_state(now_ms)
        scanner = self.open_scanner()
        state.append_turn(events.Opened(view.group_id, start, now_ms), self.epoch, now_ms)
        self.views[view.group_id] = view
        end = self.last_stable_offset if view.is_committed else self.high_watermark
        scanner.catch_up([view], end, now_ms)
        self._load_due()

    def close_view(self, group_id: int, now_ms: int) -> None:
        self.check_here()
        if self.views.pop(group_id, None) is not None and self.state is not None:
            self.state.waiting = deque(
                waiting for waiting in self.state.waiting if waiting.view.group_id != group_id
            )
            self.state.append_turn(events.Closed(group_id), self.epoch, now_ms)

    def snapshot(self, now_ms: int, *, force: bool = False) -> None:
        """Write the whole state down when enough has changed since the last time."""
        if self.state is None or self.is_led_elsewhere:
            return
        if force or self.state.is_snapshot_due():
            parts = parts_of(self.views.values(), self.scanner, now_ms)
            self.state.write_snapshot(parts, self.epoch, now_ms)

    def open_state(self, now_ms: int) -> StateLog:
        """The state log, to be written to; made now if nobody needed one before."""
        if self.is_led_elsewhere:
            raise self.not_led()
        if self.queues_stopped is not None:
            raise self.queues_stopped.without_frames()
        if self.state is None:
            log = Log.open(
                self.disk, f"{self.path}/state", LogSettings(retention_ms=None), now_ms,
                read_only=self.read_only,
            )  # fmt: skip
            return self._adopt_state(log)
        return self.state

    def _adopt_state(self, log: Log) -> StateLog:
        self.state = StateLog(log, self._on_full, lambda: self.log.end_offset)
        self.state.is_followed = self._is_traced
        return self.state

    @property
    def _is_traced(self) -> bool:
        return self.topic.settings.trace_sample is not None and not self.topic.is_internal

    # Time.

    def end_delays(self, now_ms: int) -> None:
        """Delayed messages whose time has come can be had, and lives that are over end
        with the next call of `expired`."""
        if self.scanner is None:
            return
        due, outlived = self.scanner.pop_due(now_ms)
        self._outlived.update(outlived)
        if due:
            for view in self.views.values():
                view.on_due(due)

    def expired(self) -> dict[int, list[int]]:
        """The offsets, by group, whose TTL is over and that nobody holds."""
        if not self._outlived:
            return {}
        found, self._outlived = divide_outlived(self.views, self._outlived)
        return found

    def next_due_ms(self, group_id: int) -> int | None:
        """When time alone may make something ready for this group."""
        view = self.views.get(group_id)
        if view is None or self.scanner is None:
            return None
        dues = (self.scanner.next_due_ms(), view.next_due_ms())
        return min((due for due in dues if due is not None), default=None)

    # Reading.

    def read(self, runs: Runs) -> list[Record]:
        """Whatever is there, also of transactions that are open or were aborted."""
        return self.records.read(runs, self.high_watermark)

    def read_committed(self, runs: Runs) -> list[Record]:
        """The same without what is undecided or aborted."""
        end = self.last_stable_offset
        runs = below(runs, end)
        if not runs:
            return []
        return self.records.read(runs, end, self.aborted_between(runs[0], runs[-1]))

    def know_attributes(self) -> Scanner:
        """The scanner; made now if nobody needed one before."""
        if self.scanner is None:
            self.open_scanner()
            self._load_due()
        assert self.scanner is not None
        return self.scanner

    def open_scanner(self, scans: Sequence[Scan] = ()) -> Scanner:
        if self.scanner is None:
            self.scanner = Scanner(
                self.disk, self.log, read_only=self.read_only, unreadable=self.records.unreadable,
                has_attributes=self.topic.source_id is None,
                by_key=self.topic.settings.ordering == "key",
                opened_ms=self._opened[0], opened_end=self._opened[1], scans=scans,
            )  # fmt: skip
        return self.scanner

    def _load_due(self) -> None:
        assert self.scanner is not None
        starts = [view.window.start for view in self.views.values()]
        start = min(starts, default=self.log.start_offset)
        self.scanner.load_due(start, self.high_watermark)

    # Deduplication.

    def find_duplicate(self, dedup_id: bytes, now_ms: int, producer_id: int = -1) -> int | None:
        """Where this id was published lately. What is in a transaction counts for
        its own producer, and once it is committed for everybody."""
        if self.dedup is None:
            return None
        return find_duplicate(self.dedup, self._stability, dedup_id, now_ms, producer_id)

    # Changes from outside, and the end.

    def on_topic_changed(self, topic: Topic, now_ms: int) -> None:
        before, after = self.topic.settings, topic.settings
        self.topic = topic
        self.log.settings = LogSettings.of(after)
        if self.state is not None:
            self.state.is_followed = self._is_traced
        is_longer = after.dedup and after.dedup_window_ms != before.dedup_window_ms
        if after.dedup != before.dedup or is_longer:
            self.dedup = load_window(self.log, self.topic.settings, now_ms)

    def on_start_moved(self) -> None:
        """Records were deleted at the log's start: nobody owes them any more."""
        for view in self.views.values():
            view.forget_below(self.log.start_offset)
        if self.scanner is not None:
            self.scanner.on_start_moved()
        self.records.forget()

    def close(self) -> None:
        if not self.read_only and not self.is_led_elsewhere:
            if self.scanner is not None:
                self.scanner.close()
            self._producer_note.write(self.producers)
        self.close_files()

    def close_files(self) -> None:
        self.log.close()
        if self.state is not None:
            self.state.log.close()
