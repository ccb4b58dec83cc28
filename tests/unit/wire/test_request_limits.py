"""Every array and string of every request has a limit that is judged before the list is
built. The requests are found by the table of APIs, so a new one cannot be forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import pytest

from headrace.core import limits
from headrace.core.errors import InvalidArgument, MalformedMessage
from headrace.wire.kafka.api import APIS, decode_request, encode_request, module_name
from headrace.wire.kafka.primitives import STRING_BYTES_MAX

ARRAY_MAX = 7


class Field(NamedTuple):
    """A field of a request, by the attributes that lead to it."""

    key: int
    path: tuple[str, ...]
    # What an array has, or `str` for a string that is no element.
    element: type
    is_array: bool


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


def _module(key: int) -> Any:
    name = module_name(APIS[key].name + "Request")
    return import_module(f"headrace.wire.kafka.generated.{name}")


def _kind(key: int) -> Any:
    return getattr(_module(key), APIS[key].name + "Request")


FIELDS = [field for key in APIS for field in _walk(key, _kind(key), ())]


def _shown(field: Field) -> str:
    return f"{APIS[field.key].name}.{'.'.join(field.path)}"


def _element(kind: type) -> Any:
    return bytes(16) if kind is bytes else kind()


def _with(kind: type, path: Sequence[str], value: Any) -> Any:
    """A message with this value where the path leads."""
    name, *rest = path
    if rest:
        hint = _without_none(get_type_hints(kind)[name])
        if get_origin(hint) is Sequence:
            value = (_with(get_args(hint)[0], rest, value),)
        else:
            value = _with(hint, rest, value)
    return _filled(kind, {name: value})


def _filled(kind: type, values: dict[str, Any]) -> Any:
    """Null where that is the default is not what every version can say."""
    for name, hint in get_type_hints(kind).items():
        default = kind._field_defaults[name]  # type: ignore[attr-defined]
        if name not in values and default is None:
            hint = _without_none(hint)
            values[name] = () if get_origin(hint) is Sequence else hint()
    return kind(**values)


def _sent(field: Field, value: Any) -> Iterator[tuple[int, bytes]]:
    """The request in every version that has the field."""
    api = APIS[field.key]
    message = _with(_kind(field.key), field.path, value)
    empty = _with(_kind(field.key), field.path, type(value)())
    for version in range(api.first, api.last + 1):
        try:
            sent = b"".join(map(bytes, encode_request(field.key, version, message)))
            if sent != b"".join(map(bytes, encode_request(field.key, version, empty))):
                yield version, sent
        except InvalidArgument:
            # A version in which another field may not be what it is here.
            continue


@pytest.mark.parametrize("field", [f for f in FIELDS if f.is_array], ids=_shown)
def test_an_array_holds_as_many_as_its_limit_and_not_one_more(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_plain = field.element in (int, bytes, bool)
    name = "REQUEST_ELEMENTS_MAX" if is_plain else "REQUEST_ARRAY_MAX"
    module = _module(field.key)
    assert getattr(module, name) == getattr(limits, name)
    # Of real length each of these would be a million objects.
    around = len(field.path) - 1 if is_plain else 0
    monkeypatch.setattr(module, name, ARRAY_MAX + around)
    sent = list(_sent(field, (_element(field.element),) * ARRAY_MAX))
    assert sent
    for version, data in sent:
        decode_request(field.key, version, data)
    for version, data in _sent(field, (_element(field.element),) * (ARRAY_MAX + around + 1)):
        with pytest.raises(MalformedMessage, match="wrong count"):
            decode_request(field.key, version, data)


@pytest.mark.parametrize("field", [f for f in FIELDS if not f.is_array], ids=_shown)
def test_a_string_is_as_long_as_its_limit_and_not_longer(field: Field) -> None:
    sent = list(_sent(field, "x" * STRING_BYTES_MAX))
    assert sent
    for version, data in sent:
        decode_request(field.key, version, data)
    with pytest.raises(InvalidArgument):
        message = _with(_kind(field.key), field.path, "x" * (STRING_BYTES_MAX + 1))
        encode_request(field.key, sent[-1][0], message)


def test_all_arrays_of_a_request_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.REQUEST_ARRAY_MAX <= limits.REQUEST_ELEMENTS_MAX
    for module in {_module(field.key) for field in FIELDS if field.is_array}:
        assert "MESSAGE_ELEMENTS_MAX" not in vars(module)
