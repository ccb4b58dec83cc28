"""Whether the records of a batch are within the limits that messages have.

A batch that a client made is appended as it is, and where nobody opens it nobody knows
what is inside. Where a queue reads the topic, it is gone over once before it is
appended, without making anything of it:

    length attributes time offset key value headers | length ...
                                  ^size     ^count and bytes

Rejected: doing it for every topic. Opening what is compressed costs more than all else
that an append does, and a stream hands out the bytes as they came.
"""

from __future__ import annotations

from typing import Final

from headrace.compiled import compiled
from headrace.core import limits
from headrace.core.errors import CorruptBatch, RecordTooLarge
from headrace.core.ports import Buffer
from headrace.record.varint import BITS_64, read_more

WITHIN: Final = 0
CORRUPT: Final = 1
LONG_KEY: Final = 2
MANY_HEADERS: Final = 3
LONG_HEADERS: Final = 4

_FAULTS: Final = {
    LONG_KEY: f"a key has at most {limits.KEY_BYTES_MAX} bytes",
    MANY_HEADERS: f"a record has at most {limits.HEADERS_MAX} headers",
    LONG_HEADERS: f"headers have at most {limits.HEADER_BYTES_MAX} bytes together",
}


def check_block(block: Buffer, count: int) -> None:
    """RecordTooLarge when one of the `count` records in these uncompressed bytes is
    beyond what a message may be; CorruptBatch when they cannot be read."""
    fault = find_fault(block, count)
    if fault == CORRUPT:
        raise CorruptBatch("the records of the batch cannot be read")
    if fault:
        raise RecordTooLarge(f"{_FAULTS[fault]}; one in the batch has more")


@compiled
def find_fault(data: Buffer, count: int) -> int:
    """What is wrong with these records, `count` of which fill the bytes; WITHIN when
    nothing is."""
    block = bytes(data)
    try:
        return _find_fault(block, count)
    except (IndexError, CorruptBatch):
        return CORRUPT


def _find_fault(data: bytes, count: int) -> int:
    size = len(data)
    position = 0
    for _ in range(count):
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        end = position + (raw >> 1)
        if raw & 1 or end > size:
            return CORRUPT
        # The time, then the offset.
        raw = data[position + 1]
        position += 2
        if raw > 127:
            raw, position = read_more(data, position, raw, BITS_64)
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        if raw != 1:
            if raw & 1:
                return CORRUPT
            if raw >> 1 > limits.KEY_BYTES_MAX:
                return LONG_KEY
            position += raw >> 1
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        if raw != 1:
            if raw & 1:
                return CORRUPT
            position += raw >> 1
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        if raw & 1 or position > end:
            return CORRUPT
        if raw:
            fault = _find_header_fault(data, position, end, raw >> 1)
            if fault:
                return fault
        elif position != end:
            return CORRUPT
        position = end
    return WITHIN if position == size else CORRUPT


def _find_header_fault(data: bytes, position: int, end: int, count: int) -> int:
    if 2 * count > end - position:
        return CORRUPT
    if count > limits.HEADERS_MAX:
        return MANY_HEADERS
    total = 0
    for number in range(2 * count):
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        if raw == 1 and number & 1:
            continue
        if raw & 1:
            return CORRUPT
        total += raw >> 1
        position += raw >> 1
        if position > end:
            return CORRUPT
    if position != end:
        return CORRUPT
    return LONG_HEADERS if total > limits.HEADER_BYTES_MAX else WITHIN
