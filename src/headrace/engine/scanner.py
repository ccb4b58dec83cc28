"""The scanner: shows queue groups what lies in a partition's log.

Every batch is looked at once, when it is appended or when the first queue group
comes. What is found goes to the sidecar, to the two lists of due times (ends of
delays and of lives), and to the views of all groups, which never see anything above
the high watermark. A partition without queue groups has no scanner at all.

    appended     high watermark     last stable offset
    | hidden     | held back        | shown to all
                 | shown to groups that read what is not committed

To a group that reads committed messages, the offsets of an aborted transaction hold
none.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from headrace.core.ports import Buffer, Disk
from headrace.core.steps import Steps, run_to_end
from headrace.engine.contents import Contents
from headrace.engine.due import DueTimes
from headrace.engine.lane import LANE_COUNT
from headrace.engine.queue import QueueView
from headrace.engine.records import iterate_batches
from headrace.engine.runs import Runs, offsets_of, pairs
from headrace.engine.scan import Row, Scan, row_of, scan_batch
from headrace.engine.sidecar import Damaged, Sidecar
from headrace.engine.unreadable import Unreadable
from headrace.engine.window import ABSENT, CANCELLED, DELAYED, READY, is_done
from headrace.log import Log
from headrace.log.aborted import covers
from headrace.record import BatchHeader, Record, read_attributes, read_header

NORMAL = 2
# Batches that wait in memory for a transaction to end. Beyond it they are found again
# in the sidecar.
HELD_BACK_MAX = 10_000


class Wish(NamedTuple):
    """What a message asks for instead of its group's settings; 0 for nothing."""

    max_attempts: int
    visibility_ms: int


# Start, end, lane and state of offsets that are not simply ready.
_Special = tuple[int, int, int, int]


