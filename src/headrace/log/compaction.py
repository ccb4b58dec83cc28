"""Compaction: of the records with one key, the last one stays.

    0. due?   of what may be compacted, more than a part of it is new, or some of it is
              older than it may get, or a tombstone's time is over
    1. map    walk the part that is not compacted yet; digest of key -> last offset
    2. copy   rewrite every sealed segment below the map's end without the records
              that the map supersedes; neighbours that became small are merged
    3. swap   put the new file in the old ones' place (docs/formats/segment.md)

Offsets never change; what is dropped leaves a gap. The map is limited, so a pass
may cover only some of the log; the next one goes on where it ended.

A pass is made of steps. What a step does touches nothing of the log but files of
its own, so it can be done anywhere, also in a thread while the log is in use; what
lies between two steps is short and belongs where the log does.

    log's owner   plan . . . . . . . . . swap . . . . . . swap . . . note the end
    anywhere           map  map  copy sync    copy copy sync

What an aborted transaction wrote supersedes nothing, so records of a transaction
join the map when its commit marker is met. They themselves are dropped by the copy.
A marker stays as long as a batch of its transaction does, and after that as long as
a tombstone: without it that transaction would be open again.

Rejected: comparing keys themselves. Digests of 16 bytes bound the memory whatever
the keys are; that two keys of one log share one has a chance of about 1 in 2^80.
"""

from __future__ import annotations

import contextlib
import hashlib
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from headrace.core import limits
from headrace.core.errors import CorruptBatch
from headrace.core.ports import Buffer, File
from headrace.log.aborted import AbortedTransaction
from headrace.log.checkpoint import (
    NEVER_MS,
    Cleaned,
    read_cleaned,
    sync_file,
    sync_folder,
    write_cleaned,
)
from headrace.log.recovery import CLEANED_SUFFIX, SWAP_SUFFIX, finish_swap
from headrace.log.segment import LOG_SUFFIX, RELATIVE_OFFSET_MAX, Segment, segment_name
from headrace.record.batch import BatchHeader
from headrace.record.builder import build_sparse_batch
from headrace.record.control import ControlKind
from headrace.record.reader import read_control, read_raw_parts, read_raw_records
from headrace.record.record import RawRecord

if TYPE_CHECKING:
    from headrace.log.log import Log
    from headrace.log.settings import LogSettings

_DIGEST_BYTES = 16


class CompactionResult(NamedTuple):
    """What one pass did. `cleaned_end` is where the next one starts; interrupted
    means that segments were deleted or cut under it and it gave up."""

    cleaned_end: int
    bytes_before: int = 0
    bytes_after: int = 0
    records_dropped: int = 0
    interrupted: bool = False


class _KeyMap:
    """The last offset of each key, and what open transactions may add to it."""

    def __init__(self) -> None:
        self.last: dict[bytes, int] = {}
        self._open: dict[int, dict[bytes, int]] = {}
        self._first: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.last) + sum(map(len, self._open.values()))

    def add(self, header: BatchHeader, records: list[RawRecord]) -> None:
        target = self.last
        if header.is_transactional:
            target = self._open.setdefault(header.producer_id, {})
            self._first.setdefault(header.producer_id, header.base_offset)
        for record in records:
            if record.key is not None:
                target[_digest(record.key)] = record.offset

    def end_transaction(self, producer_id: int, kind: ControlKind) -> None:
        pending = self._open.pop(producer_id, {})
        self._first.pop(producer_id, None)
        if kind is ControlKind.COMMIT:
            for digest, offset in pending.items():
                self.last[digest] = max(offset, self.last.get(digest, -1))

    def first_open(self) -> int | None:
        """Where the oldest transaction that did not end here began."""
        return min(self._first.values(), default=None)

    def supersedes(self, record: RawRecord) -> bool:
        return record.key is not None and self.last.get(_digest(record.key), -1) > record.offset


# Goes over at most so many bytes, or one batch; the bytes it went over, or None when
# there is no more to do.
Step = Callable[[int], int | None]
Pass = Generator[Step, int | None, CompactionResult]


