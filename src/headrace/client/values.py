"""Values: from what people have to bytes, and back.

    given                                          bytes            content-type
    bytes, bytearray, memoryview                   as they are      none
    None                                           null             none
    str                                            UTF-8            text/plain
    dict, list, number, dataclass, Struct, model   JSON             application/json

The content type travels as a plain record header, so a foreign consumer reads it
like any other and a foreign producer can set it. A value without one stays bytes,
and bytes cost nothing on the way in.

Rejected: guessing. Bytes that happen to be JSON would change their type from one
message to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from headrace.core.errors import DecodeError, InvalidArgument
from headrace.core.values import Headers
from headrace.record.content_type import JSON, TEXT, content_type_of
from headrace.record.json_numbers import check_numbers

Decode = Callable[[bytes], Any]


class ValueType(NamedTuple):
    """A type that values are decoded as."""

    name: str
    decode: Decode


_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder().decode


def encode_value(value: object) -> tuple[bytes | None, bytes | None]:
    """The bytes of a value and its content type; InvalidArgument when there are
    none."""
    kind = type(value)
    if kind is bytes:
        return value, None  # type: ignore[return-value]  # mypy does not narrow by `kind`
    if value is None:
        return None, None
    if isinstance(value, str):
        try:
            return value.encode(), TEXT
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"this text cannot be encoded as UTF-8: {error}") from error
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value), None
    if kind is msgspec.Raw:
        # JSON that somebody has encoded already.
        return bytes(value), JSON  # type: ignore[call-overload]
    if is_pydantic(kind):
        raw: bytes = value.model_dump_json().encode()  # type: ignore[attr-defined]
        if b"null" in raw:
            check_numbers(value.model_dump())  # type: ignore[attr-defined]
        return raw, JSON
    try:
        raw = _encode_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"a value of type {kind.__name__} cannot be published: {error}; give bytes, text, or "
            "what JSON can hold"
        ) from error
    if b"null" in raw:
        check_numbers(msgspec.to_builtins(value))
    return raw, JSON


def decode_value(raw: bytes | None, headers: Headers, place: object) -> Any:
    """The value as its content type says; DecodeError names `place`, the id."""
    if raw is None or not headers:
        return raw
    content_type = content_type_of(headers)
    if content_type == TEXT:
        return _checked(_decode_text, raw, place, "text")
    if content_type == JSON:
        return _checked(_decode_json, raw, place, "JSON")
    return raw


def decode_value_as(value_type: ValueType, raw: bytes | None, place: object) -> Any:
    """The value as that type; DecodeError names `place`."""
    if raw is None:
        raise DecodeError(f"message {place} has no value, so it is no {value_type.name}")
    return _checked(value_type.decode, raw, place, value_type.name)


def value_type_of(wanted: Any) -> ValueType:
    """How to get `wanted` from bytes: bytes, str, a pydantic model, or anything
    that msgspec decodes. InvalidArgument when nothing can."""
    try:
        return _cached_value_type_of(wanted)
    except TypeError as error:
        raise InvalidArgument(f"values cannot be decoded as {_name(wanted)}: {error}") from error


@lru_cache(maxsize=256)
def _cached_value_type_of(wanted: Any) -> ValueType:
    decode: Decode
    if wanted is bytes:
        decode = bytes
    elif wanted is str:
        decode = _decode_text
    elif is_pydantic(wanted):
        decode = wanted.model_validate_json
    else:
        decode = msgspec.json.Decoder(wanted).decode
    return ValueType(_name(wanted), decode)


def is_pydantic(kind: Any) -> bool:
    """Known by its methods, so that pydantic is never imported here."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json")


def _decode_text(raw: bytes) -> str:
    return raw.decode()


def _checked(decode: Decode, raw: bytes, place: object, wanted: str) -> Any:
    try:
        return decode(raw)
    except (ValueError, msgspec.DecodeError, RecursionError) as error:
        raise DecodeError(f"message {place} does not hold {wanted}: {error}") from error


def _name(wanted: object) -> str:
    return getattr(wanted, "__name__", None) or str(wanted)
