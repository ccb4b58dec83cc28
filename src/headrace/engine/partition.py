"""The partition: one ordered log, and everything that is said about it.

    log          the records                      <partition>/
    state log    what queue groups did with them  <partition>/state/
    sidecar      their queue attributes           <partition>/attributes/

It is driven by leadership: `become_leader`, `append`, `on_synced`, `truncate_to`,
`resign`. Three numbers say how far it is: the log's end, its synced end, and the
high watermark, above which nothing is readable or leasable. Alone, the high
watermark is the synced end, or the log's end where the topic's durability does
not wait for the disk.

Order of effects: validate, append, sync, then apply and answer.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from headrace.core.errors import CorruptLog, FencedLeader
from headrace.core.limits import DEDUP_IDS_PER_PARTITION_MAX
from headrace.core.ports import Disk
from headrace.engine import state as events
from headrace.engine.catalog import Group, Topic
from headrace.engine.dedup import DedupWindow
from headrace.engine.due import DueTimes
from headrace.engine.lane import LANE_COUNT
from headrace.engine.producer import ProducerState
from headrace.engine.queue import QueueView
from headrace.engine.records import RecordReader, iterate_batches
from headrace.engine.runs import Runs, offsets_of, pairs, runs_of
from headrace.engine.scan import Row, Scan, scan_batch
from headrace.engine.sidecar import Damaged, Sidecar
from headrace.engine.state_log import StateLog, Waiting
from headrace.engine.window import ABSENT, CANCELLED, DELAYED, READY
from headrace.log import Log, LogSettings
from headrace.record import BatchHeader, Record, read_attributes, read_header, read_records

NORMAL = 2
# How much is appended between two notes of the producers' state: what an open
# after a crash has to walk at most.
PRODUCERS_BYTES = 8 * 1024 * 1024
_PRODUCERS_FILE = "producers"


class Appended(NamedTuple):
    first_offset: int
    next_offset: int
    duplicate: bool


class Partition:
    def __init__(
        self,
        disk: Disk,
        topic: Topic,
        index: int,
        now_ms: int,
        *,
        read_only: bool = False,
    ) -> None:
        self.disk = disk
        self.topic = topic
        self.index = index
        self.read_only = read_only
        self.path = f"{topic.folder}/{index}"
        self.epoch = 0
        self.is_leader = False
        self.log = Log.open(
            disk, self.path, LogSettings.of(topic.settings), now_ms, read_only=read_only
        )
        self.records = RecordReader(self.log)
        self.state: StateLog | None = None
        self.views: dict[int, QueueView] = {}
        self.delays = DueTimes()
        self.expiries = DueTimes()
        self.cancelled: set[int] = set()
        self.producers = ProducerState()
        self.dedup: DedupWindow | None = None
        self.high_watermark = self._safe_end()
        self._sidecar: Sidecar | None = None
        # Scans of what was appended and is not below the high watermark yet.
        self._scanned: list[Scan] = []
        self._producers_noted = 0
        # Why nothing can be done here any more: its data has rotted.
        self.stopped: CorruptLog | None = None

    # Opening and leadership.

    def load(self, groups: Mapping[int, Group], now_ms: int) -> None:
        """Bring back everything that is derived from the files."""
        if self.disk.list(f"{self.path}/state"):
            self._open_state(now_ms)
            self._replay(groups, now_ms)
        if self.views or self.disk.list(f"{self.path}/attributes"):
            self._start_scanning(now_ms)
        self._load_producers()
        self._load_dedup(now_ms)

    def become_leader(self, epoch: int, now_ms: int, *, end_leases: bool) -> dict[int, list[int]]:
        """Take appends in this epoch. With `end_leases` nobody can still hold
        what was leased before: it is ready again, and what is out of attempts is
        returned by group, for the broker to move."""
        if epoch < self.epoch:
            raise FencedLeader(f"{self.path} is in epoch {self.epoch} already")
        self.epoch = epoch
        self.is_leader = True
        exhausted: dict[int, list[int]] = {}
        if end_leases:
            for view in self.views.values():
                spent = self._end_leases(view, now_ms)
                if spent:
                    exhausted[view.group_id] = spent
        return exhausted

    def resign(self) -> None:
        self.is_leader = False

    def _end_leases(self, view: QueueView, now_ms: int) -> list[int]:
        leased = sorted(view.leased_by())
        if not leased:
            return []
        spent: list[int] = []
        ended: list[int] = []
        # Maxima of single messages went with the process: they are in the records.
        maxima = {
            record.offset: read_attributes(record.headers, record.timestamp_ms).max_attempts
            for record in self.read(runs_of(leased))
        }
        for offset in leased:
            most = maxima.get(offset) or view.settings.max_attempts
            (spent if view.window.attempts_at(offset) >= most else ended).append(offset)
        if ended:
            event = events.LeaseEnded(view.group_id, now_ms, runs_of(ended))
            self.write(view, event, now_ms, wait=False)
        return spent

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop everything at and above `offset`, which no leader has confirmed."""
        self.log.truncate_to(offset)
        end = self.log.end_offset
        self.high_watermark = min(self.high_watermark, end)
        self.records.forget()
        self.producers.truncate_to(end)
        self._scanned = []
        if self.dedup is not None:
            self.dedup.truncate_to(end)
        if self._sidecar is not None and self._sidecar.end > end:
            self._sidecar.begin(self.log.start_offset)
            self._scan_to(end)
        if self.state is not None:
            self.state.append([events.Cut(end)], self.epoch, now_ms)
        self._cut_views(end, now_ms)

    # Appending.

    @property
    def is_durable(self) -> bool:
        return self.topic.settings.durability == "synced"

    def append(self, batch: bytearray, header: BatchHeader, now_ms: int) -> Appended:
        """One checked batch. A duplicate of an idempotent producer's is answered
        with its first offset and not written."""
        if not self.is_leader:
            raise FencedLeader(f"{self.path} has no leader here")
        if self.stopped is not None:
            raise self.stopped
        if header.producer_id >= 0:
            duplicate = self.producers.check(header, now_ms)
            if duplicate is not None:
                return Appended(duplicate.first_offset, duplicate.last_offset + 1, True)
        first, end = self.log.append(batch, self.epoch, now_ms)
        if header.producer_id >= 0:
            self.producers.on_append(header, first, now_ms)
        if self.dedup is not None:
            self._remember_ids(read_records(batch))
        if self._sidecar is not None:
            self._scan(batch, read_header(batch))
        if not self.is_durable:
            self.advance(now_ms)
        return Appended(first, end, False)

    def find_duplicate(self, dedup_id: bytes, now_ms: int) -> int | None:
        return None if self.dedup is None else self.dedup.find(dedup_id, now_ms)

    def _safe_end(self) -> int:
        return self.log.synced_end if self.is_durable else self.log.end_offset

    def advance(self, now_ms: int) -> None:
        """Move the high watermark up to what is safe, and show it to the views."""
        safe = self._safe_end()
        if safe <= self.high_watermark:
            return
        self.high_watermark = safe
        if self._sidecar is None:
            return
        taken = 0
        for scan in self._scanned:
            if scan.end > safe:
                break
            self._show(scan, self.views.values(), now_ms)
            taken += 1
        del self._scanned[:taken]

    def on_synced(self, now_ms: int) -> None:
        """Some of the partition's files were synced."""
        self.advance(now_ms)
        state = self.state
        if state is not None:
            while state.waiting and state.waiting[0].end <= self.state_end:
                _, view, event = state.waiting.popleft()
                view.apply(event)
            state.on_synced()
        if self._sidecar is not None:
            self._sidecar.on_synced(self.log.synced_end)
        self._note_producers_if_due()

    # State.

    @property
    def state_end(self) -> int:
        """Up to where state events count."""
        if self.state is None:
            return 0
        return self.state.log.synced_end if self.is_durable else self.state.log.end_offset

    def write(
        self, view: QueueView, event: events.GroupEvent, now_ms: int, *, wait: bool
    ) -> int:
        """Append an event; it is applied once it is safe, or at once when nobody
        waits for it. Returns the end of the state log behind it."""
        return self.write_all([(view, event)], now_ms, wait=wait)

    def write_all(
        self, changes: Sequence[tuple[QueueView, events.GroupEvent]], now_ms: int, *, wait: bool
    ) -> int:
        state = self._open_state(now_ms)
        end = state.append([event for _, event in changes], self.epoch, now_ms)
        for view, event in changes:
            if wait and self.is_durable:
                view.reserve(event.runs)  # type: ignore[union-attr]
                state.waiting.append(Waiting(end, view, event))
            else:
                view.apply(event)
        return end

    def open_view(self, group: Group, start: int, now_ms: int) -> QueueView:
        """A queue group begins to read here. Lasting once the state log is synced."""
        self._start_scanning(now_ms)
        state = self._open_state(now_ms)
        state.append([events.Opened(group.id, start, now_ms)], self.epoch, now_ms)
        view = self._make_view(group, start)
        self._catch_up([view], now_ms)
        self._load_due(view.window.start, now_ms)
        return view

    def close_view(self, group_id: int, now_ms: int) -> None:
        if self.views.pop(group_id, None) is not None and self.state is not None:
            self.state.waiting = type(self.state.waiting)(
                waiting for waiting in self.state.waiting if waiting.view.group_id != group_id
            )
            self.state.append([events.Closed(group_id)], self.epoch, now_ms)

    def cancel(self, offset: int, now_ms: int) -> bool:
        """Call a delayed message off, for all groups. False when its time has
        come already, or it is not one."""
        self.start_scanning(now_ms)
        self.tick_delays(now_ms)
        if offset in self.cancelled or not self._is_delayed(offset, now_ms):
            return False
        event = events.Cancelled(now_ms, [offset, offset + 1])
        self._open_state(now_ms).append([event], self.epoch, now_ms)
        self._on_cancelled(event)
        return True

    def _is_delayed(self, offset: int, now_ms: int) -> bool:
        if not self.log.start_offset <= offset < self.high_watermark:
            return False
        found = self.read([offset, offset + 1])
        return bool(found) and self.deliver_at_ms(found[0]) > now_ms

    def deliver_at_ms(self, record: Record) -> int:
        return read_attributes(record.headers, record.timestamp_ms).deliver_at_ms

    def snapshot(self, now_ms: int, *, force: bool = False) -> None:
        state = self.state
        if state is None or not (force or state.is_snapshot_due()):
            return
        start = self.log.start_offset
        self.cancelled = {offset for offset in self.cancelled if offset >= start}
        head = events.SnapshotPartition(now_ms, runs_of(sorted(self.cancelled)))
        parts = chain.from_iterable(view.snapshot() for view in self.views.values())
        state.write_snapshot([head, *parts], self.epoch, now_ms)

    # Time.

    def tick_delays(self, now_ms: int) -> dict[int, list[int]]:
        """Delays that are over and lives that have ended; the offsets, by group,
        whose TTL is over."""
        due = self.delays.pop_due(now_ms) if self.delays else None
        if due:
            for view in self.views.values():
                view.on_due(due)
        if not self.expiries:
            return {}
        expired = self.expiries.pop_due(now_ms)
        if not expired:
            return {}
        found = {group_id: view.expirable(expired) for group_id, view in self.views.items()}
        return {group_id: offsets for group_id, offsets in found.items() if offsets}

    def next_due_ms(self, group_id: int | None) -> int | None:
        dues = [self.delays.next_due_ms(), self.expiries.next_due_ms()]
        view = self.views.get(group_id) if group_id is not None else None
        if view is not None:
            dues.append(view.next_due_ms())
        return min((due for due in dues if due is not None), default=None)

    # Reading.

    def read(self, runs: Runs) -> list[Record]:
        return self.records.read(runs, self.high_watermark)

    # Scanning.

    def start_scanning(self, now_ms: int) -> None:
        """From now on this partition's attributes are known."""
        if self._sidecar is None:
            self._start_scanning(now_ms)
            self._load_due(self.log.start_offset, now_ms)

    def _start_scanning(self, now_ms: int) -> None:
        if self._sidecar is not None:
            return
        self._sidecar = Sidecar(self.disk, f"{self.path}/attributes", read_only=self.read_only)
        start, end = self.log.start_offset, self.log.synced_end
        if self._sidecar.is_empty or not start <= self._sidecar.end <= end:
            self._sidecar.begin(start)
        self._scan_to(self.log.end_offset)
        self._scanned = [scan for scan in self._scanned if scan.end > self.high_watermark]

    def _scan_to(self, end: int) -> None:
        assert self._sidecar is not None
        for data, position in iterate_batches(self.log, self._sidecar.end, end):
            header = read_header(data, position)
            if header.next_offset > self._sidecar.end:
                self._scan(data[position : position + header.size_bytes], header)
        self._sidecar.on_synced(self.log.synced_end)

    def _scan(self, batch: bytes | bytearray | memoryview, header: BatchHeader) -> None:
        assert self._sidecar is not None
        scan = scan_batch(
            batch,
            header,
            self._sidecar.end,
            attributes=self.topic.source_id is None,
            keys=self.topic.settings.ordering == "key",
        )
        self._sidecar.add(scan)
        self._scanned.append(scan)

    def _rescan(self) -> None:
        assert self._sidecar is not None
        self._sidecar.begin(self.log.start_offset)
        self._scan_to(self.log.end_offset)
        self._scanned = [scan for scan in self._scanned if scan.end > self.high_watermark]

    def _catch_up(self, views: Sequence[QueueView], now_ms: int) -> None:
        """Views that are behind see everything up to the high watermark."""
        assert self._sidecar is not None
        start = min((view.window.end for view in views), default=self.high_watermark)
        if start >= self.high_watermark:
            return
        if self.topic.settings.ordering == "key":
            # The sidecar does not keep keys.
            for data, position in iterate_batches(self.log, start, self.high_watermark):
                header = read_header(data, position)
                batch = data[position : position + header.size_bytes]
                scan = scan_batch(batch, header, min(start, header.base_offset),
                                  attributes=self.topic.source_id is None, keys=True)  # fmt: skip
                start = scan.end
                self._extend_all(scan, views, now_ms)
            return
        try:
            for scan in self._sidecar.scans(start):
                self._extend_all(scan, views, now_ms)
        except Damaged:
            self._rescan()
            self._catch_up(views, now_ms)

    def _load_due(self, start: int, now_ms: int) -> None:
        """Due times of everything from `start` on, from the sidecar."""
        assert self._sidecar is not None
        self.delays.clear()
        self.expiries.clear()
        try:
            for scan in self._sidecar.scans(start):
                self._note_due([row for row in scan.rows if row.end > start], now_ms)
        except Damaged:
            self._rescan()
            self._load_due(start, now_ms)

    def _show(self, scan: Scan, views: Sequence[QueueView] | object, now_ms: int) -> None:
        self._note_due(scan.rows, now_ms)
        self._extend_all(scan, list(self.views.values()), now_ms)

    def _note_due(self, rows: Sequence[Row], now_ms: int) -> None:
        if not rows:
            return
        delays, delayed = array("q"), array("q")
        lives, living = array("q"), array("q")
        for row in rows:
            size = row.end - row.start
            if row.deliver_at_ms > 0 and (row.deliver_at_ms > now_ms or self.views):
                delays.extend(array("q", (row.deliver_at_ms,)) * size)
                delayed.extend(range(row.start, row.end))
            if row.expires_at_ms > 0:
                lives.extend(array("q", (row.expires_at_ms,)) * size)
                living.extend(range(row.start, row.end))
        if delays:
            self.delays.add_many(delays, delayed)
        if lives:
            self.expiries.add_many(lives, living)

    def _extend_all(self, scan: Scan, views: Sequence[QueueView], now_ms: int) -> None:
        end = min(scan.end, self.high_watermark)
        for view in views:
            if view.window.end < end:
                self._extend(view, scan, end, now_ms)

    def _extend(self, view: QueueView, scan: Scan, end: int, now_ms: int) -> None:
        """Show a view what a scan found, up to `end`."""
        special: list[tuple[int, int, int, int]] = [
            (start, stop, NORMAL, ABSENT) for start, stop in pairs(scan.absent)
        ]
        for row in scan.rows:
            if row.redrive_group is not None and row.redrive_group != view.name:
                state = ABSENT
            else:
                state = DELAYED if row.deliver_at_ms > now_ms else READY
            special.append((row.start, row.end, min(row.lane, LANE_COUNT - 1), state))
        if self.cancelled:
            special += [
                (offset, offset + 1, NORMAL, CANCELLED)
                for offset in self.cancelled
                if scan.start <= offset < scan.end
            ]
        if len(special) > 1:
            special = _without_overlaps(special)
        for start, stop, lane, state in special:
            if start > view.window.end:
                self._extend_run(view, scan, min(start, end), NORMAL, READY)
            if stop > view.window.end:
                self._extend_run(view, scan, min(stop, end), lane, state)
        if end > view.window.end:
            self._extend_run(view, scan, end, NORMAL, READY)

    def _extend_run(self, view: QueueView, scan: Scan, end: int, lane: int, state: int) -> None:
        start = view.window.end
        if end <= start:
            return
        keys = None if scan.keys is None else scan.keys[start - scan.start : end - scan.start]
        view.extend(end - start, lane, state, keys)

    # Recovery.

    def _open_state(self, now_ms: int) -> StateLog:
        if self.state is None:
            settings = LogSettings(retention_ms=None)
            self.state = StateLog(
                Log.open(
                    self.disk, f"{self.path}/state", settings, now_ms, read_only=self.read_only
                )
            )
        return self.state

    def _make_view(self, group: Group, start: int) -> QueueView:
        view = QueueView(
            group.id, group.name, group.settings, self.topic.settings.ordering, start
        )
        self.views[group.id] = view
        return view

    def _replay(self, groups: Mapping[int, Group], now_ms: int) -> None:
        assert self.state is not None
        beyond = False
        for event in self.state.replay():
            beyond |= self._replay_event(event, groups, now_ms)
        for view in self.views.values():
            beyond |= view.window.end > self.high_watermark
        if beyond:
            # The log lost its unsynced end, and what takes its place is not what
            # these events were about. Nothing may be appended before that is
            # written down for good.
            self._cut_views(self.log.end_offset, now_ms)
            if not self.read_only:
                self.state.append([events.Cut(self.log.end_offset)], self.epoch, now_ms)
                ticket = self.state.log.begin_sync()
                if ticket is not None:
                    for file in ticket.files:
                        file.sync()
                    for directory in ticket.directories:
                        self.disk.sync_directory(directory)
                    self.state.log.on_synced(ticket)
        if self.views:
            self._start_scanning(now_ms)
            self._catch_up(list(self.views.values()), now_ms)
            self._load_due(min(view.window.start for view in self.views.values()), now_ms)

    def _replay_event(
        self, event: events.Event, groups: Mapping[int, Group], now_ms: int
    ) -> bool:
        """Apply one; whether it spoke of offsets that the log does not have."""
        match event:
            case events.SnapshotPartition():
                self.views.clear()
                self.cancelled.clear()
                self._on_cancelled(events.Cancelled(event.at, event.cancelled))
            case events.Cancelled():
                self._on_cancelled(event)
            case events.Cut():
                self._cut_views(event.end, now_ms)
            case events.Closed():
                self.views.pop(event.group, None)
            case events.SnapshotEnd():
                pass
            case events.Opened() | events.SnapshotGroup():
                group = groups.get(event.group)
                if group is not None:
                    self._make_view(group, event.start).apply(event)
            case _:
                view = self.views.get(event.group)
                if view is not None:
                    return self._replay_on(view, event, now_ms)
        return False

    def _replay_on(self, view: QueueView, event: events.GroupEvent, now_ms: int) -> bool:
        runs: Runs | None = getattr(event, "runs", None)
        if not runs:
            view.apply(event)
            return False
        end = runs[-1]
        if end > view.window.end:
            self._start_scanning(now_ms)
            self._catch_up([view], now_ms)
        if end > view.window.end:
            clipped = _clip(event, view.window.end)
            if clipped is not None:
                view.apply(clipped)
            return True
        view.apply(event)
        return False

    def _on_cancelled(self, event: events.Cancelled) -> None:
        self.cancelled.update(offsets_of(event.runs))
        for view in self.views.values():
            view.cancel(event.runs)

    def _cut_views(self, end: int, now_ms: int) -> None:
        for view in self.views.values():
            view.truncate_to(end)
        self.cancelled = {offset for offset in self.cancelled if offset < end}
        if self._sidecar is not None:
            self._catch_up(list(self.views.values()), now_ms)

    # Producers and deduplication.

    def _note_producers_if_due(self) -> None:
        log = self.log
        if (
            log.size_bytes - self._producers_noted >= PRODUCERS_BYTES
            and log.synced_end == log.end_offset
        ):
            self.note_producers()

    def note_producers(self) -> None:
        """Write down what is known of producers, as of the log's synced end. Not
        synced: a note that does not pass its checksum is made from the log."""
        self._producers_noted = self.log.size_bytes
        content = self.log.end_offset.to_bytes(8, "big") + self.producers.encode()
        file = self.disk.open(f"{self.path}/{_PRODUCERS_FILE}", create=True)
        file.truncate(0)
        file.write(crc32c(content).to_bytes(4, "big") + content, 0)
        file.close()

    def _load_producers(self) -> None:
        start = self.log.start_offset
        path = f"{self.path}/{_PRODUCERS_FILE}"
        if self.disk.exists(path):
            file = self.disk.open(path, read_only=True)
            content = file.read(file.size(), 0)
            file.close()
            noted = int.from_bytes(content[4:12], "big")
            if (
                crc32c(content[4:]) == int.from_bytes(content[:4], "big")
                and start <= noted <= self.log.end_offset
            ):
                self.producers = ProducerState.decode(content[12:])
                start = noted
        for data, position in iterate_batches(self.log, start, self.log.end_offset):
            header = read_header(data, position)
            if header.producer_id >= 0 and header.base_offset >= start and not header.is_control:
                self.producers.on_append(header, header.base_offset, header.max_timestamp_ms)
        self._producers_noted = self.log.size_bytes

    def _load_dedup(self, now_ms: int) -> None:
        settings = self.topic.settings
        if not settings.dedup:
            self.dedup = None
            return
        self.dedup = DedupWindow(settings.dedup_window_ms, DEDUP_IDS_PER_PARTITION_MAX)
        found = self.log.offset_for_timestamp(now_ms - settings.dedup_window_ms)
        if found is None:
            return
        for data, position in iterate_batches(self.log, found[0], self.log.end_offset):
            header = read_header(data, position)
            if not header.is_control:
                self._remember_ids(
                    read_records(data[position : position + header.size_bytes], header)
                )

    def _remember_ids(self, records: Sequence[Record]) -> None:
        assert self.dedup is not None
        for record in records:
            if record.headers:
                dedup_id = read_attributes(record.headers, record.timestamp_ms).dedup_id
                if dedup_id is not None:
                    self.dedup.remember(dedup_id, record.offset, record.timestamp_ms)

    # Changes of the catalog, and the end.

    def on_topic_changed(self, topic: Topic, now_ms: int) -> None:
        had_dedup = self.topic.settings.dedup
        self.topic = topic
        self.log.settings = LogSettings.of(topic.settings)
        if topic.settings.dedup != had_dedup:
            self._load_dedup(now_ms)

    def on_start_moved(self) -> None:
        """Records were deleted at the log's start: nobody owes them any more."""
        start = self.log.start_offset
        for view in self.views.values():
            view.window.forget_below(start)
        if self._sidecar is not None:
            self._sidecar.delete_before(start)
        self.records.forget()

    def close(self) -> None:
        if not self.read_only:
            if self._sidecar is not None:
                self._sidecar.on_synced(self.log.synced_end)
                self._sidecar.flush()
            if self.log.end_offset and self.log.synced_end == self.log.end_offset:
                self.note_producers()
        self.log.close()
        if self.state is not None:
            self.state.log.close()


