"""Keys, values and headers between JSON and the bytes that are stored.

    in JSON                              stored                  content-type
    "value": any JSON but a string       that JSON, as written   application/json
    "value": "text"                      UTF-8                   text/plain
    "value": "aGk=", encoding: base64    the bytes               none
    "value": null                        null                    none
    no "value"                           refused

The way back is the same: what was published as JSON comes back as JSON, text as
text, and anything else as base64, with `encoding` to say so. The content type is a
record header, the one that the SDK writes too, so values pass from one to the other.

Rejected: showing bytes as text where they happen to be UTF-8. The same field would
mean one thing today and another tomorrow.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping

import msgspec

from headrace.core.errors import InvalidArgument
from headrace.core.values import Headers
from headrace.record.content_type import JSON, TEXT, content_type_of

BASE64 = "base64"

NULL = msgspec.Raw(b"null")
_QUOTE = ord('"')

_decode_text = msgspec.json.Decoder(str).decode
_check_json = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def stored_value(
    value: msgspec.Raw | msgspec.UnsetType, encoding: str | None
) -> tuple[bytes | None, bytes | None]:
    """The bytes to store, and their content type."""
    # Looked at here, since there is one for each message.
    raw = given_value(value) if value is msgspec.UNSET else bytes(value)
    if encoding is not None:
        return stored_bytes("value", _text_of("value", raw), encoding), None
    if raw == b"null":
        return None, None
    if raw[0] == _QUOTE:
        return _decode_text(raw).encode("utf-8", "surrogatepass"), TEXT
    try:
        # A number can be well written and still be more than a reader can hold.
        _check_json(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArgument(f"value cannot be read back as JSON: {error}") from error
    return raw, JSON


def given_value(value: msgspec.Raw | msgspec.UnsetType) -> bytes:
    """The value as it was written. Forgetting it must not publish a null."""
    if value is msgspec.UNSET:
        raise InvalidArgument(
            "the message has no `value`; give one, or say null for a message without a value"
        )
    return bytes(value)


def stored_bytes(name: str, text: str, encoding: str | None) -> bytes:
    if encoding is None:
        return text.encode()
    if encoding != BASE64:
        raise InvalidArgument(f"{name} can be encoded as {BASE64!r} only, not as {encoding!r}")
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument(f"{name} is not valid base64: {error}") from error


def _text_of(name: str, raw: bytes) -> str:
    if raw[:1] != b'"':
        raise InvalidArgument(f"{name} with an encoding is a string, not {raw[:20]!r}")
    return _decode_text(raw)


def stored_headers(headers: Mapping[str, str | None]) -> Headers:
    return tuple(
        (name, None if value is None else value.encode()) for name, value in headers.items()
    )


def shown_value(value: bytes | None, headers: Headers) -> tuple[msgspec.Raw, str | None]:
    """The value as JSON, and the encoding if it is not what it seems."""
    if value is None:
        return NULL, None
    content_type = content_type_of(headers)
    if content_type == JSON:
        try:
            # What goes out as JSON must be some, whoever said that it was.
            _check_json(value)
        except (msgspec.DecodeError, RecursionError):
            return _base64(value), BASE64
        return msgspec.Raw(value), None
    if content_type == TEXT:
        try:
            return msgspec.Raw(_encode(value.decode())), None
        except UnicodeDecodeError:
            return _base64(value), BASE64
    return _base64(value), BASE64


def shown_bytes(value: bytes | None) -> tuple[str | None, str | None]:
    """A key or a header's value: text where it is UTF-8, base64 where it is not."""
    if value is None:
        return None, None
    try:
        return value.decode(), None
    except UnicodeDecodeError:
        return b64encode(value).decode(), BASE64


def shown_headers(headers: Headers) -> dict[str, str | None]:
    """By name; of several with one name the last. Base64 where it is not text."""
    return {name: shown_bytes(value)[0] for name, value in headers}


def _base64(value: bytes) -> msgspec.Raw:
    return msgspec.Raw(b'"' + b64encode(value) + b'"')
