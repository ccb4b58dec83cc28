"""Which messages have their whole history kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.sampling import Sample

TOPIC = bytes(range(16))


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.25, 0.5])
def test_about_the_share_is_chosen(share: float) -> None:
    count = 200_000
    chosen = list(Sample(TOPIC, 0, share).chosen_in(0, count))
    assert chosen == sorted(set(chosen))
    assert len(chosen) == pytest.approx(count * share, rel=0.01)


def test_everything_or_nothing_is_chosen_exactly() -> None:
    assert list(Sample(TOPIC, 0, 1).chosen_in(5, 9)) == [5, 6, 7, 8]
    for nothing in (0, None):
        assert list(Sample(TOPIC, 0, nothing).chosen_in(0, 1000)) == []


def test_partitions_and_topics_choose_differently() -> None:
    chosen = {
        tuple(Sample(topic, partition, 0.01).chosen_in(0, 10_000))
        for topic in (TOPIC, bytes(16))
        for partition in range(3)
    }
    assert len(chosen) == 6


@given(st.floats(0.0001, 0.9999), st.integers(0, 10**12), st.integers(0, 300), st.integers(0, 300))
def test_a_choice_does_not_depend_on_the_run_that_is_asked_about(
    share: float, start: int, before: int, length: int
) -> None:
    sample = Sample(TOPIC, 3, share)
    wide = set(sample.chosen_in(max(0, start - before), start + length + before))
    narrow = set(sample.chosen_in(start, start + length))
    assert narrow == {offset for offset in wide if start <= offset < start + length}
    assert {o for o in range(start, start + length) if sample.has(o)} == narrow
