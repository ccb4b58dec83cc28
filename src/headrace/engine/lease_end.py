"""The end of all leases of a group: nobody is left who could hold them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.core.errors import DiskFull
from headrace.engine import state as events
from headrace.engine.queue import QueueView
from headrace.engine.runs import Runs, runs_of
from headrace.record import Record, read_attributes

if TYPE_CHECKING:
    from headrace.engine.partition import Partition


def end_leases(partition: Partition, now_ms: int) -> dict[int, list[int]]:
    """What was leased is ready again; what is out of attempts is returned by group."""
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
