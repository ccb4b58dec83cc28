"""A clock that moves when it is told to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace.core.errors import InvalidArgument
from headrace.core.ports import Clock
from headrace.testing import ManualClock


def test_the_clock_stands_still_until_it_is_told() -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    assert isinstance(clock, Clock)
    assert clock.now_ms() == clock.now_ms() == 1_767_225_600_000
    clock.skip(1.5)
    clock.skip(timedelta(seconds=1))
    assert clock.now() == datetime(2026, 1, 1, 0, 0, 2, 500_000, tzinfo=UTC)


def test_every_skip_wakes_those_who_wait() -> None:
    clock = ManualClock()
    woken = []
    wake = lambda: woken.append(clock.now_ms())  # noqa: E731
    clock.add_listener(wake)
    clock.skip(1)
    clock.skip_to(clock.now_ms() + 5)
    clock.remove_listener(wake)
    clock.skip(1)
    assert len(woken) == 2


def test_skipping_to_the_past_changes_nothing() -> None:
    clock = ManualClock(10.0)
    clock.skip_to(9_000)
    assert clock.now_ms() == 10_000


def test_time_never_goes_back() -> None:
    clock = ManualClock()
    with pytest.raises(InvalidArgument):
        clock.skip(-1)
    with pytest.raises(InvalidArgument, match="cannot go back"):
        clock.set(datetime(2020, 1, 1, tzinfo=UTC))


def test_the_clock_can_be_set_to_a_later_moment() -> None:
    clock = ManualClock()
    moment = datetime(2031, 5, 6, tzinfo=UTC)
    clock.set(moment)
    assert clock.now() == moment


def test_alarms_ring_on_the_way_with_the_clock_at_their_time() -> None:
    clock = ManualClock(0.0)
    rung: list[tuple[str, int]] = []

    def again() -> None:
        rung.append(("again", clock.now_ms()))
        clock.add_alarm(clock.now_ms() + 4_000, again)

    never = lambda: rung.append(("never", 0))  # noqa: E731
    clock.add_alarm(6_000, lambda: rung.append(("once", clock.now_ms())))
    clock.add_alarm(4_000, again)
    clock.add_alarm(5_000, never)
    clock.remove_alarm(never)
    clock.skip(9)
    assert rung == [("again", 4_000), ("once", 6_000), ("again", 8_000)]
    assert clock.now_ms() == 9_000
    clock.skip_to(13_000)
    assert rung[3:] == [("again", 12_000)]
    assert clock.now_ms() == 13_000
