"""The clock and the entropy of the system."""

from __future__ import annotations

import time

import pytest

from headrace.core.ports import Clock, Entropy
from headrace.platform.clock import SystemClock
from headrace.platform.entropy import SystemEntropy


def test_the_clock_stands_still_while_the_system_is_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = iter([5_000_000, 3_000_000, 4_999_999, 6_000_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(readings))
    clock = SystemClock()
    assert [clock.now_ms() for _ in range(4)] == [5, 5, 5, 6]


def test_random_bytes_are_as_many_as_asked_for_and_differ() -> None:
    entropy = SystemEntropy()
    assert len(entropy.random_bytes(16)) == 16
    assert entropy.random_bytes(16) != entropy.random_bytes(16)
    assert entropy.random_bytes(0) == b""


def test_both_are_what_the_ports_ask_for() -> None:
    assert isinstance(SystemClock(), Clock)
    assert isinstance(SystemEntropy(), Entropy)
