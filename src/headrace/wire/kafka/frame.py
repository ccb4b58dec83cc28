"""The frame: a size, a header, a body.

    request     size i32 | api key i16 | version i16 | correlation id i32 | client id | tags | body
    response    size i32 | correlation id i32 | tags | body

The size counts everything behind itself. `tags` is there in flexible versions only.
The client id is a legacy nullable string even then, and the response to ApiVersions
never has tags, because a client sends it before it knows which versions we speak.

Correlation ids are the client's; responses go out in the order of requests.

Rejected: one buffer for the whole frame. It would copy the records of every fetch.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from headrace.core.errors import MalformedMessage
from headrace.core.limits import FRAME_BYTES_MAX
from headrace.core.ports import Buffer
from headrace.wire.kafka.api import API_VERSIONS, APIS
from headrace.wire.kafka.primitives import (
    DECODE_ERRORS,
    ENCODE_ERRORS,
    legacy_string,
    malformed,
    skip_tagged_fields,
    unencodable,
)

SIZE_BYTES: Final = 4

_unpack_size = Struct(">i").unpack_from
_unpack_request = Struct(">hhih").unpack_from
_pack_request = Struct(">ihhi").pack
_pack_response = Struct(">ii").pack
_pack_flexible_response = Struct(">iix").pack


class RequestHeader(NamedTuple):
    """`body_position` is where the body starts in the buffer that was read. It means
    nothing for a version that is not in the table, whose header may be longer."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_frame_size(data: Buffer, position: int = 0, bytes_max: int = FRAME_BYTES_MAX) -> int:
    """The size of the frame that follows these 4 bytes. Check it before making room
    for the frame: whatever reaches our port is read as a size first."""
    try:
        (size,) = _unpack_size(data, position)
    except DECODE_ERRORS as error:
        raise malformed("frame size", error) from error
    if not 0 < size <= bytes_max:
        raise MalformedMessage(f"a frame of {size} bytes; at most {bytes_max} are taken")
    return int(size)


def decode_request_header(data: Buffer, position: int = 0) -> RequestHeader:
    """Reads from behind the size. Any key and version are let through: what to answer
    to those that we do not speak depends on the API."""
    try:
        key, version, correlation_id, length = _unpack_request(data, position)
        position += 10
        client_id = None
        if length >= 0:
            end = position + length
            if end > len(data):
                raise MalformedMessage("client_id: wrong length")
            client_id = str(data[position:end], "utf-8")
            position = end
        api = APIS.get(key)
        if api is not None and api.flexible_first <= version <= api.last:
            # A section without fields is one zero byte, which is nearly always so.
            if data[position]:
                position = skip_tagged_fields(data, position, len(data))
            else:
                position += 1
        return RequestHeader(key, version, correlation_id, client_id, position)
    except DECODE_ERRORS as error:
        raise malformed("request header", error) from error


def encode_response_frame(
    key: int, version: int, correlation_id: int, body: Sequence[Buffer]
) -> list[Buffer]:
    """The whole frame, size included, as buffers to be sent in order."""
    size = 0
    for buffer in body:
        size += len(buffer)
    if _response_has_tags(key, version):
        return [_pack_flexible_response(size + 5, correlation_id), *body]
    return [_pack_response(size + 4, correlation_id), *body]


def decode_response_header(
    key: int, version: int, data: Buffer, position: int = 0
) -> tuple[int, int]:
    """The correlation id, and where the body starts. Reads from behind the size; the
    caller knows key and version from the request that it sent."""
    try:
        (correlation_id,) = _unpack_size(data, position)
        position += 4
        if _response_has_tags(key, version):
            position = skip_tagged_fields(data, position, len(data))
        return correlation_id, position
    except DECODE_ERRORS as error:
        raise malformed("response header", error) from error


def encode_request_frame(
    key: int, version: int, correlation_id: int, client_id: str | None, body: Sequence[Buffer]
) -> list[Buffer]:
    """The whole frame, size included, as buffers to be sent in order."""
    try:
        client = b"\xff\xff" if client_id is None else legacy_string(client_id)
        if APIS[key].is_flexible(version):
            client += b"\x00"
        size = 8 + len(client) + sum(map(len, body))
        return [_pack_request(size, key, version, correlation_id) + client, *body]
    except ENCODE_ERRORS as error:
        raise unencodable("request header", error) from error


def _response_has_tags(key: int, version: int) -> bool:
    return key != API_VERSIONS and APIS[key].is_flexible(version)