def inline(steps: Pass, slice_bytes: int = 1) -> Generator[int, None, CompactionResult]:
    """The same for who does each step at once, and wants to know its bytes."""
    done: int | None = None
    with contextlib.closing(steps):
        while True:
            try:
                step = steps.send(done)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            done = step(slice_bytes)
            if done is not None:
                yield done


def compact(log: Log, now_ms: int, clean_below: int, keys_max: int | None) -> Pass:
    """One pass; see `Log.compaction`."""
    cleaned = read_cleaned(log.disk, log.path)
    limit = min(clean_below, log.synced_end)
    start = max(cleaned.offset, log.start_offset)
    sealed = _compactable(log, start, limit, now_ms)
    result = CompactionResult(start)
    end = sealed[-1].next_offset if sealed else start
    if cleaned.horizon_ms > now_ms and not _is_due(sealed, start, log.settings, now_ms):
        return result
    changes = log.segment_list.changes
    keys = _KeyMap()
    dirty = [segment for segment in sealed if segment.next_offset > start]
    mapping = _Mapping(keys, log, dirty, start, keys_max or limits.COMPACTION_KEYS_MAX)
    with contextlib.closing(mapping):
        while (yield mapping.step) is not None:
            if log.segment_list.changes != changes:
                return result._replace(interrupted=True)
    end = min(end, mapping.end)
    first_open = keys.first_open()
    if first_open is not None and (first_open > start or mapping.end == NEVER_MS):
        # The rest of that transaction, and its marker, are for the next pass; unless
        # it is larger than the map, and would be for ever.
        end = min(end, first_open)
    horizon_ms = NEVER_MS
    living: set[int] = set()
    for group in _groups([segment for segment in sealed if segment.base_offset < end], log):
        copy = _Copy(log, group, keys, living, now_ms)
        with contextlib.closing(copy):
            while (yield copy.step) is not None:
                if log.segment_list.changes != changes:
                    return result._replace(interrupted=True)
            copy.finish()
        changes = log.segment_list.changes
        horizon_ms = min(horizon_ms, copy.horizon_ms)
        result = result._replace(
            bytes_before=result.bytes_before + copy.bytes_before,
            bytes_after=result.bytes_after + copy.position,
            records_dropped=result.records_dropped + copy.records_dropped,
        )
    write_cleaned(log.disk, log.path, Cleaned(end, horizon_ms))
    return result._replace(cleaned_end=end)


def _compactable(log: Log, start: int, limit: int, now_ms: int) -> list[Segment]:
    """The sealed segments below the limit, and below the first that holds a record which
    is too young; what is compacted already stays so."""
    lag_ms = log.settings.compaction_lag_min_ms
    found: list[Segment] = []
    for segment in log.segment_list.sealed:
        if segment.next_offset > limit:
            break
        # Without a lag a record that says it is of tomorrow is no reason to wait.
        if lag_ms and segment.next_offset > start and segment.max_timestamp_ms > now_ms - lag_ms:
            break
        found.append(segment)
    return found


def _is_due(sealed: list[Segment], start: int, settings: LogSettings, now_ms: int) -> bool:
    """Whether enough is new, or something new is older than it may get."""
    dirty = [segment for segment in sealed if segment.next_offset > start]
    if not dirty:
        return False
    total = sum(segment.size_bytes for segment in sealed)
    if sum(segment.size_bytes for segment in dirty) > settings.dirty_ratio_min * total:
        return True
    lag_ms = settings.compaction_lag_max_ms
    if lag_ms is None:
        return False
    return any(0 <= segment.first_timestamp_ms() < now_ms - lag_ms for segment in dirty)


def some(work: Iterator[int], most_bytes: int) -> int | None:
    """A step of work that tells the bytes it went over as it goes."""
    total = None
    for size in work:
        total = (total or 0) + size
        if total >= most_bytes:
            break
    return total


