"""The snapshot of a queue group's view: events that restore it on an empty one.

    group      where its window starts and ends
    chunks     the window's columns
    keys       hashes of keys, where the topic's order needs them
    rest       what needs the columns to be there: retries, leases, moves, held acks,
               totals

A message whose outcome is written but not synced is in the columns as such; the
state log adds those events behind the snapshot's parts.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection
from itertools import chain

from headrace.engine import state as events
from headrace.engine.grant import Grant, count_attempts
from headrace.engine.queue import QueueView
from headrace.engine.runs import offsets_of, runs_of
from headrace.engine.scanner import Scanner
from headrace.engine.window import LEASED, RETRYING


def parts_of(
    views: Collection[QueueView], scanner: Scanner | None, now_ms: int
) -> list[events.Event]:
    """The whole state of a partition, but for a snapshot's end."""
    cancelled: list[int] = []
    if scanner is not None:
        cancelled = sorted(scanner.cancelled)
        scanner.forget_wishes(min((view.window.start for view in views), default=0))
    head = events.SnapshotPartition(now_ms, runs_of(cancelled))
    return [head, *chain.from_iterable(snapshot_of(view) for view in views)]


def snapshot_of(view: QueueView) -> list[events.GroupEvent]:
    view.window.pack_idle()
    keys = () if view.order is None else view.order.pieces()
    return [
        events.SnapshotGroup(view.group_id, view.window.start, view.window.end),
        *(events.SnapshotChunk(view.group_id, *piece) for piece in view.window.pieces()),
        *(events.SnapshotKeys(view.group_id, *piece) for piece in keys),
        _rest_of(view),
    ]


def _rest_of(view: QueueView) -> events.SnapshotRest:
    retries = [(due, offset) for due, offset in view.retries if view.is_in(offset, RETRYING)]
    return events.SnapshotRest(
        group=view.group_id,
        next_grant=view.next_grant,
        next_move=view.next_move,
        totals=dict(view.totals),
        retry_due=array("q", [due for due, _ in retries]).tobytes(),
        retry_offsets=array("q", [offset for _, offset in retries]).tobytes(),
        failures=[(o, failure.at_ms, failure.error) for o, failure in view.failures.items()],
        grants=[_granted(view, number, grant) for number, grant in view.grants.items()],
        moves=list(view.moves.values()),
        held=list(view.held_acks),
        redrives=list(view.redrives.items()),
    )


def _granted(view: QueueView, number: int, grant: Grant) -> events.Granted:
    """What is left of a grant, with the delivery counts as they are."""
    live = [
        offset
        for offset in offsets_of(grant.runs)
        if view.is_in(offset, LEASED) and view.window.grant_at(offset) == number
    ]
    runs, attempts = count_attempts(view.window, runs_of(live), more=0)
    return events.Granted(
        view.group_id, number, grant.owner, grant.nonce, grant.at_ms, grant.until_ms,
        runs, attempts, grant.tie,
    )  # fmt: skip
