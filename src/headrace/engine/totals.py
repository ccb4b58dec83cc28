"""Totals: how often what happened to the messages of a group.

They are of what happened, so an event counts whole, also where the log has lost some of
its messages since.
"""

from __future__ import annotations

from collections import Counter

from headrace.engine import state as events
from headrace.engine.runs import count_of, pairs
from headrace.engine.window import ACKED, EXPIRED

# How a move is counted that was not a dead letter's alone: what expired and is kept is one
# as well.
_MOVED = {EXPIRED: ("expired", "dead_lettered"), ACKED: ("redriven",)}


def count_event(totals: Counter[str], event: events.GroupEvent) -> None:
    match event:
        case events.Granted():
            totals["delivered"] += count_of(event.runs)
            if max(event.attempts, default=0) > 1:
                again = zip(pairs(event.runs), event.attempts, strict=True)
                totals["redelivered"] += sum(
                    end - start for (start, end), each in again if each > 1
                )
        case events.Acked():
            totals["acked"] += count_of(event.runs)
        case events.Retried():
            totals["nacked"] += count_of(event.runs)
        case events.LeaseEnded():
            totals["lease_expired"] += count_of(event.runs)
        case events.Expired():
            totals["expired"] += count_of(event.runs)
        case events.MoveDone():
            for name in _MOVED.get(event.outcome, ("dead_lettered",)):
                totals[name] += count_of(event.runs)
        case _:
            pass