class Scanner:
    def __init__(
        self,
        disk: Disk,
        log: Log,
        *,
        read_only: bool,
        has_attributes: bool,
        by_key: bool,
        unreadable: Unreadable,
        opened_ms: int,
        opened_end: int,
        scans: Sequence[Scan] = (),
    ) -> None:
        """`opened_ms` and `opened_end` are the time and the log's end when the log was
        opened; `scans` are what is known of the log from its start on."""
        self._log = log
        self._unreadable = unreadable
        self._opened_ms = opened_ms
        self._opened_end = opened_end
        self._has_attributes = has_attributes
        self._by_key = by_key
        # Ends of delays, moments on the calendar, ends of lives.
        self.delays = DueTimes()
        self.scheduled = DueTimes()
        self.expiries = DueTimes()
        # Whether anything was ever to wait here, as far as this process knows.
        self.has_delays = False
        # What became of delayed messages since this process opened them.
        self.delays_ended: Counter[str] = Counter()
        # By how much durations of what lies below an offset were moved.
        self._moved: list[tuple[int, int]] = []
        # Delayed messages that were called off, for groups still to come.
        self.cancelled: set[int] = set()
        # Few messages have any, so this stays small.
        self._wishes: dict[int, Wish] = {}
        # What was appended and has not been shown yet.
        self._hidden: list[Scan] = []
        # What has been shown to some, and waits for the last stable offset.
        self._held_back: list[Scan] = []
        self._sidecar = Sidecar(disk, f"{log.path}/attributes", read_only=read_only)
        if self._sidecar.is_empty or not (log.start_offset <= self._sidecar.end <= log.synced_end):
            self._sidecar.begin(log.start_offset)
            for scan in scans:
                self._sidecar.add(scan)
                self._hidden.append(scan)
        self._scan_log()

    @property
    def log_start(self) -> int:
        """The first offset that the log still has."""
        return self._log.start_offset

    # Looking.

    @property
    def looks_for(self) -> tuple[bool, bool]:
        """Whether for attributes, and for keys."""
        return self._has_attributes, self._by_key

    def scan(self, batch: Buffer, header: BatchHeader, contents: Contents | None = None) -> None:
        """A batch was appended; `contents` are known where somebody has looked."""
        if contents is not None and self._sidecar.end == header.base_offset:
            scan = contents.scan(header)
            if contents.fault:
                self._unreadable.note(header.base_offset, header.next_offset, contents.fault)
        else:
            scan = scan_batch(
                batch,
                header,
                self._sidecar.end,
                attributes=self._has_attributes,
                keys=self._by_key,
                unreadable=self._unreadable,
            )
        self._sidecar.add(scan)
        self._hidden.append(scan)

    def _scan_log(self) -> None:
        """Look at what the sidecar does not know yet."""
        start = max(self._sidecar.end, self._log.start_offset)
        for data, position in iterate_batches(self._log, start, self._log.end_offset):
            header = read_header(data, position)
            if header.next_offset > self._sidecar.end:
                self.scan(data[position : position + header.size_bytes], header)
        self._sidecar.on_synced(self._log.synced_end)

    def rescan(self) -> None:
        """Forget what is known and look at the whole log again."""
        self._hidden = []
        self._held_back = []
        self._sidecar.begin(self._log.start_offset)
        self._scan_log()

    # Showing.

    def show(self, views: Collection[QueueView], end: int, stable: int, now_ms: int) -> None:
        """The high watermark has moved up to `end`, the last stable offset to
        `stable`, or a group reads otherwise than before."""
        shown = 0
        for scan in self._hidden:
            if scan.end > end:
                break
            self._note_due(scan.rows)
            shown += 1
        self._held_back += self._hidden[:shown]
        del self._hidden[:shown]
        early = [view for view in views if not view.is_committed]
        if early:
            self._show_held_back(early, end, now_ms)
        if len(early) < len(views):
            late = [view for view in views if view.is_committed] if early else views
            self._show_held_back(late, stable, now_ms)
        done = 0
        while done < len(self._held_back) and self._held_back[done].end <= stable:
            done += 1
        del self._held_back[:done]
        if len(self._held_back) > HELD_BACK_MAX:
            self._held_back = []

    def _show_held_back(self, views: Collection[QueueView], end: int, now_ms: int) -> None:
        if not self._held_back:
            self.catch_up(views, end, now_ms)
            return
        first = min(end, self._held_back[0].start)
        behind = [view for view in views if view.window.end < first]
        if behind:
            self.catch_up(behind, first, now_ms)
        for scan in self._held_back:
            if scan.start >= end:
                break
            self._extend_all(scan, views, end, now_ms)

    def catch_up(self, views: Collection[QueueView], end: int, now_ms: int) -> None:
        """Views that are behind see everything up to `end`."""
        for view in views:
            gone = min(self._log.start_offset, end) - view.window.end
            if gone > 0:
                # What the log does not have any more may still be spoken of.
                view.extend(gone, NORMAL, ABSENT, None)
        start = min((view.window.end for view in views), default=end)
        if start >= end:
            return
        if self._by_key:
            run_to_end(self._catch_up_from_log(views, start, end, now_ms))
            return
        try:
            for scan in self._sidecar.scans(max(start, self._log.start_offset)):
                self._extend_all(scan, views, end, now_ms)
        except Damaged:
            self.rescan()
            self.catch_up(views, end, now_ms)

    def catching_up(self, views: Collection[QueueView], end: int, now_ms: int) -> Steps[None]:
        """As `catch_up`, in steps of a batch, where the order is that of keys. The log may
        grow meanwhile, and nothing else."""
        start = min((view.window.end for view in views), default=end)
        yield from self._catch_up_from_log(views, start, end, now_ms)

    def _catch_up_from_log(
        self, views: Collection[QueueView], start: int, end: int, now_ms: int
    ) -> Steps[None]:
        """The sidecar does not keep keys, so an order of keys needs the records."""
        there = max(start, self._log.start_offset)
        for data, position in iterate_batches(self._log, there, end):
            header = read_header(data, position)
            batch = data[position : position + header.size_bytes]
            first = min(start, header.base_offset)
            scan = scan_batch(
                batch,
                header,
                first,
                attributes=self._has_attributes,
                keys=True,
                unreadable=self._unreadable,
            )
            start = scan.end
            self._extend_all(scan, views, end, now_ms)
            yield

    def load_due(self, start: int, end: int) -> None:
        """Due times of everything between the two, from the sidecar."""
        self.delays.clear()
        self.scheduled.clear()
        self.expiries.clear()
        # What is hidden is noted when it is shown, and only that is: what was there before
        # is noted now, also where it is not safe yet.
        known = max(end, self._hidden[0].start if self._hidden else self._sidecar.end)
        try:
            for scan in self._sidecar.scans(max(start, self._log.start_offset)):
                if scan.end <= known:
                    self._note_due([row for row in scan.rows if row.end > start])
        except Damaged:
            self.rescan()
            self.load_due(start, end)
        self._hidden = [scan for scan in self._hidden if scan.end > end]
        self._held_back = []

    def _note_due(self, rows: Sequence[Row]) -> None:
        if not rows:
            return
        delays, delayed = array("q"), array("q")
        moments, scheduled = array("q"), array("q")
        lives, living = array("q"), array("q")
        for row in rows:
            start, end = row.start, row.end
            if row.max_attempts or row.visibility_ms:
                wish = Wish(row.max_attempts, row.visibility_ms)
                self._wishes.update(dict.fromkeys(range(start, end), wish))
            if row.delay_ms:
                due_ms = self.due_ms(start, row.deliver_at_ms, row.delay_ms)
                _repeat(due_ms, delays, start, end, delayed)
            elif row.deliver_at_ms > 0:
                _repeat(row.deliver_at_ms, moments, start, end, scheduled)
            if row.expires_at_ms > 0:
                ends_ms = self._moved_to(start, row.expires_at_ms, row.ttl_ms)
                _repeat(ends_ms, lives, start, end, living)
        self.has_delays |= bool(delays or moments)
        if delays:
            self.delays.add_many(delays, delayed)
        if moments:
            self.scheduled.add_many(moments, scheduled)
        if lives:
            self.expiries.add_many(lives, living)

    def note_revived(self, records: Iterable[Record]) -> None:
        """What these ask for, and when their lives end, may have been forgotten, since
        every group was done with them. Their delays are over."""
        self._note_due(
            [
                row_of(
                    record.offset, read_attributes(record.headers, record.timestamp_ms)
                )._replace(deliver_at_ms=0, delay_ms=0)
                for record in records
            ]
        )

    # Time.

    def expires_at_ms(self, record: Record) -> int | None:
        """When its TTL is over, by the clock as it is set now; None for never."""
        found = read_attributes(record.headers, record.timestamp_ms)
        if found.expires_at_ms <= 0:
            return None
        return self._moved_to(record.offset, found.expires_at_ms, found.ttl_ms)

    def due_ms(self, offset: int, deliver_at_ms: int, delay_ms: int) -> int:
        """When a message comes, by the clock as it is set now."""
        if not delay_ms:
            return deliver_at_ms
        return self._moved_to(offset, deliver_at_ms, delay_ms)

    def _moved_to(self, offset: int, ends_ms: int, lasts_ms: int) -> int:
        """When something of this message ends that lasts so long, by the clock as it is
        set now. What began before the log was opened lasts no longer from then on than it
        was to last in all: the clock may have been ahead when it was published."""
        if lasts_ms and offset < self._opened_end:
            ends_ms = min(ends_ms, self._opened_ms + lasts_ms)
        return ends_ms + sum(by_ms for end, by_ms in self._moved if offset < end)

    def on_clock_set(self, by_ms: int) -> None:
        end = self._sidecar.end
        if self._moved and self._moved[-1][0] == end:
            by_all_ms = self._moved.pop()[1] + by_ms
        else:
            by_all_ms = by_ms
        self._moved.append((end, by_all_ms))
        self.delays.shift(by_ms)
        self.expiries.shift(by_ms)

    def pop_due(self, now_ms: int) -> tuple[list[int], list[int]]:
        """Messages whose delay is over or whose moment has come, and those whose lives
        are over. Of a message that did not live to see its moment only the latter is said,
        also when nobody has asked since before."""
        lives = self.expiries.pop_due_times(now_ms)
        if not lives:
            return self.delays.pop_due(now_ms) + self.scheduled.pop_due(now_ms), []
        ended_ms = {offset: ends_ms for ends_ms, offset in lives}
        dues = self.delays.pop_due_times(now_ms) + self.scheduled.pop_due_times(now_ms)
        due = [each for due_ms, each in dues if ended_ms.get(each, due_ms + 1) > due_ms]
        return due, list(ended_ms)

    def next_due_ms(self) -> int | None:
        """When time alone changes something here."""
        tables = (self.delays, self.scheduled, self.expiries)
        dues = (each.next_due_ms() for each in tables)
        return min((due for due in dues if due is not None), default=None)

    def after(self, due_ms: int, offset: int, limit: int) -> list[tuple[int, int]]:
        """The first `limit` delayed messages behind this one, in order."""
        found = self.delays.after(due_ms, offset, limit)
        return sorted(found + self.scheduled.after(due_ms, offset, limit))[:limit]

    def _extend_all(self, scan: Scan, views: Collection[QueueView], end: int, now_ms: int) -> None:
        end = min(scan.end, end)
        for view in views:
            if view.window.end < end:
                self._extend(view, scan, end, now_ms)

    def _extend(self, view: QueueView, scan: Scan, end: int, now_ms: int) -> None:
        """Show one view what a scan found, up to `end`."""
        for start, stop, lane, state in self._special(view, scan, now_ms):
            _extend_run(view, scan, min(start, end), NORMAL, READY)
            _extend_run(view, scan, min(stop, end), lane, state)
        _extend_run(view, scan, end, NORMAL, READY)

    def _special(self, view: QueueView, scan: Scan, now_ms: int) -> list[_Special]:
        if not (scan.rows or scan.absent or self.cancelled or scan.transactional):
            return []
        special = [(start, stop, NORMAL, ABSENT) for start, stop in pairs(scan.absent)]
        for row in scan.rows:
            if row.redrive_group is not None and row.redrive_group != view.name:
                state = ABSENT
            else:
                due_ms = self.due_ms(row.start, row.deliver_at_ms, row.delay_ms)
                state = DELAYED if due_ms > now_ms else READY
            lane = min(row.lane, LANE_COUNT - 1)
            if special and special[-1][1:] == (row.start, lane, state):
                # Neighbours mostly differ in nothing but their due times.
                special[-1] = (special[-1][0], row.end, lane, state)
            else:
                special.append((row.start, row.end, lane, state))
        void = self._void_in(scan) if scan.transactional and view.is_committed else []
        if void:
            special = _outside(special, void)
            special += [(start, stop, NORMAL, ABSENT) for start, stop in void]
        special.sort()
        cancelled = [offset for offset in self.cancelled if scan.start <= offset < scan.end]
        return _without(special, sorted(cancelled)) if cancelled else special

    def _void_in(self, scan: Scan) -> list[tuple[int, int]]:
        """What belongs to aborted transactions. All of it is decided."""
        aborted = self._log.aborted.between(scan.start, scan.end)
        if not aborted:
            return []
        return [
            (start, end)
            for start, end, producer_id in scan.transactional
            if covers(aborted, producer_id, start)
        ]

    def wishes_in(self, runs: Runs) -> dict[int, Wish]:
        """The messages of these runs that ask for something of their own."""
        if not self._wishes:
            return {}
        return {o: self._wishes[o] for o in offsets_of(runs) if o in self._wishes}

    # Keeping up with the log.

    def on_synced(self) -> None:
        self._sidecar.on_synced(self._log.synced_end)

    def forget_wishes(self, below: int) -> None:
        """Everybody is done with what lies below."""
        if self._wishes:
            self._wishes = {o: wish for o, wish in self._wishes.items() if o >= below}

    def on_start_moved(self) -> None:
        self._sidecar.delete_before(self._log.start_offset)
        start = self._log.start_offset
        self.cancelled = {offset for offset in self.cancelled if offset >= start}
        self._moved = [(end, by_ms) for end, by_ms in self._moved if end > start]

    def on_truncated(self) -> None:
        end = self._log.end_offset
        self.cancelled = {offset for offset in self.cancelled if offset < end}
        if self._sidecar.end > end:
            self.rescan()

    def close(self) -> None:
        self.on_synced()
        self._sidecar.flush()


