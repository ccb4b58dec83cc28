"""Runs against sets of offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.copies import ascending
from headrace.engine.runs import first_of, offsets_of, runs_of, without

offsets = st.sets(st.integers(0, 40))


@given(offsets, st.integers(-1, 50))
def test_the_first_of_runs_are_the_lowest_offsets(given_offsets: set[int], count: int) -> None:
    found = list(offsets_of(first_of(runs_of(sorted(given_offsets)), count)))
    assert found == sorted(given_offsets)[: max(0, count)]


@given(offsets, offsets)
def test_runs_without_others_are_what_is_left_of_them(kept: set[int], gone: set[int]) -> None:
    left = without(runs_of(sorted(kept)), runs_of(sorted(gone)))
    assert left == runs_of(sorted(kept - gone))


@given(st.lists(st.integers(0, 20), unique=True))
def test_what_was_found_in_any_order_ascends(found: list[int]) -> None:
    runs = [place for offset in found for place in (offset, offset + 1)]
    assert ascending(runs) == runs_of(sorted(found))
