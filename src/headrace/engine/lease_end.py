"""The end of all leases of a partition: nobody is left who could hold them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from headrace.core.errors import CorruptLog, DiskFull
from headrace.engine import state as events
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.runs import Runs, runs_of
from headrace.record import Record, read_attributes


def end_leases(partition: Partition, now_ms: int) -> dict[int, list[int]]:
    """What was leased is ready again; what is out of attempts is returned by group, for the
    caller to give up."""
    try:
        return _end_leases(partition, now_ms)
    except CorruptLog as error:
        # They run out by themselves, and nobody is given them meanwhile.
        partition.stop(error)
        return {}


def _end_leases(partition: Partition, now_ms: int) -> dict[int, list[int]]:
    exhausted: dict[int, list[int]] = {}
    for view in partition.views.values():
        again, spent = divide_leased(view, partition.read)
        if again:
            event = events.LeaseEnded(view.group_id, now_ms, runs_of(again))
            # On a full disk they run out by themselves.
            with contextlib.suppress(DiskFull):
                partition.write(view, event, now_ms, wait=False)
        if spent:
            exhausted[view.group_id] = spent
    return exhausted


def divide_leased(
    view: QueueView, read: Callable[[Runs], list[Record]]
) -> tuple[list[int], list[int]]:
    """What is leased: those that may be delivered again, and those that were
    delivered as often as they may be."""
    leased = sorted(view.leased_by())
    if not leased:
        return [], []
    again: list[int] = []
    spent: list[int] = []
    # Maxima of single messages went with the process: they are in the records.
    maxima = {
        record.offset: read_attributes(record.headers, record.timestamp_ms).max_attempts
        for record in read(runs_of(leased))
    }
    for offset in leased:
        most = maxima.get(offset) or view.settings.max_attempts
        (spent if view.window.attempts_at(offset) >= most else again).append(offset)
    return again, spent
