"""What becomes of leases when a partition is led anew.

    embedded    all of them end: the process that had them is gone
    a node      they stand until their deadline, and their receipts are good; but those of
                an embedded process end, and those of Kafka's share consumers, as in Kafka

A loss of power may take a lease with it, since grants are not waited for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from headrace.core.errors import CorruptLog, DiskFull
from headrace.engine import state as events
from headrace.engine.grant import PROCESS, SHARE, Grant
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.runs import runs_of
from headrace.record import read_attributes

IsOver = Callable[[Grant], bool]


def is_over_embedded(grant: Grant) -> bool:
    return True


def is_over_at_a_node(grant: Grant) -> bool:
    return grant.tie in (PROCESS, SHARE)


def is_over_elsewhere(grant: Grant) -> bool:
    """Where another node led before: who holds it comes to this one, but for connections
    of share consumers."""
    return grant.tie == SHARE


def end_leases(partition: Partition, is_over: IsOver, now_ms: int) -> dict[int, list[int]]:
    """What was leased is ready again where the lease is over; what is out of attempts then is
    returned by group, for the caller to give up."""
    try:
        return _end_leases(partition, is_over, now_ms)
    except CorruptLog as error:
        # They run out by themselves, and nobody is given them meanwhile.
        partition.stop(error)
        return {}


def _end_leases(partition: Partition, is_over: IsOver, now_ms: int) -> dict[int, list[int]]:
    exhausted: dict[int, list[int]] = {}
    for view in partition.views.values():
        again, spent = _divide_leased(partition, view, is_over)
        if again:
            event = events.LeaseEnded(view.group_id, now_ms, runs_of(again))
            # On a full disk they run out by themselves.
            with contextlib.suppress(DiskFull):
                partition.write(view, event, now_ms, wait=False)
        if spent:
            exhausted[view.group_id] = spent
    return exhausted


def _divide_leased(
    partition: Partition, view: QueueView, is_over: IsOver
) -> tuple[list[int], list[int]]:
    """Of what is leased and over: those that may be delivered again, and those that were
    delivered as often as they may be."""
    leased = view.leased_by()
    if not leased:
        return [], []
    # Maxima of single messages went with the process: they are in the records.
    for record in partition.read(runs_of(sorted(leased))):
        most = read_attributes(record.headers, record.timestamp_ms).max_attempts
        if most:
            leased[record.offset].max_attempts[record.offset] = most
    again: list[int] = []
    spent: list[int] = []
    for offset, grant in sorted(leased.items()):
        if is_over(grant):
            is_last = view.window.attempts_at(offset) >= view.max_attempts_of(offset, grant)
            (spent if is_last else again).append(offset)
    return again, spent