def _repeat(due_ms: int, dues: array[int], start: int, end: int, offsets: array[int]) -> None:
    """One due time for each offset of a run, which is mostly a single one."""
    if end - start == 1:
        dues.append(due_ms)
        offsets.append(start)
    else:
        dues.extend(array("q", (due_ms,)) * (end - start))
        offsets.extend(range(start, end))


def _extend_run(view: QueueView, scan: Scan, end: int, lane: int, state: int) -> None:
    start = view.window.end
    if end > start:
        keys = None if scan.keys is None else scan.keys[start - scan.start : end - scan.start]
        view.extend(end - start, lane, state, keys)
        if is_done(state) and view.window.start == start:
            # Nobody will ever settle what holds no message.
            view.window.advance()


def _outside(special: list[_Special], void: list[tuple[int, int]]) -> list[_Special]:
    """The parts that lie in none of these ascending runs."""
    for first, last in void:
        kept: list[_Special] = []
        for start, stop, lane, state in special:
            if start < min(stop, first):
                kept.append((start, min(stop, first), lane, state))
            if max(start, last) < stop:
                kept.append((max(start, last), stop, lane, state))
        special = kept
    return special


def _without(special: list[_Special], cancelled: list[int]) -> list[_Special]:
    """The same with single offsets cut out and cancelled instead."""
    cut: list[_Special] = []
    waiting = list(reversed(special))
    for offset in cancelled:
        while waiting and waiting[-1][1] <= offset:
            cut.append(waiting.pop())
        if waiting and waiting[-1][0] <= offset:
            start, stop, lane, state = waiting.pop()
            if start < offset:
                cut.append((start, offset, lane, state))
            if stop > offset + 1:
                waiting.append((offset + 1, stop, lane, state))
        cut.append((offset, offset + 1, NORMAL, CANCELLED))
    return cut + waiting[::-1]
