"""The dedup window: exact in time, bounded in memory."""

from __future__ import annotations

import pytest

from headrace.core.errors import InvalidArgument
from headrace.engine.dedup import EXPIRED_PER_CALL_MAX, DedupWindow

WINDOW_MS = 1_000


def test_an_id_is_found_at_its_first_offset_until_its_window_ends() -> None:
    window = DedupWindow(WINDOW_MS, 10)
    window.remember(b"a", 7, 5_000)
    assert window.find(b"a", 5_000) == 7
    assert window.find(b"a", 5_999) == 7
    assert window.find(b"a", 6_000) is None
    assert window.find(b"b", 5_000) is None


def test_the_earlier_publication_stands_within_its_window() -> None:
    window = DedupWindow(WINDOW_MS, 10)
    window.remember(b"a", 7, 5_000)
    window.remember(b"a", 8, 5_500)
    assert window.find(b"a", 5_600) == 7
    assert window.find(b"a", 6_100) is None


def test_an_id_that_comes_again_after_its_window_is_new() -> None:
    window = DedupWindow(WINDOW_MS, 10)
    window.remember(b"a", 7, 5_000)
    window.remember(b"a", 9, 6_000)
    assert window.find(b"a", 6_999) == 9
    assert window.expire(6_500) == 0
    assert window.find(b"a", 6_999) == 9


def test_expired_ids_are_freed() -> None:
    window = DedupWindow(WINDOW_MS, 10)
    window.remember(b"a", 1, 5_000)
    window.remember(b"b", 2, 5_500)
    assert window.expire(5_999) == 0
    assert window.expire(6_000) == 1
    assert len(window) == 1
    assert window.find(b"b", 6_000) == 2
    assert window.evicted == 0


def test_one_call_frees_a_bounded_number() -> None:
    window = DedupWindow(WINDOW_MS, 2 * EXPIRED_PER_CALL_MAX)
    for number in range(EXPIRED_PER_CALL_MAX + 5):
        window.remember(b"%d" % number, number, 5_000)
    assert window.expire(9_000) == EXPIRED_PER_CALL_MAX
    assert window.find(b"%d" % (EXPIRED_PER_CALL_MAX + 1), 9_000) is None
    assert window.expire(9_000) == 5
    assert len(window) == 0


def test_remembering_alone_keeps_memory_in_step_with_the_window() -> None:
    window = DedupWindow(WINDOW_MS, 1_000_000)
    for number in range(5_000):
        window.remember(b"%d" % number, number, number * 100)
    assert len(window) == 10
    assert window.evicted == 0


def test_the_oldest_ids_go_first_when_there_are_too_many() -> None:
    window = DedupWindow(WINDOW_MS, 3)
    for number in range(5):
        window.remember(b"%d" % number, number, 5_000)
    assert len(window) == 3
    assert window.evicted == 2
    assert [window.find(b"%d" % number, 5_000) for number in range(5)] == [None, None, 2, 3, 4]


def test_a_clock_that_is_set_moves_all_ids_along() -> None:
    window = DedupWindow(WINDOW_MS, 10)
    window.remember(b"a", 1, 5_000)
    for by_ms in (1_000_000, -3_000_000):
        window.on_clock_set(by_ms)
    now_ms = 5_500 - 2_000_000
    window.remember(b"a", 2, now_ms)
    window.remember(b"b", 3, now_ms)
    assert window.find(b"a", now_ms + 499) == 1
    assert window.find(b"a", now_ms + 500) is None
    assert window.find(b"b", now_ms + 999) == 3
    assert window.expire(now_ms + 999) == 1
    assert window.expire(now_ms + 1_000) == 1


def test_a_time_far_ahead_does_not_let_memory_grow() -> None:
    window = DedupWindow(WINDOW_MS, 50)
    window.remember(b"from the future", 0, 10**12)
    for number in range(1, 1_000):
        window.remember(b"again", number, number * WINDOW_MS)
    assert window.evicted == 1
    assert len(window) == 1
    assert window.find(b"again", 999 * WINDOW_MS) == 999


def test_truncation_forgets_what_was_published_at_and_above_the_offset() -> None:
    window = DedupWindow(WINDOW_MS, 10)
    for number in range(5):
        window.remember(b"%d" % number, number, 5_000 + number)
    window.truncate_to(3)
    assert [window.find(b"%d" % number, 5_010) for number in range(5)] == [0, 1, 2, None, None]
    window.remember(b"4", 3, 5_020)
    assert window.find(b"4", 5_020) == 3
    assert window.expire(6_002) == 3
    assert len(window) == 1


def test_truncation_forgets_both_places_of_an_id_that_came_again() -> None:
    window = DedupWindow(WINDOW_MS, 10)
    window.remember(b"ahead", 1, 5_500)
    window.remember(b"a", 7, 5_000)
    window.remember(b"a", 9, 6_000)
    window.truncate_to(5)
    assert window.find(b"a", 6_000) is None
    assert window.find(b"ahead", 6_000) == 1
    assert len(window) == 1


def test_offsets_come_in_the_order_of_the_log() -> None:
    window = DedupWindow(WINDOW_MS, 10)
    window.remember(b"a", 7, 5_000)
    with pytest.raises(InvalidArgument, match="offset 6 comes after 7"):
        window.remember(b"b", 6, 5_000)
    assert window.find(b"b", 5_000) is None
    window.truncate_to(6)
    window.remember(b"b", 6, 5_000)
    assert window.find(b"b", 5_000) == 6


def test_long_ids_are_told_apart_and_never_taken_for_a_short_one() -> None:
    window = DedupWindow(WINDOW_MS, 10)
    long_id = b"order-" * 20
    window.remember(long_id + b"1", 1, 5_000)
    window.remember(long_id + b"2", 2, 5_000)
    window.remember(long_id[:16], 3, 5_000)
    window.remember(b"", 4, 5_000)
    found = [window.find(name, 5_000) for name in (long_id + b"1", long_id + b"2", long_id[:16])]
    assert found == [1, 2, 3]
    assert window.find(long_id, 5_000) is None
    assert window.find(b"", 5_000) == 4


def test_a_thousand_long_ids_are_a_thousand_ids() -> None:
    window = DedupWindow(WINDOW_MS, 1_000)
    names = [b"a name of more than sixteen bytes, number %d" % number for number in range(1_000)]
    for number, name in enumerate(names):
        window.remember(name, number, 5_000)
    assert [window.find(name, 5_000) for name in names] == list(range(1_000))


def test_a_window_without_size_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        DedupWindow(0, 10)
    with pytest.raises(InvalidArgument):
        DedupWindow(WINDOW_MS, 0)
