"""The two forms in which a WebSocket speaks: JSON as text, msgpack as bytes.

They differ in what values may be. msgpack has bytes, so these need no base64 there; and it
has no integers beyond 64 bits and no end of nesting, so JSON that has comes as the bytes it
is stored as.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from starlette.websockets import WebSocket

from headrace.core import limits
from headrace.core.errors import InvalidArgument, LimitExceeded
from headrace.core.values import Delivery, Outgoing, StreamRecord
from headrace.record.content_type import JSON, TEXT, content_type_of
from headrace.record.json_numbers import check_numbers
from headrace.server.http.route import why
from headrace.server.http.shown import outgoing, outgoing_of, shown_delivery, shown_record
from headrace.wire.http import bodies, frames
from headrace.wire.http.content import given_value
from headrace.wire.http.message_count import check_json_count, check_msgpack_count

_unpack = msgspec.msgpack.Decoder().decode


class _Named(msgspec.Struct):
    id: frames.Id


class _Kind(msgspec.Struct):
    op: str = ""


class Form(Protocol):
    def decode(self, frame: Any) -> Any:
        """The request; InvalidArgument, LimitExceeded."""

    def id_of(self, frame: Any) -> frames.Id | None:
        """What the client calls a request that is not what it should be."""

    def outgoing(self, message: bodies.NewMessage) -> Outgoing: ...

    def delivery(self, delivery: Delivery) -> Any: ...

    def record(self, record: StreamRecord) -> Any: ...

    async def send(self, websocket: WebSocket, answer: Any) -> None: ...


class _Json:
    _decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(frames.Request)
    _named = msgspec.json.Decoder(_Named)
    _kind = msgspec.json.Decoder(_Kind)
    _encoder = msgspec.json.Encoder()

    def decode(self, frame: Any) -> Any:
        _check_size(self._kind.decode, frame)
        check_json_count(frame)
        return _checked(self._decoder.decode, frame)

    def id_of(self, frame: Any) -> frames.Id | None:
        return _id_of(self._named.decode, frame)

    def outgoing(self, message: bodies.NewMessage) -> Outgoing:
        return outgoing(message)

    def delivery(self, delivery: Delivery) -> Any:
        return shown_delivery(delivery)

    def record(self, record: StreamRecord) -> Any:
        return shown_record(record)

    async def send(self, websocket: WebSocket, answer: Any) -> None:
        await websocket.send_text(self._encoder.encode(answer).decode())


class _Msgpack:
    _decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(frames.Request)
    _named = msgspec.msgpack.Decoder(_Named)
    _kind = msgspec.msgpack.Decoder(_Kind)
    _encoder = msgspec.msgpack.Encoder()

    def decode(self, frame: Any) -> Any:
        _check_size(self._kind.decode, frame)
        check_msgpack_count(frame)
        return _checked(self._decoder.decode, frame)

    def id_of(self, frame: Any) -> frames.Id | None:
        return _id_of(self._named.decode, frame)

    def outgoing(self, message: bodies.NewMessage) -> Outgoing:
        # Looked at here, since there is one for each message.
        raw = given_value(message.value) if message.value is msgspec.UNSET else bytes(message.value)
        value = _checked(_unpack, raw)
        if value is None or isinstance(value, bytes):
            return outgoing_of(message, value, None)
        if isinstance(value, str):
            return outgoing_of(message, value.encode(), TEXT)
        try:
            text = msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgument(f"this value cannot be stored as JSON: {error}") from error
        if b"null" in text:
            check_numbers(value)
        return outgoing_of(message, text, JSON)

    def delivery(self, delivery: Delivery) -> Any:
        return self._plain(shown_delivery(delivery), delivery)

    def record(self, record: StreamRecord) -> Any:
        return self._plain(shown_record(record), record)

    def _plain(self, shown: bodies.ShownMessage, stored: Delivery | StreamRecord) -> Any:
        if shown.encoding is not msgspec.UNSET:
            shown.value, shown.encoding = stored.value, msgspec.UNSET
        elif content_type_of(stored.headers) == TEXT and stored.value is not None:
            shown.value = stored.value.decode()
        elif stored.value is None:
            shown.value = None
        else:
            shown.value = self._packed(stored.value)
        return shown

    def _packed(self, raw: bytes) -> Any:
        try:
            return msgspec.Raw(self._encoder.encode(msgspec.json.decode(raw)))
        except (OverflowError, ValueError, RecursionError):
            return raw

    async def send(self, websocket: WebSocket, answer: Any) -> None:
        await websocket.send_bytes(self._encoder.encode(answer))


def form_of(*, is_binary: bool) -> Form:
    return _MSGPACK if is_binary else _JSON


def _check_size(decode: Any, frame: Any) -> None:
    """As of HTTP's bodies: only what has messages in it may be as large as messages are. The
    rest is not made, as lists of a million names, before it is refused."""
    if len(frame) <= limits.HTTP_REQUEST_BYTES_MAX:
        return
    found: _Kind = _checked(decode, frame)
    if found.op != "enqueue":
        raise LimitExceeded(
            f"a frame of {len(frame)} bytes; at most {limits.HTTP_REQUEST_BYTES_MAX} are taken of "
            "what publishes nothing"
        )


def _id_of(decode: Any, frame: Any) -> frames.Id | None:
    try:
        found: _Named = decode(frame)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return found.id


def _checked(decode: Any, frame: Any) -> Any:
    try:
        return decode(frame)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        text = frame.encode() if isinstance(frame, str) else b""
        raise InvalidArgument(f"the frame is not what this takes: {why(error, text)}") from error


_JSON: Form = _Json()
_MSGPACK: Form = _Msgpack()
