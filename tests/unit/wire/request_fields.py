"""Every array and string of every request, found by the table of APIs, so that those of a
new one cannot be forgotten; and requests that have one of them as long as one likes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from headrace.core.errors import InvalidArgument
from headrace.wire.kafka.api import APIS, encode_request, module_name


class Field(NamedTuple):
    """A field of a request, by the attributes that lead to it."""

    key: int
    path: tuple[str, ...]
    # What an array has, or `str` for a string that is no element.
    element: type
    is_array: bool

    @property
    def is_plain(self) -> bool:
        """Of numbers and ids, of which a request may have more than of all else."""
        return self.element in (int, bytes, bool)


def shown(field: Field) -> str:
    return f"{APIS[field.key].name}.{'.'.join(field.path)}"


def request_module(key: int) -> Any:
    name = module_name(APIS[key].name + "Request")
    return import_module(f"headrace.wire.kafka.generated.{name}")


def request_kind(key: int) -> Any:
    return getattr(request_module(key), APIS[key].name + "Request")


def _without_none(hint: Any) -> Any:
    kinds = [each for each in get_args(hint) if each is not NoneType]
    return kinds[0] if NoneType in get_args(hint) else hint


def _walk(key: int, kind: type, path: tuple[str, ...]) -> Iterator[Field]:
    for name, hint in get_type_hints(kind).items():
        hint = _without_none(hint)
        here = (*path, name)
        if get_origin(hint) is Sequence:
            element = get_args(hint)[0]
            yield Field(key, here, element, True)
            if hasattr(element, "_fields"):
                yield from _walk(key, element, here)
        elif hint is str:
            yield Field(key, here, str, False)
        elif hasattr(hint, "_fields"):
            yield from _walk(key, hint, here)


FIELDS = [field for key in APIS for field in _walk(key, request_kind(key), ())]
ARRAYS = [field for field in FIELDS if field.is_array]
STRINGS = [field for field in FIELDS if field.element is str]


def element(kind: type, number: int = 0) -> Any:
    """Of an array; each number is another one."""
    if kind is bytes:
        return number.to_bytes(16, "big")
    if kind is int:
        return number
    if kind is str:
        return f"name-{number}"
    return kind() if kind is bool else _filled(kind, {}, f"name-{number}")


def request_with(field: Field, value: Any, text: str = "") -> Any:
    """A request with this value where the field is, and this text in all strings on the way."""
    request = _with(request_kind(field.key), field.path, value, text)
    # Without acks it would have no answer.
    return request._replace(acks=-1) if APIS[field.key].name == "Produce" else request


def _with(kind: type, path: Sequence[str], value: Any, text: str) -> Any:
    name, *rest = path
    if rest:
        hint = _without_none(get_type_hints(kind)[name])
        if get_origin(hint) is Sequence:
            value = (_with(get_args(hint)[0], rest, value, text),)
        else:
            value = _with(hint, rest, value, text)
    return _filled(kind, {name: value}, text)


def _filled(kind: type, values: dict[str, Any], text: str) -> Any:
    """Null where that is the default is not what every version can say."""
    for name, hint in get_type_hints(kind).items():
        default = kind._field_defaults[name]  # type: ignore[attr-defined]
        hint = _without_none(hint)
        if name in values:
            continue
        if hint is str:
            values[name] = text
        elif default is None:
            values[name] = () if get_origin(hint) is Sequence else hint()
    return kind(**values)


def sent(field: Field, value: Any, text: str = "") -> Iterator[tuple[int, bytes]]:
    """The request in every version that has the field, the newest first."""
    api = APIS[field.key]
    message = request_with(field, value, text)
    empty = request_with(field, type(value)(), text)
    for version in range(api.last, api.first - 1, -1):
        try:
            data = b"".join(map(bytes, encode_request(field.key, version, message)))
            if data != b"".join(map(bytes, encode_request(field.key, version, empty))):
                yield version, data
        except InvalidArgument:
            # A version in which another field may not be what it is here.
            continue
