"""The breaker that stops a redrive when everything comes back."""

from __future__ import annotations

from headrace.client.redrive import breaker_opens


def test_the_breaker_waits_for_enough_messages_to_judge() -> None:
    assert not breaker_opens([(0, 0), (10, 10)], sent=19, returned=19)
    assert breaker_opens([(0, 0), (10, 10)], sent=20, returned=20)


def test_half_of_the_messages_may_come_back() -> None:
    assert not breaker_opens([(0, 0)], sent=20, returned=10)
    assert breaker_opens([(0, 0)], sent=20, returned=11)


def test_only_the_latest_messages_count() -> None:
    long_ago_all_was_well = [(0, 0), (1_000, 0), (1_010, 5)]
    assert breaker_opens(long_ago_all_was_well, sent=1_020, returned=15)
    long_ago_all_failed = [(0, 0), (18, 18)]
    assert not breaker_opens(long_ago_all_failed, sent=1_000, returned=18)


def test_what_it_says_is_what_it_goes_by() -> None:
    history = [(0, 0), (500, 100), (1_000, 300)]
    assert breaker_opens(history, sent=1_500, returned=600) == (500, 300)