class _Mapping:
    """The first half of a pass: what the last offset of each key is."""

    def __init__(
        self, keys: _KeyMap, log: Log, segments: list[Segment], start: int, keys_max: int
    ) -> None:
        self._keys = keys
        self._segments = [segment.twin() for segment in segments]
        self._keys_max = keys_max
        self._work = self._run(start)
        # Where the map ends: behind everything, unless it became full.
        self.end = NEVER_MS

    def step(self, most_bytes: int) -> int | None:
        return some(self._work, most_bytes)

    def _run(self, start: int) -> Iterator[int]:
        for segment in self._segments:
            for position, header in segment.walk(0):
                if header.last_offset < start:
                    continue
                _map_batch(self._keys, segment, position, header)
                yield header.size_bytes
                if len(self._keys) >= self._keys_max:
                    self.end = header.next_offset
                    return
            segment.close()

    def close(self) -> None:
        for segment in self._segments:
            segment.close()


def _map_batch(keys: _KeyMap, segment: Segment, position: int, header: BatchHeader) -> None:
    batch = segment.read_batch(position, header)
    try:
        if header.is_control:
            marker = read_control(batch, header)
            keys.end_transaction(marker.producer_id, marker.kind)
        else:
            for part in read_raw_parts(batch, header):
                keys.add(header, part)
    except CorruptBatch as error:
        if header.is_control:
            raise segment.corrupt(position, str(error)) from error
        # Its checksum is right: its producer wrote it so, or it is larger than what
        # is opened. It supersedes nothing more, and stays as it is.


def _groups(segments: list[Segment], log: Log) -> Iterator[list[Segment]]:
    """Neighbours that fit into one segment together."""
    group: list[Segment] = []
    size = 0
    for segment in segments:
        if group and (
            size + segment.size_bytes > log.settings.segment_bytes
            or segment.next_offset - group[0].base_offset > RELATIVE_OFFSET_MAX
        ):
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.size_bytes
    if group:
        yield group


