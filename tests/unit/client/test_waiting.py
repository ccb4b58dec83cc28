"""The bell that ends waits, and how long a thread sleeps."""

from __future__ import annotations

import threading

from headrace.client.waiting import Bell, left_ms, over, pause, sleep
from headrace.testing import ManualClock


def test_the_first_ring_alone_is_the_first() -> None:
    bell = Bell()
    assert bell.ring()
    assert bell.rung
    assert not bell.ring()


def test_a_ring_wakes_those_who_listen_and_nobody_else() -> None:
    bell = Bell()
    here, gone = threading.Event(), threading.Event()
    bell.add_listener(here.set)
    bell.add_listener(gone.set)
    bell.remove_listener(gone.set)
    bell.ring()
    assert here.is_set()
    assert not gone.is_set()


def test_the_earlier_of_two_moments_ends_a_sleep() -> None:
    clock = ManualClock(5.0)
    assert left_ms(clock, None, None) is None
    assert left_ms(clock, 5_005, None) == left_ms(clock, None, 5_005) == 5
    assert left_ms(clock, 5_005, 5_009) == left_ms(clock, 5_009, 5_005) == 5


def test_a_clock_that_is_set_moves_due_times_and_not_the_end_of_a_wait() -> None:
    clock = ManualClock(100.0)
    clock.jump(-90)
    assert left_ms(clock, 100_005, None) == 5
    assert left_ms(clock, None, 100_005) == 90_005
    assert not over(clock, 100_005)
    clock.jump(3_600)
    assert not over(clock, 100_005)
    clock.skip(0.005)
    assert over(clock, 100_005)


def test_a_wait_without_an_end_is_never_over() -> None:
    clock = ManualClock(5.0)
    assert not over(clock, None)
    assert not over(clock, 5_001)
    assert over(clock, 5_000)


def test_a_sleep_moves_a_clock_that_skips_by_itself() -> None:
    clock = ManualClock(5.0)
    sleep(clock, threading.Event(), 4_000)
    assert clock.now_ms() == 9_000


def test_a_sleep_until_the_past_takes_a_millisecond_and_does_not_spin() -> None:
    clock = ManualClock(5.0)
    sleep(clock, threading.Event(), left_ms(clock, None, 1_000))
    assert clock.now_ms() == 5_001


def test_a_sleeper_that_was_woken_does_not_move_the_clock() -> None:
    clock = ManualClock(5.0)
    event = threading.Event()
    event.set()
    sleep(clock, event, 4_000)
    assert clock.now_ms() == 5_000


def test_a_pause_on_a_clock_that_does_not_skip_ends_when_somebody_skips() -> None:
    clock = ManualClock(5.0, autoskip=False)
    listening = threading.Event()
    add_listener = clock.add_listener

    def add_and_tell(wake: object) -> None:
        add_listener(wake)  # type: ignore[arg-type]
        listening.set()

    clock.add_listener = add_and_tell  # type: ignore[method-assign]
    thread = threading.Thread(target=pause, args=(clock, 60_000))
    thread.start()
    listening.wait()
    clock.skip(59)
    clock.skip(1)
    thread.join(timeout=60)
    assert not thread.is_alive()
