"""Clipping: the part of an event that speaks of messages which are still there.

The log loses messages at both ends without a word in the state log. At its start
retention and DeleteRecords take them, so that an event may reach below a window that
begins later than it did; at its end a loss of power takes what was not synced.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from headrace.engine.runs import Runs, above, below, pairs
from headrace.engine.state import Granted, MessageEvent, Revived

T = TypeVar("T")


def clipped(event: MessageEvent, start: int, end: int | None = None) -> MessageEvent:
    """The event with its runs cut to what lies from `start` on and below `end`. It may
    have none left: it is to be applied all the same, since its numbers were used."""
    if isinstance(event, Granted):
        runs, attempts = _clip_marked(event.runs, event.attempts, start, end)
        return msgspec.structs.replace(event, runs=runs, attempts=attempts)
    if isinstance(event, Revived):
        runs, marks = _clip_marked(event.runs, event.marks, start, end)
        return msgspec.structs.replace(event, runs=runs, marks=marks)
    return msgspec.structs.replace(event, runs=_clip(event.runs, start, end))


def _clip(runs: Runs, start: int, end: int | None) -> Runs:
    kept = above(runs, start)
    return kept if end is None else below(kept, end)


def _clip_marked(runs: Runs, marks: list[T], start: int, end: int | None) -> tuple[Runs, list[T]]:
    """Runs that have a mark each."""
    kept: Runs = []
    kept_marks: list[T] = []
    for (first, stop), mark in zip(pairs(runs), marks, strict=True):
        part = _clip([first, stop], start, end)
        if part:
            kept += part
            kept_marks.append(mark)
    return kept, kept_marks
