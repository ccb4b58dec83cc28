"""The end of all leases of a group: nobody is left who could hold them."""

from __future__ import annotations

from collections.abc import Callable

from headrace.engine.queue import QueueView
from headrace.engine.runs import Runs, runs_of
from headrace.record import Record, read_attributes


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
