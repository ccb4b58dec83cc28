"""What people type, turned into what the product takes.

    250ms  5s  2m  1h  3d  1h30m     a duration, in milliseconds
    512  64KB  64MiB  1GB            a size, in bytes; K is 1,024 as in every tool for disks
    2027-01-31T09:00:00+01:00        a moment; without an offset it is local time
    name=value                       a setting or a header

A word that cannot be read is a usage error which shows what a good one looks
like; nothing is guessed. A bare number is not a duration: nobody can know
whether 30 meant seconds or milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

import click

from headrace.cli.completing import setting_names

Function = TypeVar("Function", bound=Callable[..., Any])

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_BYTES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_SIZE = re.compile(r"(\d+)([kmgt]?)(?:i?b)?", re.IGNORECASE)


def parse_duration_ms(text: str) -> int:
    """ValueError when `text` is not a duration."""
    total, position = 0.0, 0
    for part in _DURATION_PART.finditer(text):
        if part.start() != position:
            break
        total += float(part[1]) * _UNIT_MS[part[2]]
        position = part.end()
    if position == 0 or position != len(text):
        raise ValueError(f"{text!r} is not a duration; write 250ms, 5s, 2m, 1h, 3d or 1h30m")
    return round(total)


def parse_size_bytes(text: str) -> int:
    """ValueError when `text` is not a size."""
    size = _SIZE.fullmatch(text)
    if size is None:
        raise ValueError(f"{text!r} is not a size; write 512, 64KB, 64MB or 1GB")
    return int(size[1]) * _UNIT_BYTES[size[2].lower()]


def parse_moment_ms(text: str) -> int:
    """ValueError when `text` is not an ISO 8601 date or time."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is not a moment; write 2027-01-31, 2027-01-31T09:00 or "
            "2027-01-31T09:00:00+01:00"
        ) from None


def parse_start(text: str) -> str | tuple[str, int]:
    """Where a stream starts: `earliest`, `latest`, ("offset", n) or ("time", ms)."""
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdecimal():
        return "offset", int(text)
    try:
        return "time", parse_moment_ms(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a start; write earliest, latest, an offset, or a moment such as "
            "2027-01-31T09:00"
        ) from None


def parse_setting(text: str) -> tuple[str, str | int]:
    """`name=value`. A value of `..._ms` may be a duration, one of `..._bytes` a size."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"{text!r} is not a setting; write name=value")
    name = name.replace("-", "_")
    # Plain numbers and nonsense go on as they are: the settings themselves
    # know best how to refuse them.
    try:
        if name.endswith("_ms"):
            return name, parse_duration_ms(value)
        if name.endswith(("_bytes", "_bytes_max")):
            return name, parse_size_bytes(value)
    except ValueError:
        pass
    return name, value


def parse_header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"{text!r} is not a header; write name=value")
    return name, value.encode()


class Word(click.ParamType[Any]):
    """A parameter type of click made from one of the functions above."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = Word("duration", parse_duration_ms)
MOMENT = Word("moment", parse_moment_ms)
START = Word("start", parse_start)
SETTING = Word("name=value", parse_setting)
HEADER = Word("name=value", parse_header)


def settings_option(
    known: Iterable[str], *, required: bool = False, help: str | None = None
) -> Callable[[Function], Function]:
    """`--set name=value`, of these names."""
    return click.option(
        "--set",
        "settings",
        type=SETTING,
        multiple=True,
        required=required,
        shell_complete=setting_names(known),
        help=help,
    )


def settings_of(pairs: Iterable[tuple[str, str | int]]) -> dict[str, str | int]:
    """The settings of repeated `--set` options; the last one of a name wins."""
    return dict(pairs)
