"""Filters as narrower ranges."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from headrace.spark.filters import Narrowing, narrow

OFFSET = ("offset",)
AT = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("each", "bounds"),
    [
        (EqualTo(OFFSET, 5), (5, 6)),
        (In(OFFSET, (7, 3)), (3, 8)),
        (GreaterThan(OFFSET, 5), (6, 2**63 - 1)),
        (GreaterThanOrEqual(OFFSET, 5), (5, 2**63 - 1)),
        (LessThan(OFFSET, 5), (0, 5)),
        (LessThanOrEqual(OFFSET, 5), (0, 6)),
    ],
)
def test_offsets_bound_what_is_read(each: Filter, bounds: tuple[int, int]) -> None:
    found = narrow([each])
    assert (found.start, found.end) == bounds


def test_several_filters_hold_at_once() -> None:
    found = narrow(
        [
            GreaterThan(OFFSET, 5),
            GreaterThan(OFFSET, 3),
            LessThan(OFFSET, 20),
            In(("partition",), (0, 1, 2)),
            EqualTo(("PARTITION",), 1),
            EqualTo(("topic",), "orders"),
        ]
    )
    assert found == Narrowing(frozenset(["orders"]), frozenset([1]), 6, 20, None)
    assert found.takes("orders", 1)
    assert not found.takes("orders", 0)
    assert not found.takes("other", 1)


def test_a_time_moves_the_start_alone() -> None:
    later = datetime(2024, 1, 2, tzinfo=UTC)
    found = narrow(
        [
            GreaterThanOrEqual(("timestamp",), AT),
            GreaterThan(("timestamp",), later),
            LessThan(("timestamp",), later),
        ]
    )
    assert found == Narrowing(since_ms=int(later.timestamp() * 1000))


def test_a_time_before_1970_narrows_nothing() -> None:
    # Brokers take -1 for the end of a partition.
    before = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert narrow([GreaterThanOrEqual(("timestamp",), before)]) == Narrowing()
    assert narrow([EqualTo(("timestamp",), before)]) == Narrowing()


def test_what_is_not_understood_narrows_nothing() -> None:
    filters = [
        Not(EqualTo(OFFSET, 5)),
        StringContains(("topic",), "x"),
        EqualTo(("value",), b"x"),
        GreaterThan(("key",), b"x"),
        EqualTo(OFFSET, None),
        GreaterThan(("timestamp",), "soon"),
    ]
    assert narrow(filters) == Narrowing()
