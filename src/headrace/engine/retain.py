"""Retention: which records of a partition may go.

Time and size say what a topic would give up; what a queue group still owes (it is
unacked, leased or delayed) is kept all the same, or moved to the dead letters
where the topic asks for that. `retention = "acked"` turns it round: a segment
goes as soon as every queue group is done with it and every cursor has passed it.
"""

from __future__ import annotations

from headrace.engine.cursor import Cursors
from headrace.engine.partition import Partition
from headrace.engine.queues import Queues
from headrace.engine.window import READY, RETRYING, WAITING


def retain(partition: Partition, cursors: Cursors, queues: Queues, now_ms: int) -> None:
    settings = partition.topic.settings
    log = partition.log
    before = log.start_offset
    if settings.cleanup == "compact":
        for _ in log.compact(now_ms, log.synced_end):
            pass
        return
    if settings.retention == "acked":
        done = _done_below(partition, cursors)
        if done is not None:
            log.release(done)
    else:
        if settings.retention_owed == "dead-letter":
            _give_up_owed(partition, queues, now_ms)
        log.expire(now_ms, keep_from=_owed_from(partition))
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
    return min(*places, partition.log.synced_end)


def _owed_from(partition: Partition) -> int:
    """The first offset that a queue group owes, or that is delayed for groups
    that do not exist yet."""
    owed = [view.window.start for view in partition.views.values()]
    if not partition.views and partition.delays:
        owed.append(min(offset for _, offset in partition.delays))
    return min(*owed, partition.log.synced_end) if owed else partition.log.synced_end


def _give_up_owed(partition: Partition, queues: Queues, now_ms: int) -> None:
    log = partition.log
    end = log.expirable_end(now_ms)
    for view in partition.views.values():
        owed = sorted(
            offset
            for state in (READY, RETRYING, WAITING)
            for offset in view.window.find_state(state, view.window.start)
            if offset < end
        )
        if owed:
            queues.give_up(partition, view, owed, "retention", now_ms)
