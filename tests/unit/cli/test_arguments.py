"""What people type is read exactly, or refused with an example of a good word."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headrace.cli.arguments import (
    parse_duration_ms,
    parse_header,
    parse_moment_ms,
    parse_setting,
    parse_size_bytes,
    parse_start,
)
from headrace.core.settings import GroupSettings, TopicSettings


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("250ms", 250),
        ("5s", 5_000),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("3d", 259_200_000),
        ("1h30m", 5_400_000),
        ("1.5s", 1_500),
        ("0s", 0),
    ],
)
def test_a_duration_is_read_in_every_unit(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "-5s", "5s!", "5y", "s5", "1h 30m", "٥s x"])
def test_what_is_not_a_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="250ms, 5s, 2m"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("512", 512), ("64KB", 65_536), ("64kib", 65_536), ("2MB", 2 * 1024**2), ("1G", 1024**3)],
)
def test_a_size_is_read_in_every_unit(text: str, size_bytes: int) -> None:
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "MB", "1.5MB", "-1", "1XB"])
def test_what_is_not_a_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="64KB"):
        parse_size_bytes(text)


def test_a_moment_with_an_offset_is_that_moment() -> None:
    expected = datetime(2027, 1, 31, 8, 0, tzinfo=UTC).timestamp() * 1000
    assert parse_moment_ms("2027-01-31T09:00:00+01:00") == expected
    assert parse_moment_ms("2027-01-31T08:00:00Z") == expected


def test_a_moment_without_an_offset_is_local_time() -> None:
    expected = datetime(2027, 1, 31, 9, 0).astimezone().timestamp() * 1000
    assert parse_moment_ms("2027-01-31T09:00") == expected


@pytest.mark.parametrize("text", ["", "tomorrow", "2027-13-01", "09:00"])
def test_what_is_not_a_moment_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="2027-01-31T09:00"):
        parse_moment_ms(text)


def test_a_start_is_a_word_an_offset_or_a_moment() -> None:
    assert parse_start("earliest") == "earliest"
    assert parse_start("latest") == "latest"
    assert parse_start("4096") == ("offset", 4096)
    assert parse_start("1970-01-01T00:00:01Z") == ("time", 1_000)
    with pytest.raises(ValueError, match="earliest, latest, an offset"):
        parse_start("newest")


def test_a_setting_may_be_a_duration_or_a_size_and_any_dash_is_an_underscore() -> None:
    assert parse_setting("retention_ms=2d") == ("retention_ms", 172_800_000)
    assert parse_setting("segment-bytes=64MB") == ("segment_bytes", 64 * 1024**2)
    assert parse_setting("record_bytes_max=1MB") == ("record_bytes_max", 1024**2)
    assert parse_setting("ordering=key") == ("ordering", "key")


def test_a_setting_in_plain_numbers_or_none_is_left_to_the_settings() -> None:
    name, value = parse_setting("retention_ms=none")
    assert TopicSettings().changed({name: value}).retention_ms is None
    name, value = parse_setting("visibility_ms=1500")
    assert GroupSettings().changed({name: value}).visibility_ms == 1500


@pytest.mark.parametrize("text", ["", "retention_ms", "=5"])
def test_a_setting_without_name_or_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="name=value"):
        parse_setting(text)


def test_a_header_keeps_every_equals_sign_but_the_first() -> None:
    assert parse_header("query=a=b&c=d") == ("query", b"a=b&c=d")
    assert parse_header("empty=") == ("empty", b"")
    with pytest.raises(ValueError, match="name=value"):
        parse_header("trace")
