"""Durations and instants, between what people write and milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest

from headrace.client.times import datetime_of, duration_ms, instant_ms, optional_duration_ms
from headrace.core.errors import InvalidArgument


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        (0, 0),
        (5, 5_000),
        (0.25, 250),
        (0.57, 570),
        (timedelta(minutes=2), 120_000),
        (timedelta(microseconds=1500), 1),
    ],
)
def test_a_duration_is_seconds_or_a_timedelta(given: float | timedelta, milliseconds: int) -> None:
    assert duration_ms("delay", given) == milliseconds


@pytest.mark.parametrize(
    "given", [-1, timedelta(seconds=-1), float("nan"), float("inf"), True, "5s", None, 2**62]
)
def test_what_is_no_duration_is_refused_by_its_name(given: object) -> None:
    with pytest.raises(InvalidArgument, match="delay"):
        duration_ms("delay", given)


def test_a_duration_can_have_a_least_value() -> None:
    assert duration_ms("ttl", 0.001, least_ms=1) == 1
    with pytest.raises(InvalidArgument, match=r"ttl must be at least 0\.001 seconds"):
        duration_ms("ttl", 0, least_ms=1)


def test_no_duration_given_is_none() -> None:
    assert optional_duration_ms("wait", None) is None


@pytest.mark.parametrize(
    "given",
    [
        datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
        datetime(2026, 1, 2, 5, 4, 5, 678_000, tzinfo=timezone(timedelta(hours=2))),
        1767323045.678,
    ],
)
def test_an_instant_is_an_aware_datetime_or_epoch_seconds(given: datetime | float) -> None:
    assert instant_ms("deliver_at", given) == 1_767_323_045_678


def test_a_datetime_without_a_time_zone_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="deliver_at needs a time zone"):
        instant_ms("deliver_at", datetime(2026, 1, 2))


@pytest.mark.parametrize("given", [-1, datetime(1960, 1, 1, tzinfo=UTC), "tomorrow", True])
def test_what_is_no_instant_is_refused_by_its_name(given: object) -> None:
    with pytest.raises(InvalidArgument, match="deliver_at"):
        instant_ms("deliver_at", given)


def test_milliseconds_come_back_as_an_aware_datetime() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    assert datetime_of(instant_ms("at", moment)) == moment


def test_an_instant_beyond_the_calendar_is_the_first_or_the_last_one_there_is() -> None:
    assert datetime_of(2**61).year == 9999
    assert datetime_of(-(2**61)).year == 1


@pytest.mark.parametrize("convert", [duration_ms, instant_ms])
def test_what_lies_beyond_all_time_is_refused(convert: Callable[[str, object], int]) -> None:
    with pytest.raises(InvalidArgument, match="time"):
        convert("delay", 1e300)


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [(0.1, 100), (0.0001, 1), (1.0005, 1001), (2, 2000), (timedelta(microseconds=1), 1)],
)
def test_a_delay_is_never_shorter_than_what_was_given(
    given: float | timedelta, milliseconds: int
) -> None:
    assert duration_ms("delay", given, rounds_up=True) == milliseconds
