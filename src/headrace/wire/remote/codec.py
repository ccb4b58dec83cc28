"""Requests and answers of the remote protocol, as msgpack.

    frame       size i32 | 10000 i16 | 0 i16 | correlation id i32 | client id | request
    request     [method, [argument, ...]]       in the order of the method's parameters
    frame       size i32 | correlation id i32 | answer
    answer      0 u8 | result                   by the method's type
                1 u8 | [code, message, retriable]

Answers come in any order: a correlation id says which request they are for.

What arrives is checked against the types of its method while it is decoded, and every
array is counted before it is made. Values are tuples, as in `core/values.py`.
"""

from __future__ import annotations

import re
from functools import cache
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec

from headrace.core import errors, limits
from headrace.core.errors import (
    HeadraceError,
    InvalidArgument,
    InvalidName,
    LimitExceeded,
    MalformedMessage,
)
from headrace.core.ports import Buffer
from headrace.core.values import Headers, Outgoing, PublishedRuns
from headrace.wire.remote.methods import (
    API_KEY,
    METHODS,
    VERSION,
    Many,
    Method,
    Refusal,
    refusal_of,
    runs_or_list,
)

CORRELATION_ID_MAX: Final = 0x7FFFFFFF
DONE, REFUSED = b"\x00", b"\x01"

_pack_request = Struct(">ihhih").pack
_pack_answer = Struct(">ii").pack
_unpack_id = Struct(">i").unpack_from
_PLACE = re.compile(r" - at `\$(?:\[(\d+)\])?([^`]*)`$")
# Parameters that are the name of a topic or of a group.
_NAMES = frozenset(("name", "topic", "group"))
# What a message's headers may take, encoded.
_HEADERS_BYTES_MAX = 2 * limits.HEADER_BYTES_MAX

# A decoder may also fail like this, on text that is no UTF-8 and on deep nesting.
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError)
_ENCODE_ERRORS = (TypeError, UnicodeEncodeError, OverflowError, RecursionError, ValueError)


class Request(NamedTuple):
    method: Method
    arguments: dict[str, Any]


def _to_builtins(value: object) -> object:
    if isinstance(value, HeadraceError):
        return refusal_of(value)
    if isinstance(value, PublishedRuns):
        return runs_or_list(value)
    # Sequences of other kinds, such as those that a caller made up, are arrays.
    if hasattr(value, "__iter__"):
        return list(value)
    raise TypeError(f"a {type(value).__name__} cannot be sent to a node")


_encoder = msgspec.msgpack.Encoder(enc_hook=_to_builtins)
_envelope = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_refusal = msgspec.msgpack.Decoder(Refusal)
_single_outgoing = msgspec.msgpack.Decoder(
    tuple[tuple[bytes | None, bytes | None, msgspec.Raw, int | None, int | None]]
)
_headers = msgspec.msgpack.Decoder(Headers)


# Requests.


def encode_request(name: str, arguments: tuple[Any, ...]) -> bytes:
    """InvalidArgument when an argument is nothing that could be sent; LimitExceeded when it
    is more than a node takes, which would cut the connection instead of answering."""
    try:
        request = _encoder.encode((name, arguments))
    except _ENCODE_ERRORS as error:
        raise InvalidArgument(f"{name}: {error}") from error
    if len(request) > limits.REMOTE_PUBLISH_BYTES_MAX:
        raise LimitExceeded(_too_large(len(request), limits.REMOTE_PUBLISH_BYTES_MAX))
    return request


def encode_request_frame(correlation_id: int, client_id: bytes, request: bytes) -> bytes:
    size = 10 + len(client_id) + len(request)
    header = _pack_request(size, API_KEY, VERSION, correlation_id, len(client_id))
    return b"".join((header, client_id, request))


def decode_request(body: Buffer) -> Request:
    """MalformedMessage for what is no request at all; InvalidArgument, LimitExceeded
    for one that cannot be carried out. Nothing of the result points into `body`."""
    if len(body) > limits.REMOTE_PUBLISH_BYTES_MAX:
        raise LimitExceeded(_too_large(len(body), limits.REMOTE_PUBLISH_BYTES_MAX))
    try:
        name, raw = _envelope.decode(body)
    except _DECODE_ERRORS as error:
        raise MalformedMessage(f"not a request: {error}") from error
    method = METHODS.get(name)
    if method is None:
        raise InvalidArgument(
            f"this node knows no method {name[:80]!r}; is the client newer than the node?"
        )
    if len(body) > limits.REMOTE_REQUEST_BYTES_MAX and not method.is_bulky:
        raise LimitExceeded(_too_large(len(body), limits.REMOTE_REQUEST_BYTES_MAX))
    try:
        values = _arguments_decoder(name).decode(raw)
    except _DECODE_ERRORS as error:
        raise _wrong_argument(method, str(error)) from error
    arguments = dict(zip(method.parameters, values, strict=True))
    for parameter, wanted in method.parameters.items():
        if isinstance(wanted, Many):
            arguments[parameter] = _decode_many(parameter, wanted, arguments[parameter], len(body))
    return Request(method, arguments)


