"""How many partitions a Produce request writes to, seen without decoding it.

Its bytes say nothing of it: a megabyte is one batch, or one small batch for each of ten
thousand partitions. Lengths are skipped over, and only until there are many.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from headrace.core.errors import MalformedMessage
from headrace.wire.kafka.primitives import read_varint

_FLEXIBLE_FIRST: Final = 9
_IDS_FIRST: Final = 13
_ACKS_BYTES: Final = 6
_INDEX_BYTES: Final = 4
_ID_BYTES: Final = 16
_SHORT: Final = Struct(">h")
_LONG: Final = Struct(">i")


def writes_to_many(version: int, data: memoryview, position: int, many: int) -> bool:
    """Whether it has more topics and partitions than that. What is no request has few: the
    codec says what is wrong with it."""
    count = _count_flexible if version >= _FLEXIBLE_FIRST else _count_legacy
    try:
        return count(version, data, position, many) > many
    except (error, IndexError, MalformedMessage):
        return False


def _count_legacy(version: int, data: memoryview, position: int, many: int) -> int:
    (length,) = _SHORT.unpack_from(data, position)
    position += _SHORT.size + max(length, 0) + _ACKS_BYTES
    (topics,) = _LONG.unpack_from(data, position)
    position += _LONG.size
    seen = 0
    for _ in range(topics):
        (length,) = _SHORT.unpack_from(data, position)
        position += _SHORT.size + max(length, 0)
        (partitions,) = _LONG.unpack_from(data, position)
        position += _LONG.size
        seen += 1 + max(partitions, 0)
        if seen > many:
            break
        for _ in range(partitions):
            (length,) = _LONG.unpack_from(data, position + _INDEX_BYTES)
            position += _INDEX_BYTES + _LONG.size + max(length, 0)
    return seen


def _count_flexible(version: int, data: memoryview, position: int, many: int) -> int:
    length, position = read_varint(data, position)
    position += max(length - 1, 0) + _ACKS_BYTES
    topics, position = read_varint(data, position)
    seen = 0
    for _ in range(topics - 1):
        if version >= _IDS_FIRST:
            position += _ID_BYTES
        else:
            length, position = read_varint(data, position)
            position += max(length - 1, 0)
        partitions, position = read_varint(data, position)
        seen += max(partitions, 1)
        if seen > many:
            break
        for _ in range(partitions - 1):
            length, position = read_varint(data, position + _INDEX_BYTES)
            position = _skip_tags(data, position + max(length - 1, 0))
        position = _skip_tags(data, position)
    return seen


def _skip_tags(data: memoryview, position: int) -> int:
    count, position = read_varint(data, position)
    for _ in range(count):
        _, position = read_varint(data, position)
        length, position = read_varint(data, position)
        position += length
    return position