class _Copy:
    """One group of segments on its way into one file."""

    def __init__(
        self, log: Log, group: list[Segment], keys: _KeyMap, living: set[int], now_ms: int
    ) -> None:
        """`living` are the producers of whose latest transaction a batch stays; it
        goes from one group to the next."""
        self._log = log
        self._group = group
        self._sources = [segment.twin() for segment in group]
        self._keys = keys
        self._living = living
        # Those that the group speaks of, and those that stay.
        self._ended: dict[int, AbortedTransaction] = {}
        self._void: dict[int, list[AbortedTransaction]] = {}
        for each in log.aborted.between(group[0].base_offset, group[-1].next_offset):
            self._ended[each.last_offset] = each
            self._void.setdefault(each.producer_id, []).append(each)
        self._aborted: list[AbortedTransaction] = []
        self._now_ms = now_ms
        self._tombstone_ms = log.settings.tombstone_ms
        self._name = segment_name(group[0].base_offset) + LOG_SUFFIX
        self._temporary = f"{log.path}/{self._name}{CLEANED_SUFFIX}"
        self._file: File | None = log.disk.open(self._temporary, create=True)
        self._file.truncate(0)
        self._changed = len(group) > 1
        self._work = self._run()
        self.position = 0
        self.bytes_before = 0
        self.records_dropped = 0
        self.horizon_ms = NEVER_MS

    def step(self, most_bytes: int) -> int | None:
        return some(self._work, most_bytes)

    def _run(self) -> Iterator[int]:
        assert self._file is not None
        last = self._sources[-1]
        for segment in self._sources:
            for position, header in segment.walk(0):
                ends_group = segment is last and header.next_offset == last.next_offset
                batch = self._cleaned(segment, position, header, ends_group)
                if batch is not None:
                    self._file.write(batch, self.position)
                    self.position += len(batch)
                self.bytes_before += header.size_bytes
                yield header.size_bytes
            segment.close()
        if self._changed:
            sync_file(self._file, self._temporary)

    def _cleaned(
        self, segment: Segment, position: int, header: BatchHeader, ends_group: bool
    ) -> Buffer | None:
        """What stays of a batch. The last one stays even without records, so
        that the segment still says where it ends."""
        batch = segment.read_batch(position, header)
        try:
            records = read_raw_records(batch, header)
        except CorruptBatch as error:
            if header.is_control:
                raise segment.corrupt(position, str(error)) from error
            return self._unopened(batch, header, ends_group)
        if header.is_control:
            return self._marker(batch, header, records, ends_group)
        cleaned: Buffer | None = batch
        if header.count or not ends_group:
            cleaned = self._records(batch, header, records, ends_group)
        if header.is_transactional and cleaned is not None:
            self._living.add(header.producer_id)
        return cleaned

    def _unopened(self, batch: Buffer, header: BatchHeader, ends_group: bool) -> Buffer | None:
        """What stays of a batch that cannot be opened: all, unless it was aborted."""
        if self._is_void(header) and not ends_group:
            self._changed = True
            return None
        if header.is_transactional:
            self._living.add(header.producer_id)
        return batch

    def _marker(
        self, batch: Buffer, header: BatchHeader, records: list[RawRecord], ends_group: bool
    ) -> Buffer | None:
        if header.producer_id in self._living:
            self._living.discard(header.producer_id)
            ended = self._ended.get(header.base_offset)
            if ended is not None:
                self._aborted.append(ended)
            return batch
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None:
            horizon_ms = self._now_ms + self._tombstone_ms
            batch = build_sparse_batch(records, header, delete_horizon_ms=horizon_ms)
            self._changed = True
        elif horizon_ms <= self._now_ms:
            if ends_group:
                return batch
            self._changed = True
            return None
        self.horizon_ms = min(self.horizon_ms, horizon_ms)
        return batch

    def _records(
        self, batch: Buffer, header: BatchHeader, records: list[RawRecord], ends_group: bool
    ) -> Buffer | None:
        horizon_ms = header.delete_horizon_ms
        over = horizon_ms is not None and horizon_ms <= self._now_ms
        kept: list[RawRecord] = []
        if not self._is_void(header):
            kept = [
                record
                for record in records
                if not self._keys.supersedes(record) and not (over and _is_tombstone(record))
            ]
        tombstones = any(map(_is_tombstone, kept))
        self.records_dropped += len(records) - len(kept)
        new_horizon_ms = None
        if tombstones and horizon_ms is None:
            new_horizon_ms = self._now_ms + self._tombstone_ms
        if tombstones:
            self.horizon_ms = min(self.horizon_ms, horizon_ms or new_horizon_ms or NEVER_MS)
        if kept and len(kept) == len(records) and new_horizon_ms is None:
            return batch
        self._changed = True
        if not kept and not ends_group:
            return None
        return build_sparse_batch(kept, header, delete_horizon_ms=new_horizon_ms)

    def _is_void(self, header: BatchHeader) -> bool:
        """Whether an aborted transaction wrote it."""
        if not header.is_transactional:
            return False
        own = self._void.get(header.producer_id, [])
        # The transactions of one producer follow one another.
        number = bisect_left(own, header.base_offset, key=attrgetter("last_offset"))
        return number < len(own) and own[number].first_offset <= header.base_offset

    def finish(self) -> None:
        """Make the copy the truth, unless it is the same as what is there."""
        assert self._file is not None
        if not self._changed:
            return
        self._file.close()
        self._file = None
        log, group = self._log, self._group
        log.note_gaps()
        # No mark that might come back after a crash may name these segments.
        log.durability.pin(log.segment_list.bases)
        log.disk.rename(self._temporary, f"{log.path}/{self._name}{SWAP_SUFFIX}")
        sync_folder(log.disk, log.path)
        for segment in group:
            log.segment_list.forget(segment)
        finish_swap(log.disk, log.path, self._name, group[-1].next_offset)
        log.segment_list.replace(group, group[0].base_offset, group[-1].next_offset)
        bases = [segment.base_offset for segment in group]
        log.aborted.replace(bases, bases[0], self._aborted)

    def close(self) -> None:
        for segment in self._sources:
            segment.close()
        if self._file is not None:
            self._file.close()
            self._file = None
            self._log.disk.remove(self._temporary)


def _is_tombstone(record: RawRecord) -> bool:
    return record.value is None and record.key is not None


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