def _decode_many(
    parameter: str, wanted: Many, raw: msgspec.Raw, request_bytes: int
) -> list[Any] | None:
    data = memoryview(raw)
    if wanted.is_optional and data[0] == 0xC0:
        return None
    count = _count(parameter, data)
    if count > limits.REMOTE_ELEMENTS_MAX:
        raise LimitExceeded(
            f"{parameter}: {count} at once; at most {limits.REMOTE_ELEMENTS_MAX} are taken"
        )
    try:
        if request_bytes > limits.REMOTE_REQUEST_BYTES_MAX and wanted.element is Outgoing:
            if count != 1:
                raise LimitExceeded(_too_large(request_bytes, limits.REMOTE_REQUEST_BYTES_MAX))
            return [_decode_large(data)]
        found: list[Any] = _many_decoder(wanted.element).decode(data)
        return found
    except _DECODE_ERRORS as error:
        raise InvalidArgument(f"{parameter}: {error}") from error


def _count(parameter: str, data: memoryview) -> int:
    kind = data[0]
    if kind & 0xF0 == 0x90:
        return kind & 0x0F
    if kind == 0xDC:
        return int.from_bytes(data[1:3], "big")
    if kind == 0xDD:
        return int.from_bytes(data[1:5], "big")
    raise InvalidArgument(f"{parameter}: Expected `array`")


def _decode_large(data: memoryview) -> Outgoing:
    """A message that is large may be so by its value, not by a million headers."""
    [(value, key, headers, timestamp_ms, partition)] = _single_outgoing.decode(data)
    if len(memoryview(headers)) > _HEADERS_BYTES_MAX:
        raise LimitExceeded("the headers of the message are too large")
    return Outgoing(value, key, _headers.decode(headers), timestamp_ms, partition)


def _too_large(size: int, allowed: int) -> str:
    return (
        f"a request of {size} bytes; at most {allowed} are taken: send less at once, and store "
        "a payload that is as large elsewhere"
    )


def _wrong_argument(method: Method, text: str) -> InvalidArgument:
    """The name of the argument instead of its number."""
    found = _PLACE.search(text)
    if found is None or found[1] is None:
        return InvalidArgument(f"{method.name}: {text}")
    name = list(method.parameters)[int(found[1])]
    kind = InvalidName if name in _NAMES else InvalidArgument
    return kind(f"{name}{found[2]}: {text[: found.start()]}")


@cache
def _arguments_decoder(name: str) -> msgspec.msgpack.Decoder[Any]:
    types = [
        msgspec.Raw if isinstance(wanted, Many) else wanted
        for wanted in METHODS[name].parameters.values()
    ]
    return msgspec.msgpack.Decoder(tuple.__class_getitem__(tuple(types)))


@cache
def _many_decoder(element: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(list[element])


# Answers.


def encode_answer_frame(correlation_id: int, result: object) -> bytes:
    return _answer_frame(correlation_id, DONE, _encoder.encode(result))


def encode_refusal_frame(correlation_id: int, error: HeadraceError) -> bytes:
    return _answer_frame(correlation_id, REFUSED, _encoder.encode(error))


def _answer_frame(correlation_id: int, status: bytes, body: bytes) -> bytes:
    return b"".join((_pack_answer(5 + len(body), correlation_id), status, body))


def decode_answer_id(frame: Buffer) -> int:
    """The correlation id of what came behind the size."""
    return int(_unpack_id(frame)[0])


def decode_answer(name: str, frame: Buffer) -> Any:
    """The result; raises the error that the node answered with."""
    body = memoryview(frame)[5:]
    try:
        if frame[4] == DONE[0]:
            return _result_decoder(name).decode(body)
        refusal = _refusal.decode(body)
    except (IndexError, *_DECODE_ERRORS) as error:
        raise MalformedMessage(f"the node's answer to {name} cannot be read: {error}") from error
    raise error_of(refusal)


@cache
def _result_decoder(name: str) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(METHODS[name].result)


@cache
def _error_classes() -> dict[str, type[HeadraceError]]:
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    return {each.code: each for each in classes if issubclass(each, HeadraceError)}


def error_of(refusal: Refusal) -> HeadraceError:
    """The error that the node meant. One from a newer node is a plain one."""
    known = _error_classes().get(refusal.code)
    if known is not None:
        return known(refusal.message)
    return HeadraceError(f"{refusal.message} [{refusal.code}]")
