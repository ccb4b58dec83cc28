"""Due times against a plain sorted list."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits import TIMESTAMP_MS_MAX
from headrace.engine import due as module
from headrace.engine.due import DueTimes

START_MS = 1_700_000_000_000


class SortedList:
    """The twin: every entry in one list, sorted when asked."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []

    def pop_due(self, now_ms: int, limit: int | None) -> list[int]:
        self.entries.sort()
        ready = [entry for entry in self.entries if entry[0] <= now_ms][:limit]
        del self.entries[: len(ready)]
        return [offset for _, offset in ready]


delays = st.one_of(
    st.integers(-50, 50),
    st.integers(0, 3_600_000),
    st.integers(0, 315_360_000_000),
    st.integers(0, TIMESTAMP_MS_MAX - START_MS),
)
offsets = st.one_of(st.integers(0, 200), st.integers(0, 2**63 - 1))
entries = st.tuples(delays, offsets)
steps = st.one_of(
    st.tuples(st.just("add"), entries),
    st.tuples(st.just("add_many"), st.lists(entries, max_size=60)),
    st.tuples(st.just("pop"), st.tuples(delays, st.none() | st.integers(0, 30))),
    st.tuples(st.just("wait"), st.tuples(st.just(0), st.none())),
)


@given(st.lists(steps, max_size=60), st.sampled_from([8, 16, 64]))
def test_due_times_do_what_a_sorted_list_does(
    history: list[tuple[str, Any]], run_entries: int
) -> None:
    # Small runs, so that short histories pack, shrink and merge them.
    with (
        patch.object(module, "RUN_ENTRIES", run_entries),
        patch.object(module, "_RUN_ENTRIES_LEAST", run_entries // 8),
    ):
        run_history(history)


@given(st.integers(0, 2**32), st.sampled_from([8, 32]), st.sampled_from([20, 2_000]))
def test_crowded_runs_that_overlap_are_merged_in_order(
    seed: int, run_entries: int, span_ms: int
) -> None:
    chance = Random(seed)
    history: list[tuple[str, Any]] = []
    for step in range(30):
        base_offset = chance.choice([0, step * 50, 10**15])
        added = [
            (step + chance.randrange(span_ms), base_offset + chance.randrange(100))
            for _ in range(chance.randrange(80))
        ]
        history.append(("add_many", added))
        limit = chance.choice([None, 1, 7, 40])
        history.append(("pop", (step + chance.randrange(span_ms // 2), limit)))
    with (
        patch.object(module, "RUN_ENTRIES", run_entries),
        patch.object(module, "_RUN_ENTRIES_LEAST", run_entries // 8),
    ):
        run_history(history)


def run_history(history: list[tuple[str, Any]]) -> None:
    due, twin = DueTimes(), SortedList()
    now_ms = START_MS
    for name, argument in history:
        if name == "add":
            delay_ms, offset = argument
            due_ms = min(START_MS + delay_ms, TIMESTAMP_MS_MAX)
            due.add(due_ms, offset)
            twin.entries.append((due_ms, offset))
        elif name == "add_many":
            added = [(START_MS + delay_ms, offset) for delay_ms, offset in argument]
            due.add_many((time for time, _ in added), [offset for _, offset in added])
            twin.entries += added
        elif name == "pop":
            delay_ms, limit = argument
            now_ms = START_MS + delay_ms
            assert due.pop_due(now_ms, limit) == twin.pop_due(now_ms, limit)
        else:
            wait_for_next(due, twin)
        assert len(due) == len(twin.entries)
        assert due.next_due_ms() == min((time for time, _ in twin.entries), default=None)
        assert sorted(due) == list(due.in_order(0)) == sorted(twin.entries)
        for _, start in twin.entries[:1]:
            behind = [entry for entry in sorted(twin.entries) if entry[1] >= start]
            assert list(due.in_order(start)) == behind
    assert due.pop_due(TIMESTAMP_MS_MAX) == twin.pop_due(TIMESTAMP_MS_MAX, None)


def wait_for_next(due: DueTimes, twin: SortedList) -> None:
    """An idle caller is woken once, exactly when there is something to do."""
    next_ms = due.next_due_ms()
    if next_ms is None:
        return
    assert due.pop_due(next_ms - 1) == []
    popped = due.pop_due(next_ms)
    assert popped
    assert popped == twin.pop_due(next_ms, None)
