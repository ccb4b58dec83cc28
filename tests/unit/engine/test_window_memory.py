"""What a window keeps in memory: many groups may read a topic, and most of them late."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import TypeVar

from headrace.engine.window import ACKED, CHUNK, LEASED, READY, Window

GROUPS = 50
T = TypeVar("T")


def bytes_kept(make: Callable[[], T]) -> tuple[T, int]:
    """What was made, and how many bytes more are in use since."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        made = make()
        return made, tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def backlog(count: int) -> Window:
    window = Window(0)
    window.extend(count, READY)
    return window


def test_groups_that_have_not_come_to_a_backlog_keep_no_bytes_for_it() -> None:
    windows, kept = bytes_kept(lambda: [backlog(10 * CHUNK) for _ in range(GROUPS)])
    assert [window.ready()[0] for window in windows] == [10 * CHUNK] * GROUPS
    assert kept < GROUPS * CHUNK


def test_a_backlog_keeps_no_bytes_after_a_restart_either() -> None:
    pieces = list(backlog(10 * CHUNK).pieces())

    def restored() -> Window:
        window = Window(0)
        for number, state, attempts in pieces:
            window.restore_piece(number, state, attempts)
        window.end = 10 * CHUNK
        return window

    windows, kept = bytes_kept(lambda: [restored() for _ in range(GROUPS)])
    assert [window.ready()[0] for window in windows] == [10 * CHUNK] * GROUPS
    assert kept < GROUPS * CHUNK


def test_what_one_group_does_with_a_backlog_is_not_seen_by_another() -> None:
    mine, other = backlog(2 * CHUNK), backlog(2 * CHUNK)
    mine.lease([CHUNK - 1, CHUNK + 1], grant=1, attempts=1)
    assert [mine.state_at(offset) for offset in (CHUNK - 2, CHUNK - 1, CHUNK)] == [
        READY, LEASED, LEASED,
    ]  # fmt: skip
    assert other.ready()[0] == 2 * CHUNK
    assert other.find_ready(0, CHUNK) == [0, CHUNK]
    mine.put(0, 2 * CHUNK, ACKED)
    assert mine.advance()
    assert other.states_at(range(0, 2 * CHUNK, 1_000)) == [READY] * len(range(0, 2 * CHUNK, 1_000))


def test_a_backlog_that_is_cut_off_goes_on_where_it_ends() -> None:
    window, other = backlog(CHUNK), backlog(CHUNK)
    window.truncate_to(10)
    window.extend(5, READY | 1 << 4)
    assert [window.value_at(offset) for offset in (9, 10, 14)] == [READY, 16, 16]
    assert other.value_at(10) == READY


def test_a_lease_of_a_few_messages_keeps_bytes_for_a_few() -> None:
    windows = [backlog(CHUNK - 1) for _ in range(GROUPS)]

    def lease() -> None:
        for window in windows:
            window.lease([0, 100], grant=1, attempts=1)

    _, kept = bytes_kept(lease)
    assert windows[0].uniform_grant(0, 100, 1) == 1
    assert windows[0].attempts_at(101) == 0
    assert windows[0].grants_in(0, CHUNK - 1) == {1}
    assert kept < GROUPS * CHUNK
