"""Runs: sets of offsets as flat lists of half-open pairs, [start, end, start, end].

Consumers mostly settle what they were given in one piece, so a batch of a
hundred acks is one pair. State records, grants and windows all speak in runs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Runs = list[int]


def runs_of(offsets: Iterable[int]) -> Runs:
    """The runs of ascending offsets."""
    runs: Runs = []
    end = -1
    for offset in offsets:
        if offset == end:
            end += 1
            runs[-1] = end
        else:
            end = offset + 1
            runs += (offset, end)
    return runs


def pairs(runs: Runs) -> Iterator[tuple[int, int]]:
    each = iter(runs)
    return zip(each, each, strict=True)


def offsets_of(runs: Runs) -> Iterator[int]:
    for start, end in pairs(runs):
        yield from range(start, end)


def below(runs: Runs, end: int) -> Runs:
    """The part of the runs that lies below `end`."""
    kept: Runs = []
    for start, stop in pairs(runs):
        if start < end:
            kept += (start, min(stop, end))
    return kept


def above(runs: Runs, start: int) -> Runs:
    """The part of the runs that lies at or above `start`."""
    kept: Runs = []
    for first, stop in pairs(runs):
        if stop > start:
            kept += (max(first, start), stop)
    return kept


def below_ascending(runs: Runs, end: int) -> Runs:
    """As `below`, of ascending runs: found, not walked to."""
    cut = bisect_left(runs, end)
    return [*runs[:cut], end] if cut % 2 else runs[:cut]


def above_ascending(runs: Runs, start: int) -> Runs:
    """As `above`, of ascending runs: found, not walked to."""
    cut = bisect_right(runs, start)
    return [start, *runs[cut:]] if cut % 2 else runs[cut:]


def first_of(runs: Runs, count: int) -> Runs:
    """The first `count` offsets of the runs."""
    kept: Runs = []
    for start, stop in pairs(runs):
        if count <= 0:
            break
        kept += (start, min(stop, start + count))
        count -= stop - start
    return kept


def without(runs: Runs, gone: Runs) -> Runs:
    """Ascending runs without the offsets of others, which ascend as well."""
    kept: Runs = []
    taken = list(pairs(gone))
    number = 0
    for start, stop in pairs(runs):
        while number < len(taken) and taken[number][1] <= start:
            number += 1
        for first, last in taken[number:]:
            if first >= stop:
                break
            if first > start:
                kept += (start, first)
            start = max(start, last)
        if start < stop:
            kept += (start, stop)
    return kept


def count_of(runs: Runs) -> int:
    # Most are one run, and this is asked several times for each lease and ack.
    return runs[1] - runs[0] if len(runs) == 2 else sum(runs[1::2]) - sum(runs[::2])


def merged(runs: Runs) -> Runs:
    """Ascending runs with those joined that touch."""
    joined: Runs = []
    for start, end in pairs(runs):
        if joined and joined[-1] == start:
            joined[-1] = end
        else:
            joined += (start, end)
    return joined
