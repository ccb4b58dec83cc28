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
