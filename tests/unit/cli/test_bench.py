"""The numbers of `headrace bench` mean what they say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.bench import Round
from headrace.cli.histogram import ROWS_MAX, Histogram


def histogram_of(*milliseconds: float) -> Histogram:
    made = Histogram()
    for each in milliseconds:
        made.add(each / 1000)
    return made


def test_a_percentile_is_the_time_that_so_many_calls_kept_to() -> None:
    measured = histogram_of(*range(1, 101))
    for share in (50, 90, 99):
        assert measured.percentile_ms(share) == pytest.approx(share, rel=0.01)
    assert measured.percentile_ms(100) == 100


def test_the_rate_counts_messages_and_not_calls() -> None:
    measured = Round("publish batches", 10)
    measured.add(10, 0.5)
    measured.add(10, 0.5)
    assert measured.messages == 20
    assert round(measured.rate) == 20


def test_a_single_call_is_every_percentile() -> None:
    measured = histogram_of(2.0)
    assert {measured.percentile_ms(share) for share in (1, 50, 99, 99.9, 100)} == {2.0}


def test_no_time_at_all_is_a_time_too() -> None:
    measured = histogram_of(0.0, -1.0)
    assert (measured.percentile_ms(50), measured.least_ms, measured.most_ms) == (0, 0, 0)
    assert [row.calls for row in measured.rows()] == [2]
    assert Histogram().rows() == [] and list(Histogram().lines()) == []


def test_a_doubling_is_two_rows_and_every_call_is_in_one() -> None:
    rows = histogram_of(1.0, 1.4, 1.5, 1.9, 2.0, 3.9).rows()
    assert [(row.from_ms, row.calls) for row in rows] == [(1, 2), (1.5, 2), (2, 1), (3, 1)]


def test_the_drawing_marks_where_the_percentiles_lie() -> None:
    lines = list(histogram_of(*[1.2] * 95, *[5.0] * 4, 700.0).lines())
    assert [line.split()[-1] for line in lines] == ["p90", "...", "p99", "...", "max"]
    assert "p50 p90" in lines[0] and "p99.9 max" in lines[-1]
    assert lines[0].count("█") == 40


@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=300))
def test_percentiles_are_near_those_of_the_sorted_times(times: list[float]) -> None:
    measured = histogram_of(*times)
    ordered = sorted(times)
    for share in (1, 50, 90, 99, 99.9, 100):
        exact = ordered[max(1, math.ceil(len(times) * share / 100)) - 1]
        assert exact - 1e-6 <= measured.percentile_ms(share) <= exact * 1.01 + 0.002
    assert sum(row.calls for row in measured.rows()) == len(times)
    assert all(row.from_ms < row.to_ms for row in measured.rows())
    assert len(list(measured.lines())) <= ROWS_MAX
    marks = [mark for line in measured.lines() for mark in line.split() if mark == "max"]
    assert marks == ["max"]
