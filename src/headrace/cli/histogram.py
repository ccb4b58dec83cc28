"""Times, counted in buckets that are as fine as the times are short.

    milliseconds   1 ........ 1.5 ........ 2 .................. 3 ....... 4
    buckets        |||||||||||||||||||||||||| | | | | | | | | | | | | | | |
                   128 from each power of two to the next

So every percentile is within 1% of the truth, from a microsecond to an hour, and a
million calls take no more room than a thousand. The largest and the smallest are kept as
they were. Drawn, every doubling is two rows:

    from 1.00  ██████████████████▌    812  40.6%  p50
    from 1.50  ███████▏               310  15.5%  p90

Rejected: keeping every time and sorting. A long run would measure its own memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

# A power of two as the unit makes 0.5, 1 and 1.5 milliseconds borders of buckets.
UNITS_PER_MS = 1024
BUCKETS_PER_DOUBLING = 128
BUCKETS_PER_ROW = BUCKETS_PER_DOUBLING // 2
SHARES = (50.0, 90.0, 99.0, 99.9)
BAR_CHARACTERS = 40
ROWS_MAX = 24
EIGHTHS = " ▏▎▍▌▋▊▉"


class Row(NamedTuple):
    """So many took from here to there."""

    from_ms: float
    to_ms: float
    calls: int


class Histogram:
    def __init__(self) -> None:
        self.count = 0
        self.least_ms = math.inf
        self.most_ms = 0.0
        self._buckets: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Times that a clock gives as negative are none."""
        milliseconds = max(0.0, seconds * 1000)
        self.count += 1
        self.least_ms = min(self.least_ms, milliseconds)
        self.most_ms = max(self.most_ms, milliseconds)
        self._buckets[_bucket_of(milliseconds)] += 1

    def percentile_ms(self, share: float) -> float:
        """What at least `share` percent of them kept to; 0 when there are none."""
        return min(_start_ms(self._percentile(share) + 1), self.most_ms)

    def _percentile(self, share: float) -> int:
        """The bucket in which it is."""
        left = max(1, math.ceil(self.count * share / 100))
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return bucket
        return 0

    def rows(self, width: int = BUCKETS_PER_ROW) -> list[Row]:
        """Without gaps, from the shortest to the longest."""
        if not self._buckets:
            return []
        counts: Counter[int] = Counter()
        for bucket, count in self._buckets.items():
            counts[bucket // width] += count
        return [
            Row(_start_ms(number * width), _start_ms((number + 1) * width), counts[number])
            for number in range(min(counts), max(counts) + 1)
        ]

    def lines(self) -> Iterator[str]:
        """The drawing, of at most `ROWS_MAX` lines. What is behind the last one is
        counted in it; empty ones are three dots."""
        rows = self.rows()
        if len(rows) > ROWS_MAX:
            rows = self.rows(BUCKETS_PER_DOUBLING)
        rest = rows[ROWS_MAX:]
        rows = rows[:ROWS_MAX]
        if rest:
            tail = rows[-1]
            more = sum(row.calls for row in rest)
            rows[-1] = Row(tail.from_ms, rest[-1].to_ms, tail.calls + more)
        fullest = max((row.calls for row in rows), default=1)
        was_empty = False
        for row in rows:
            if not row.calls:
                if not was_empty:
                    yield "       ..."
                was_empty = True
                continue
            was_empty = False
            share = 100 * row.calls / self.count
            line = f"  from {row.from_ms:9.3f}  {_bar(row.calls, fullest)}"
            marks = " ".join(self._marks(row))
            yield f"{line} {row.calls:9,} {share:5.1f}%  {marks}".rstrip()

    def _marks(self, row: Row) -> Iterator[str]:
        """Which percentiles fall into the row."""
        for share, name in (*((each, f"p{each:g}") for each in SHARES), (100.0, "max")):
            if row.from_ms <= _start_ms(self._percentile(share)) < row.to_ms:
                yield name


def _bucket_of(milliseconds: float) -> int:
    units = milliseconds * UNITS_PER_MS
    if units < 1:
        return 0
    mantissa, exponent = math.frexp(units)
    # The mantissa is at least a half and less than one.
    return (exponent - 1) * BUCKETS_PER_DOUBLING + int((2 * mantissa - 1) * BUCKETS_PER_DOUBLING)


def _start_ms(bucket: int) -> float:
    """Where the bucket begins. The first one begins at nothing."""
    if bucket <= 0:
        return 0.0
    doublings, step = divmod(bucket, BUCKETS_PER_DOUBLING)
    return math.ldexp(1 + step / BUCKETS_PER_DOUBLING, doublings) / UNITS_PER_MS


def _bar(count: int, fullest: int) -> str:
    """As long as its share of the fullest, to an eighth of a character; something
    for everything that is not nothing."""
    eighths = max(-(-count * BAR_CHARACTERS * 8 // max(1, fullest)), int(count > 0))
    return ("█" * (eighths // 8) + EIGHTHS[eighths % 8]).strip().ljust(BAR_CHARACTERS)
