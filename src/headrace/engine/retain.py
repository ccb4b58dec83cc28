"""Retention: which records of a partition may go.

Time and size say what a topic would give up; what a queue group still owes (it is
unacked, leased or delayed) is kept all the same, or moved to the dead letters
where the topic asks for that. `retention = "acked"` turns it round: a segment
goes as soon as every queue group is done with it and every cursor has passed it.
What is not decided yet is kept in either case, and never compacted.

What takes long, compaction and the search for delayed messages, is made of steps
that can be done anywhere; see `log.compaction`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator

from headrace.core.errors import CorruptBatch, CorruptLog
from headrace.core.ports import Buffer
from headrace.engine.cursor import Cursors
from headrace.engine.fate import Fates
from headrace.engine.opening import NEEDED_WHOLE
from headrace.engine.partition import Partition
from headrace.engine.window import DELAYED, READY, RETRYING, WAITING
from headrace.log import Log
from headrace.log.checkpoint import sync_file, sync_folder
from headrace.log.compaction import Step, some
from headrace.record import BatchHeader, scan_attributes

# Of a step that nobody waits for.
_SLICE_BYTES = 1 << 30


Steps = Generator[Step, int | None, None]


def retain(partition: Partition, cursors: Cursors, fates: Fates, now_ms: int) -> None:
    """Whatever is due, at once."""
    carry_out(retention(partition, cursors, fates, now_ms))


def carry_out(steps: Steps) -> None:
    """Every step, one after the other."""
    done: int | None = None
    # Closed here when a step fails, and not by whoever collects what is left.
    with contextlib.closing(steps), contextlib.suppress(StopIteration):
        while True:
            done = steps.send(done)(_SLICE_BYTES)


def on_rot(partition: Partition, error: CorruptLog) -> None:
    """Retention came upon what cannot be read, so its partition stops, as for any reader.
    Not so where the node has read it all at its start and goes by that."""
    if partition.topic.name not in NEEDED_WHOLE:
        partition.stop(error)


def retention(partition: Partition, cursors: Cursors, fates: Fates, now_ms: int) -> Steps:
    """The same for who does the steps elsewhere."""
    if partition.is_stopped:
        # What its queues owe is not known, so everything is kept.
        return
    settings = partition.topic.settings
    log = partition.log
    if not partition.is_durable and _has_unsynced_to_give_up(partition, now_ms):
        yield from sync_steps(log)
    if settings.is_deleted:
        yield from _deletion(partition, cursors, fates, now_ms)
    if settings.is_compacted:
        yield from log.compaction(now_ms, _decided_end(partition))


def _deletion(partition: Partition, cursors: Cursors, fates: Fates, now_ms: int) -> Steps:
    settings = partition.topic.settings
    log = partition.log
    before = log.start_offset
    if settings.retention == "acked":
        done = _done_below(partition, cursors)
        if done is not None:
            partition.making_room(lambda: log.release(done))
    else:
        end = log.expirable_end(now_ms)
        if end == before:
            return
        if settings.retention_owed == "dead-letter":
            _give_up_owed(partition, fates, end, now_ms)
        keep_from = yield from _owed_from(partition, end, now_ms)
        partition.making_room(lambda: log.expire(now_ms, keep_from=keep_from))
    if log.start_offset != before:
        partition.on_start_moved()


def _has_unsynced_to_give_up(partition: Partition, now_ms: int) -> bool:
    """Nothing goes that is not known to be on disk, and a topic that leaves that to the
    system is never synced by whoever publishes."""
    log = partition.log
    if partition.topic.settings.retention == "time" and log.expirable_end(now_ms) > log.synced_end:
        return True
    return log.segment_list.active.base_offset > log.synced_end


def sync_steps(log: Log) -> Steps:
    """Everything that was written so far, synced by a step."""
    ticket = log.begin_sync()
    if ticket is None:
        return

    def sync(_: int) -> None:
        for directory in ticket.directories:
            sync_folder(log.disk, directory)
        for file in ticket.files:
            sync_file(file, log.path)

    yield sync
    log.on_synced(ticket)


def _done_below(partition: Partition, cursors: Cursors) -> int | None:
    """Up to where everybody is done; None while there is nobody."""
    places = [view.window.start for view in partition.views.values()]
    cursor = cursors.lowest((partition.topic.id, partition.index))
    if cursor is not None:
        places.append(cursor)
    if not places:
        return None
    return min(*places, _decided_end(partition))


def _decided_end(partition: Partition) -> int:
    """Nothing at or above it may go."""
    return min(partition.log.synced_end, partition.last_stable_offset)


def _owed_from(partition: Partition, end: int, now_ms: int) -> Generator[Step, int | None, int]:
    """The first offset that a queue group owes, or that is delayed for groups
    that do not exist yet. Only what lies below `end` is asked about."""
    if not partition.views and partition.topic.source_id is None:
        search = _DelayedSearch(partition.log, end, now_ms)
        with contextlib.closing(search):
            while (yield search.step) is not None:
                pass
        end = search.found
    decided_end = _decided_end(partition)
    if partition.views:
        # Maybe a group that came during the search: it saw what was there then.
        return min(decided_end, *(view.window.start for view in partition.views.values()))
    return decided_end if partition.topic.source_id is not None else min(decided_end, end)


class _DelayedSearch:
    """For the first record that is delayed still. `found` is its offset, or where
    the search ended."""

    def __init__(self, log: Log, end: int, now_ms: int) -> None:
        self._segments = [
            segment.twin()
            for segment in log.segment_list
            if segment.base_offset < end and segment.size_bytes
        ]
        self._now_ms = now_ms
        self._work = self._run(log.start_offset, end)
        self.found = end

    def step(self, most_bytes: int) -> int | None:
        return some(self._work, most_bytes)

    def _run(self, start: int, end: int) -> Iterator[int]:
        for segment in self._segments:
            for position, header in segment.walk(0):
                if header.last_offset < start:
                    continue
                if header.base_offset >= end:
                    return
                offset = self._delayed_in(segment.read_batch(position, header), header)
                if offset is not None:
                    self.found = offset
                    return
                yield header.size_bytes

    def _delayed_in(self, batch: Buffer, header: BatchHeader) -> int | None:
        # Nonsense that a producer sent under a good checksum is delayed for nobody.
        with contextlib.suppress(CorruptBatch):
            for offset, attributes in scan_attributes(batch, header):
                if attributes.deliver_at_ms > self._now_ms:
                    return offset
        return None

    def close(self) -> None:
        for segment in self._segments:
            segment.close()


def _give_up_owed(partition: Partition, fates: Fates, end: int, now_ms: int) -> None:
    """What is leased stays: somebody is at work on it."""
    for view in partition.views.values():
        owed = sorted(
            offset
            for state in (READY, RETRYING, WAITING, DELAYED)
            for offset in view.window.find_state(state, view.window.start)
            if offset < end
        )
        if owed:
            fates.give_up(partition, view, owed, "retention", now_ms)
