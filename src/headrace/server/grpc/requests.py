"""Requests from bytes, bounded before they are made.

One byte on the wire can become a hundred in memory. So a request is small, unless
most of it is the content of messages: then its elements are counted first, and of
those there may be only so many. One that is larger than a request may be at all is
refused here as well, so that it has our code; beyond twice that grpc does it, without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError as ProtobufDecodeError

from headrace.core import limits
from headrace.core.errors import HeadraceError, InvalidArgument, LimitExceeded, MalformedMessage
from headrace.wire.grpc.generated import headrace_pb2 as pb

# Which field of a request holds an array of messages, and which of theirs another.
_ARRAYS = {"PublishRequest": (2, 3), "TransactRequest": (1, 2, 3)}
# Requests with no array at all, which may be as large as a record.
_PLAIN = frozenset({"PublishBatchRequest"})

Decode = Callable[[bytes], Any]


def decoder_of(name: str) -> Decode:
    """Bytes into the request of that name, or into the error to refuse it with:
    what is raised while decoding, grpc would call our own fault."""
    parse = getattr(pb, name).FromString

    def decode(data: bytes) -> Any:
        try:
            if len(data) > limits.GRPC_MESSAGE_BYTES_MAX:
                raise LimitExceeded(
                    f"the request has {len(data)} bytes, and at most "
                    f"{limits.GRPC_MESSAGE_BYTES_MAX} are taken: send less at once, and store a "
                    "payload that is as large elsewhere"
                )
            if len(data) > limits.GRPC_REQUEST_BYTES_MAX and name not in _PLAIN:
                _check_large(name, data)
            return parse(data)
        except HeadraceError as error:
            return error.without_frames()
        except ProtobufDecodeError as error:
            return MalformedMessage(f"this is not a {name} of headrace.v1: {error}")

    return decode


def _check_large(name: str, data: bytes) -> None:
    if name not in _ARRAYS:
        raise InvalidArgument(
            f"the request has {len(data)} bytes; a {name} has at most "
            f"{limits.GRPC_REQUEST_BYTES_MAX}"
        )
    if _fields_left(memoryview(data), _ARRAYS[name], limits.GRPC_FIELDS_MAX) < 0:
        raise InvalidArgument(
            f"a request of more than {limits.GRPC_REQUEST_BYTES_MAX} bytes has at most "
            f"{limits.GRPC_FIELDS_MAX} fields in all its messages; send several"
        )


def _fields_left(data: memoryview, path: tuple[int, ...], left: int) -> int:
    """How many more fields there might have been; below 0 when there are too many."""
    position = 0
    while position < len(data) and left >= 0:
        left -= 1
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == 0:
            _, position = _varint(data, position)
        elif kind == 1:
            position += 8
        elif kind == 5:
            position += 4
        elif kind == 2:
            size, position = _varint(data, position)
            if path and tag >> 3 == path[0]:
                left = _fields_left(data[position : position + size], path[1:], left)
            position += size
        else:
            raise MalformedMessage("the request has a field of a kind that is not used")
    return left


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    number = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
        shift += 7
    raise MalformedMessage("the request ends within a number")
