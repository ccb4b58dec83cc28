"""Durations and instants, between what people write and milliseconds.

    duration   seconds as a number, or a timedelta
    instant    an aware datetime, or seconds since 1970 as a number

A datetime without a time zone is refused: the same words would mean another
moment on another machine, and a message would come hours early or late.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from headrace.core.errors import InvalidArgument
from headrace.core.limits import TIMESTAMP_MS_MAX
from headrace.core.wording import counted

Duration = float | timedelta
Instant = datetime | float

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def duration_ms(name: str, value: object, *, least_ms: int = 0, rounds_up: bool = False) -> int:
    """A duration in whole milliseconds; InvalidArgument names the argument. `rounds_up`:
    never shorter than what was given."""
    if rounds_up and isinstance(value, timedelta):
        milliseconds = -(-value // _MILLISECOND)
    elif isinstance(value, timedelta):
        milliseconds = value // _MILLISECOND
    elif rounds_up and isinstance(value, float) and math.isfinite(value):
        # What binary fractions add to 0.1 s is not meant.
        milliseconds = math.ceil(round(value * 1000, 6))
    else:
        milliseconds = _seconds_to_ms(name, value, "seconds or a timedelta")
    if milliseconds < least_ms:
        raise InvalidArgument(
            f"{name} must be at least {counted(least_ms / 1000, 'second')}, not {value}"
        )
    if milliseconds > TIMESTAMP_MS_MAX:
        raise InvalidArgument(f"{name} is longer than time lasts: {value}")
    return milliseconds


def optional_duration_ms(name: str, value: object, *, least_ms: int = 0) -> int | None:
    return None if value is None else duration_ms(name, value, least_ms=least_ms)


def instant_ms(name: str, value: object) -> int:
    """An instant in milliseconds since 1970; InvalidArgument names the argument."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidArgument(
                f"{name} needs a time zone, for example datetime.now(timezone.utc); "
                f"{value} has none"
            )
        milliseconds = (value - _EPOCH) // _MILLISECOND
    else:
        milliseconds = _seconds_to_ms(name, value, "a datetime or seconds since 1970")
    if not 0 <= milliseconds <= TIMESTAMP_MS_MAX:
        raise InvalidArgument(f"{name} must lie between 1970 and the end of time, not at {value}")
    return milliseconds


def datetime_of(milliseconds: int) -> datetime:
    """An aware datetime in UTC; the first or the last one there is for what lies beyond,
    since a message may be of a year, or due in one, that Python cannot write."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        beyond = datetime.min if milliseconds < 0 else datetime.max
        return beyond.replace(tzinfo=UTC)


def optional_datetime_of(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime_of(milliseconds)


def _seconds_to_ms(name: str, value: object, expected: str) -> int:
    # A bool is an int to Python, and never what somebody meant as a time.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{name} must be {expected}, not {type(value).__name__}")
    if not math.isfinite(value):
        raise InvalidArgument(f"{name} must be a finite number, not {value}")
    return round(value * 1000)
