"""Splits: which offsets of which partition one task reads.

One for each partition, more of them by `minPartitions` (the largest are cut first) or
by `maxRecordsPerPartition`. Splits of a partition follow each other without a gap.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition


class OffsetRange(NamedTuple):
    """Offsets [start, end) of a partition of the topic with this id."""

    topic: str
    id: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class Split(InputPartition):
    def __init__(self, range: OffsetRange) -> None:
        self.range = range

    def __repr__(self) -> str:
        return f"Split({self.range})"


def cut(
    ranges: Iterable[OffsetRange],
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """The same offsets in at least so many ranges, none larger than so much; empty
    ranges are left out. A range of one offset is not cut, so there may be fewer."""
    found = [each for each in ranges if each.size > 0]
    if max_records is not None:
        found = [part for each in found for part in _pieces(each, -(-each.size // max_records))]
    if min_partitions is None or len(found) >= min_partitions or not found:
        return found
    total = sum(each.size for each in found)
    # Each gets its share of the pieces, rounded down but one at least; what is missing
    # goes to those whose pieces are largest.
    counts = [max(1, each.size * min_partitions // total) for each in found]
    while sum(counts) < min_partitions:
        number = max(range(len(found)), key=lambda n: found[n].size / counts[n])
        if counts[number] >= found[number].size:
            break
        counts[number] += 1
    return [
        part for each, count in zip(found, counts, strict=True) for part in _pieces(each, count)
    ]


def _pieces(whole: OffsetRange, count: int) -> list[OffsetRange]:
    count = min(count, whole.size)
    bounds = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [whole._replace(start=start, end=end) for start, end in pairwise(bounds)]
