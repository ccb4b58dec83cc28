"""Filters on offset, partition, timestamp and topic, applied to ranges before reading.

    WHERE partition = 1 AND offset >= 500        those ranges alone are read
    WHERE timestamp >= '2026-01-01'              from the first record at or behind it on

Every filter is left to Spark as well: what is read is never less than what is asked
for, and may be more. A time moves the start alone, to the first record that is not
older: all before it are, and behind it anything may come.

Spark lets a Python source see filters only with
spark.sql.python.filterPushdown.enabled=true, and fails one that looks for them
otherwise; that is why it is an option.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)


class Narrowing(NamedTuple):
    """What the filters leave. None: everything."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: int = 0
    end: int = 2**63 - 1
    since_ms: int | None = None

    def takes(self, topic: str, partition: int) -> bool:
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


def narrow(filters: Iterable[Filter]) -> Narrowing:
    """All filters hold at once. What is not understood narrows nothing."""
    found = Narrowing()
    for each in filters:
        column = ".".join(getattr(each, "attribute", ())).lower()
        if isinstance(each, EqualTo):
            found = _narrow_to(found, column, [each.value])
        elif isinstance(each, In):
            found = _narrow_to(found, column, list(each.value))
        elif column == "offset" and type(getattr(each, "value", None)) is int:
            found = _narrow_offsets(found, each, each.value)  # type: ignore[attr-defined]
        elif column == "timestamp" and isinstance(each, GreaterThan | GreaterThanOrEqual):
            since_ms = _milliseconds(each.value)
            if since_ms is not None:
                found = _narrow_times(found, since_ms)
    return found


def _narrow_to(found: Narrowing, column: str, values: list[Any]) -> Narrowing:
    if column == "topic":
        wanted = frozenset(str(value) for value in values)
        return found._replace(topics=wanted if found.topics is None else wanted & found.topics)
    numbers = frozenset(value for value in values if type(value) is int)
    if column == "partition":
        kept = numbers if found.partitions is None else numbers & found.partitions
        return found._replace(partitions=kept)
    if column == "offset" and numbers:
        return found._replace(
            start=max(found.start, min(numbers)), end=min(found.end, max(numbers) + 1)
        )
    if column == "timestamp":
        times = [time_ms for time_ms in map(_milliseconds, values) if time_ms is not None]
        if times and len(times) == len(values):
            return _narrow_times(found, min(times))
    return found


def _narrow_times(found: Narrowing, since_ms: int) -> Narrowing:
    # Brokers take times below 0 for words such as "latest".
    if since_ms < 0:
        return found
    return found._replace(since_ms=max(since_ms, found.since_ms or 0))


def _narrow_offsets(found: Narrowing, each: Filter, value: int) -> Narrowing:
    if isinstance(each, GreaterThan):
        return found._replace(start=max(found.start, value + 1))
    if isinstance(each, GreaterThanOrEqual):
        return found._replace(start=max(found.start, value))
    if isinstance(each, LessThan):
        return found._replace(end=min(found.end, value))
    if isinstance(each, LessThanOrEqual):
        return found._replace(end=min(found.end, value + 1))
    return found


def _milliseconds(value: Any) -> int | None:
    return int(value.timestamp() * 1000) if isinstance(value, datetime) else None
