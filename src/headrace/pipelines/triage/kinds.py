"""Kinds of dead letters: the shape of a payload and the signature of an error.

    {"id": 17, "items": ["a"]}              {id: number, items: [text]}
    order 4711 timed out after 30.5 s       order # timed out after # s

Two letters of one kind most likely have one cause. The functions are plain Python,
so that Spark's executors and the command that redrives agree on what a kind is.
"""

from __future__ import annotations

import json
import re
from typing import Any

SHAPE_CHARACTERS_MAX = 200
SIGNATURE_CHARACTERS_MAX = 200
_DEPTH_MAX = 3
_FIELDS_MAX = 12

_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_HEX = re.compile(r"\b0x[0-9a-f]+\b|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def shape_of(payload: bytes | None) -> str:
    """What a payload looks like, without what it says."""
    if payload is None:
        return "no value"
    if not payload:
        return "empty"
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return f"binary, {_size(len(payload))}"
    if text.lstrip()[:1] in ("{", "["):
        try:
            return _shape(json.loads(text), 0)[:SHAPE_CHARACTERS_MAX]
        except (ValueError, RecursionError):
            return f"broken JSON, {_size(len(payload))}"
    return f"text, {_size(len(payload))}"


def _shape(value: Any, depth: int) -> str:
    if isinstance(value, dict):
        if depth == _DEPTH_MAX:
            return "{…}"
        names = sorted(value)
        fields = [f"{name}: {_shape(value[name], depth + 1)}" for name in names[:_FIELDS_MAX]]
        fields += ["…"] if len(names) > _FIELDS_MAX else []
        return "{" + ", ".join(fields) + "}"
    if isinstance(value, list):
        # Elements of one list mostly look alike; the first stands for all.
        return f"[{_shape(value[0], depth + 1)}]" if value and depth < _DEPTH_MAX else "[]"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "null"


def _size(length: int) -> str:
    """Within a factor of ten, so that letters of similar size are one kind."""
    for limit in (10, 100, 1_000, 10_000, 100_000, 1_000_000):
        if length < limit:
            return f"under {limit:,} bytes"
    return "a megabyte or more"


def signature_of(reason: str | None, error: str | None) -> str:
    """An error without its particulars."""
    text = (error or reason or "no reason").strip()
    first_line = text.splitlines()[0] if text else ""
    for pattern in (_UUID, _HEX, _NUMBER):
        first_line = pattern.sub("#", first_line)
    return first_line[:SIGNATURE_CHARACTERS_MAX]


# Words of failures that mostly pass by themselves.
_PASSING = re.compile(
    r"time[d ]?[ -]?out|timeout|connection|unavailable|temporar|too many requests|deadlock|"
    r"try again|throttl|expired",
    re.IGNORECASE,
)


def is_passing(signature: str) -> bool:
    """Whether the same message may well succeed when it is simply tried again."""
    return _PASSING.search(signature) is not None
