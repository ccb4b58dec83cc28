"""Due times: never early, never held back."""

from __future__ import annotations

from array import array

import pytest

from headrace.core.errors import InvalidArgument
from headrace.core.limits import TIMESTAMP_MS_MAX
from headrace.engine.due import RUN_ENTRIES, DueTimes

NOW_MS = 1_700_000_000_000
TEN_YEARS_MS = 10 * 365 * 24 * 3600 * 1000


def test_nothing_is_due_when_nothing_was_added() -> None:
    due = DueTimes()
    assert due.next_due_ms() is None
    assert due.pop_due(TIMESTAMP_MS_MAX) == []
    assert len(due) == 0


def test_an_offset_is_popped_at_its_millisecond_and_not_before() -> None:
    due = DueTimes()
    due.add(NOW_MS + 1000, 7)
    assert due.pop_due(NOW_MS + 999) == []
    assert due.next_due_ms() == NOW_MS + 1000
    assert due.pop_due(NOW_MS + 1000) == [7]
    assert due.next_due_ms() is None


def test_an_offset_that_was_due_in_the_past_is_popped_by_the_next_call() -> None:
    due = DueTimes()
    due.add(0, 3)
    due.add(-5, 4)
    assert due.pop_due(NOW_MS) == [4, 3]


def test_offsets_come_by_due_time_and_then_by_offset() -> None:
    due = DueTimes()
    due.add_many([NOW_MS + 2, NOW_MS + 1, NOW_MS + 2, NOW_MS + 1], [10, 30, 5, 20])
    assert due.pop_due(NOW_MS + 2) == [20, 30, 5, 10]


def test_many_entries_added_latest_first_come_earliest_first() -> None:
    due = DueTimes()
    due.add_many(range(NOW_MS + 1000, NOW_MS, -1), range(1000))
    assert due.next_due_ms() == NOW_MS + 1
    assert due.pop_due(NOW_MS + 10) == list(range(999, 989, -1))
    assert due.pop_due(NOW_MS + 500, limit=5) == list(range(989, 984, -1))
    assert due.next_due_ms() == NOW_MS + 16


def test_a_limit_takes_the_first_of_that_order_and_leaves_the_rest() -> None:
    due = DueTimes()
    due.add_many([NOW_MS + 2, NOW_MS + 1, NOW_MS + 2, NOW_MS + 1], [10, 30, 5, 20])
    assert due.pop_due(NOW_MS + 9, limit=0) == []
    assert due.pop_due(NOW_MS + 9, limit=3) == [20, 30, 5]
    assert len(due) == 1
    assert due.pop_due(NOW_MS + 9, limit=3) == [10]


def test_an_offset_added_twice_is_popped_twice() -> None:
    due = DueTimes()
    due.add(NOW_MS, 1)
    due.add(NOW_MS, 1)
    assert due.pop_due(NOW_MS) == [1, 1]


