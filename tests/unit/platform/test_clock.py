"""The clock and the entropy of the system."""

from __future__ import annotations

import itertools
import time

import pytest

from headrace.core.ports import Clock, Entropy
from headrace.platform.clock import AGREED_MS, SystemClock
from headrace.platform.entropy import SystemEntropy


class System:
    """The clocks of a machine, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ms, self.monotonic_ms, self.asleep_ms = 1_700_000_000_000, 5_000, 0
        monkeypatch.setattr(time, "time_ns", lambda: self.wall_ms * 1_000_000)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.monotonic_ms * 1_000_000)
        monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
        monkeypatch.setattr(time, "clock_gettime_ns", self._since_boot)

    def _since_boot(self, clock: int) -> int:
        assert clock == 7
        return (self.monotonic_ms + self.asleep_ms) * 1_000_000

    def live(self, duration_ms: int) -> None:
        self.wall_ms += duration_ms
        self.monotonic_ms += duration_ms

    def sleep(self, duration_ms: int) -> None:
        self.wall_ms += duration_ms
        self.asleep_ms += duration_ms


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    return System(monkeypatch)


def test_the_clock_shows_the_systems_time(system: System) -> None:
    clock = SystemClock()
    for _ in range(3):
        system.live(1_234)
        assert clock.read() == (system.wall_ms, 0, 0)


@pytest.mark.parametrize("by_ms", [3_600_000, -3_600_000, 1_001, -1_001])
def test_a_system_clock_that_is_set_is_followed_at_once_and_told(
    system: System, by_ms: int
) -> None:
    clock = SystemClock()
    system.wall_ms += by_ms
    system.live(1)
    assert clock.read() == (system.wall_ms, by_ms, 0)
    system.live(500)
    assert clock.read() == (system.wall_ms, by_ms, 0)


@pytest.mark.parametrize("by_ms", [900, -900])
def test_up_to_a_second_is_made_up_for_without_ever_going_back(system: System, by_ms: int) -> None:
    clock = SystemClock()
    system.wall_ms += by_ms
    shown = [clock.now_ms()]
    for _ in range(2_000):
        system.live(10)
        shown.append(clock.now_ms())
    steps = {after - before for before, after in itertools.pairwise(shown)}
    assert steps <= {9, 10, 11}
    assert abs(shown[-1] - system.wall_ms) <= AGREED_MS
    assert clock.read()[1:] == (0, 0)


def test_a_machine_that_slept_says_for_how_long(system: System) -> None:
    clock = SystemClock()
    system.sleep(8 * 3_600_000)
    assert clock.read() == (system.wall_ms, 8 * 3_600_000, 8 * 3_600_000)
    system.wall_ms -= 60_000
    system.live(1)
    assert clock.read() == (system.wall_ms, 8 * 3_600_000 - 60_000, 8 * 3_600_000)


def test_a_system_that_does_not_tell_sleep_from_a_set_clock_is_taken_at_its_word(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    clock = SystemClock()
    system.sleep(60_000)
    assert clock.read() == (system.wall_ms, 60_000, 0)


def test_random_bytes_are_as_many_as_asked_for_and_differ() -> None:
    entropy = SystemEntropy()
    assert len(entropy.random_bytes(16)) == 16
    assert entropy.random_bytes(16) != entropy.random_bytes(16)
    assert entropy.random_bytes(0) == b""


def test_both_are_what_the_ports_ask_for() -> None:
    assert isinstance(SystemClock(), Clock)
    assert isinstance(SystemEntropy(), Entropy)
