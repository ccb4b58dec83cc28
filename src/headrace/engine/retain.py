"""Retention: which records of a partition may go.

Time and size say what a topic would give up; what a queue group still owes (it is
unacked, leased or delayed) is kept all the same, or moved to the dead letters
where the topic asks for that. `retention = "acked"` turns it round: a segment
goes as soon as every queue group is done with it and every cursor has passed it.
What is not decided yet is kept in either case, and never compacted.
"""

from __future__ import annotations

import contextlib

from headrace.core.errors import CorruptBatch
from headrace.engine.cursor import Cursors
from headrace.engine.fate import Fates
from headrace.engine.partition import Partition
from headrace.engine.records import iterate_batches
from headrace.engine.window import DELAYED, READY, RETRYING, WAITING
from headrace.record import read_header, scan_attributes


def retain(partition: Partition, cursors: Cursors, fates: Fates, now_ms: int) -> None:
    settings = partition.topic.settings
    log = partition.log
    before = log.start_offset
    if settings.cleanup == "compact":
        for _ in log.compact(now_ms, _decided_end(partition)):
            pass
        return
    if settings.retention == "acked":
        done = _done_below(partition, cursors)
        if done is not None:
            log.release(done)
    else:
        end = log.expirable_end(now_ms)
        if end == before:
            return
        if settings.retention_owed == "dead-letter":
            _give_up_owed(partition, fates, end, now_ms)
        log.expire(now_ms, keep_from=_owed_from(partition, end, now_ms))
    if log.start_offset != before:
        partition.on_start_moved()


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


def _owed_from(partition: Partition, end: int, now_ms: int) -> int:
    """The first offset that a queue group owes, or that is delayed for groups
    that do not exist yet. Only what lies below `end` is asked about."""
    decided_end = _decided_end(partition)
    if partition.views:
        return min(decided_end, *(view.window.start for view in partition.views.values()))
    if partition.topic.source_id is not None:
        return decided_end
    for data, position in iterate_batches(partition.log, partition.log.start_offset, end):
        header = read_header(data, position)
        batch = data[position : position + header.size_bytes]
        # Nonsense that a producer sent under a good checksum is delayed for nobody.
        with contextlib.suppress(CorruptBatch):
            for offset, attributes in scan_attributes(batch, header):
                if attributes.deliver_at_ms > now_ms:
                    return min(offset, decided_end)
    return decided_end


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
