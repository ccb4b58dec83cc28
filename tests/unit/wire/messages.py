"""Messages for tests, made from nothing but their types.

`full_message` sets every field to something that is not its default, with two
elements in every array, so that its bytes have every field of every version.
"""

from __future__ import annotations

import types
import typing
from functools import cache
from importlib import import_module
from itertools import cycle
from typing import Any, NamedTuple

from headrace.wire.kafka.api import APIS, EMBEDDED, Decoder, Encoder, module_name


class Case(NamedTuple):
    """One version of one message."""

    name: str
    key: int | None
    version: int
    is_flexible: bool
    type: Any
    decode: Decoder
    encode: Encoder


@cache
def all_cases() -> tuple[Case, ...]:
    cases = []
    for api in APIS.values():
        for kind in ("Request", "Response"):
            for version in range(api.first, api.last + 1):
                flexible = api.is_flexible(version)
                cases.append(_case(api.name + kind, api.key, version, flexible))
    for name, first, last in EMBEDDED:
        cases += [_case(name, None, version, False) for version in range(first, last + 1)]
    return tuple(cases)


def _case(name: str, key: int | None, version: int, flexible: bool) -> Case:
    module: Any = import_module(f"headrace.wire.kafka.generated.{module_name(name)}")
    decode, encode = module.DECODERS[version], module.ENCODERS[version]
    return Case(name, key, version, flexible, getattr(module, name), decode, encode)


def full_message(kind: Any) -> Any:
    # Small enough for an int8, and no two neighbours are equal.
    return _full(kind, cycle(range(2, 120)))


def _full(kind: Any, numbers: Any) -> Any:
    if isinstance(kind, types.UnionType):
        (kind, *_) = [each for each in typing.get_args(kind) if each is not types.NoneType]
        if kind is bytes:
            # One of Buffer's: bytes or records of any length.
            return b"bytes %d" % next(numbers)
    if typing.get_args(kind):
        (element,) = typing.get_args(kind)
        return (_full(element, numbers), _full(element, numbers))
    if kind is bool:
        return True
    if kind is int:
        return next(numbers)
    if kind is float:
        return next(numbers) / 2
    if kind is str:
        return f"text {next(numbers)}"
    if kind is bytes:
        return bytes([next(numbers)]) * 16
    fields = _hints(kind)
    return kind(**{name: _full(hint, numbers) for name, hint in fields.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)