def test_packed_entries_are_exact_across_ten_years() -> None:
    count = 3 * RUN_ENTRIES + 17
    times = [NOW_MS + (place * 7919 % count) * (TEN_YEARS_MS // count) for place in range(count)]
    due = DueTimes()
    due.add_many(array("q", times), array("q", range(count)))
    expected = sorted(range(count), key=times.__getitem__)
    for place in (0, 1, 5000, count - 1):
        first_ms = times[expected[place]]
        popped = due.pop_due(first_ms - 1)
        assert all(times[offset] < first_ms for offset in popped)
        assert due.next_due_ms() == first_ms
        assert due.pop_due(first_ms) == [expected[place]]
    assert len(due) == 0


def test_calls_that_are_days_apart_miss_nothing() -> None:
    due = DueTimes()
    for place in range(2 * RUN_ENTRIES):
        due.add(NOW_MS + place * 60_000, place)
    assert due.pop_due(NOW_MS + 3 * 24 * 3_600_000) == list(range(3 * 24 * 60 + 1))
    assert due.pop_due(NOW_MS + TEN_YEARS_MS) == list(range(3 * 24 * 60 + 1, 2 * RUN_ENTRIES))


def test_a_span_beyond_64_bits_is_kept_as_exactly_as_any_other() -> None:
    count = RUN_ENTRIES
    times = [place * (TIMESTAMP_MS_MAX // count) for place in range(count)]
    offsets = [place * (2**63 // count) for place in range(count)]
    due = DueTimes()
    due.add_many(times, offsets)
    assert due.pop_due(times[100]) == offsets[:101]
    assert due.pop_due(times[200], limit=50) == offsets[101:151]
    assert due.next_due_ms() == times[151]
    assert sorted(due) == list(zip(times, offsets, strict=True))[151:]
    assert due.pop_due(TIMESTAMP_MS_MAX) == offsets[151:]


def test_far_entries_among_near_ones_do_not_pin_a_run_each() -> None:
    due = DueTimes()
    for turn in range(20):
        start = turn * RUN_ENTRIES
        times = [NOW_MS + turn] * RUN_ENTRIES
        times[0] = NOW_MS + TEN_YEARS_MS
        due.add_many(times, range(start, start + RUN_ENTRIES))
        assert len(due.pop_due(NOW_MS + turn)) == RUN_ENTRIES - 1
    assert len(due) == 20
    assert due.packed_bytes() == 0


def test_entries_within_minutes_take_4_bytes_and_across_ten_years_8() -> None:
    for span_ms, entry_bytes in ((60_000, 4), (TEN_YEARS_MS, 8)):
        due = DueTimes()
        times = [NOW_MS + place * span_ms // RUN_ENTRIES for place in range(RUN_ENTRIES)]
        due.add_many(times, range(10**12, 10**12 + RUN_ENTRIES))
        assert due.packed_bytes() < RUN_ENTRIES * entry_bytes + 200


def test_a_run_that_is_half_popped_gives_the_space_back() -> None:
    due = DueTimes()
    due.add_many(range(RUN_ENTRIES), range(RUN_ENTRIES))
    whole_bytes = due.packed_bytes()
    due.pop_due(RUN_ENTRIES * 3 // 4)
    assert len(due) == RUN_ENTRIES // 4 - 1
    assert due.packed_bytes() < whole_bytes // 2


def test_runs_at_the_edge_of_an_array_type_are_exact() -> None:
    # 12 bits of offset and 20, 21, 52 or 53 bits of time: just within 32 and
    # 64 bits, and just beyond.
    for time_bits in (20, 21, 52, 53):
        times = [0] * (RUN_ENTRIES - 1) + [2**time_bits - 1]
        due = DueTimes()
        due.add_many(times, range(RUN_ENTRIES))
        assert due.pop_due(2**time_bits - 2) == list(range(RUN_ENTRIES - 1))
        assert due.next_due_ms() == 2**time_bits - 1
        assert due.pop_due(2**time_bits - 1) == [RUN_ENTRIES - 1]


def test_iterating_shows_every_entry_with_its_due_time() -> None:
    due = DueTimes()
    entries = [(NOW_MS + place % 97, place) for place in range(RUN_ENTRIES + 50)]
    due.add_many([time for time, _ in entries], [offset for _, offset in entries])
    assert sorted(due) == sorted(entries)
    assert len(due) == len(entries)


def test_clearing_forgets_everything() -> None:
    due = DueTimes()
    due.add_many(range(RUN_ENTRIES + 1), range(RUN_ENTRIES + 1))
    due.clear()
    assert len(due) == 0
    assert list(due) == []
    assert due.next_due_ms() is None


def test_values_out_of_range_are_refused_and_change_nothing() -> None:
    due = DueTimes()
    with pytest.raises(InvalidArgument):
        due.add(TIMESTAMP_MS_MAX + 1, 0)
    with pytest.raises(InvalidArgument):
        due.add(NOW_MS, -1)
    with pytest.raises(InvalidArgument):
        due.add_many([NOW_MS] * 5000, [*range(4999), 2**63])
    with pytest.raises(InvalidArgument):
        due.add_many([NOW_MS, NOW_MS], [1])
    assert len(due) == 0
    due.add(TIMESTAMP_MS_MAX, 2**63 - 1)
    assert due.pop_due(TIMESTAMP_MS_MAX - 1) == []
    assert due.pop_due(TIMESTAMP_MS_MAX) == [2**63 - 1]
