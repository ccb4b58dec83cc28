"""Clipping: the part of an event that speaks of messages which are still there.

The log loses messages at both ends without a word in the state log. At its start
retention and DeleteRecords take them, so that an event may reach below a window that
begins later than it did; at its end a loss of power takes what was not synced.
"""

from __future__ import annotations

import msgspec

from headrace.engine.runs import Runs, above, below, pairs
from headrace.engine.state import Granted, MessageEvent


def clipped(event: MessageEvent, start: int, end: int | None = None) -> MessageEvent:
    """The event with its runs cut to what lies from `start` on and below `end`. It may
    have none left: it is to be applied all the same, since its numbers were used."""
    if isinstance(event, Granted):
        runs, attempts = _clip_counted(event.runs, event.attempts, start, end)
        return msgspec.structs.replace(event, runs=runs, attempts=attempts)
    return msgspec.structs.replace(event, runs=_clip(event.runs, start, end))


def _clip(runs: Runs, start: int, end: int | None) -> Runs:
    kept = above(runs, start)
    return kept if end is None else below(kept, end)


def _clip_counted(
    runs: Runs, attempts: list[int], start: int, end: int | None
) -> tuple[Runs, list[int]]:
    """Runs that have a number each."""
    kept: Runs = []
    numbers: list[int] = []
    for (first, stop), number in zip(pairs(runs), attempts, strict=True):
        part = _clip([first, stop], start, end)
        if part:
            kept += part
            numbers.append(number)
    return kept, numbers
