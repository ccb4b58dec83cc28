"""Why a value is not the JSON that was expected, in words about the value.

Arrow speaks of its own parsing: of an envelope named v, and of rows of its input, which
is one value when a reason is asked for.

    JSON parse error: Column(/v/tags/[]/id) changed from number to string in row 0
    tags[].id is a string, not a number
"""

from __future__ import annotations

import re

_ROW = re.compile(r"\.? in row \d+$")
_OTHER_KIND = re.compile(r"Column\(/v(.*)\) changed from (\w+) to (\w+)", re.DOTALL)
_TWICE = re.compile(r"Column\(/v(.*)\) was specified twice", re.DOTALL)
_UNREADABLE = re.compile(r"Failed to convert JSON to (.+), couldn't parse: ?(.*)", re.DOTALL)


def json_reason(arrows: str) -> str:
    text = _ROW.sub("", arrows.removeprefix("JSON parse error: "))
    if found := _OTHER_KIND.fullmatch(text):
        return f"{_field(found[1])} is {_kind(found[3])}, not {_kind(found[2])}"
    if found := _TWICE.fullmatch(text):
        return f"{_field(found[1])} is there twice"
    if found := _UNREADABLE.fullmatch(text):
        return f"{found[2]!r} is no {found[1]}"
    if "Invalid UTF8" in text:
        return "it is not UTF-8"
    return text


def _field(path: str) -> str:
    return path.replace("/[]", "[]").replace("/", ".").lstrip(".") or "the value"


def _kind(arrows: str) -> str:
    return f"an {arrows}" if arrows in ("array", "object") else f"a {arrows}"
