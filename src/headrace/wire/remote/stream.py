"""Requests and answers as messages of a stream, which has their size itself.

request   correlation id i32 | request
answer    correlation id i32 | answer
"""

from __future__ import annotations

from struct import Struct

from headrace.core.errors import MalformedMessage

_ID = Struct(">i")
_SIZE_BYTES = 4


def encode_stream_request(correlation_id: int, request: bytes) -> bytes:
    return _ID.pack(correlation_id) + request


def split_stream_request(message: bytes) -> tuple[int, memoryview]:
    """The correlation id, and the request; MalformedMessage when there is none."""
    if len(message) <= _ID.size:
        raise MalformedMessage(f"a request of {len(message)} bytes")
    return _ID.unpack_from(message)[0], memoryview(message)[_ID.size :]


def stream_answer(frame: bytes) -> bytes:
    """What is a frame on a socket, without its size."""
    return frame[_SIZE_BYTES:]
