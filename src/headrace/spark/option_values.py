"""One option's value each: a word of several, a flag, a number, a duration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from headrace.core.errors import InvalidOption

_UNITS_MS: Final = {
    "ms": 1, "s": 1_000, "sec": 1_000, "m": 60_000, "min": 60_000,
    "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


def choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """One of the words; the first is the default."""
    word = given.get(name, choices[0]).strip().lower()
    if word not in choices:
        raise InvalidOption(f"option {name!r} is {given[name]!r}; use {' or '.join(choices)}")
    return word


def flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    return choice(given, name, ("true", "false") if default else ("false", "true")) == "true"


def number(given: Mapping[str, str], name: str, low: int, high: int = 2**63 - 1) -> int | None:
    if name not in given:
        return None
    try:
        found = int(given[name])
    except ValueError:
        found = low - 1
    if not low <= found <= high:
        upper = "or more" if high == 2**63 - 1 else f"to {high}"
        raise InvalidOption(
            f"option {name!r} is {given[name]!r}; give a whole number, {low} {upper}"
        )
    return found


def duration(given: Mapping[str, str], name: str, default_ms: int) -> int:
    if name not in given:
        return default_ms
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", given[name].lower())
    unit = _UNITS_MS.get(found.group(2) or "ms") if found else None
    if found is None or unit is None:
        raise InvalidOption(
            f"option {name!r} is {given[name]!r}; write it as 500ms, 30s, 15m or 1h"
        )
    return int(found.group(1)) * unit