def _clip(event: events.GroupEvent, end: int) -> events.GroupEvent | None:
    """The part of an event that lies below `end`."""
    runs = runs_of(o for o in offsets_of(event.runs) if o < end)  # type: ignore[union-attr]
    if not runs:
        return None
    if isinstance(event, events.Granted):
        count = [
            attempts
            for (start, stop), attempts in zip(pairs(event.runs), event.attempts, strict=True)
            if start < end
        ]
        clipped: Runs = []
        for start, stop in pairs(event.runs):
            if start < end:
                clipped += (start, min(stop, end))
        return msgspec.structs.replace(event, runs=clipped, attempts=count)
    return msgspec.structs.replace(event, runs=runs)


def _without_overlaps(special: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Sorted, and a later state (cancelled, absent) over an earlier one."""
    special.sort(key=lambda item: (item[0], -item[3]))
    kept: list[tuple[int, int, int, int]] = []
    reached = -1
    for start, stop, lane, state in special:
        if state == CANCELLED and kept and kept[-1][1] > start:
            before = kept.pop()
            if before[0] < start:
                kept.append((before[0], start, before[2], before[3]))
            kept.append((start, stop, lane, state))
            if before[1] > stop:
                kept.append((stop, before[1], before[2], before[3]))
        elif stop > reached:
            kept.append((max(start, reached), stop, lane, state))
        reached = max(reached, kept[-1][1])
    return kept
