"""Whether the records of a batch can be read, and are what its topic takes.

A batch that a client made is appended as it is. Before that it is gone over once, without
making anything of it: a batch that is no records inside would be acknowledged, and every
consumer that comes to it would stay there.

    length attributes time offset key value headers | length ...
                           ^0, 1, 2  ^size     ^count and bytes

    always     lengths, counts and offsets make sense, and the records fill the bytes
    LIMITS     where a queue reads the topic: what a message may be
    KEYED      where a topic is compacted: every record has a key
    PART       the bytes are the first of more, and may end within a record

On the way the latest time of the records is found. A header may say another: searches by
time would pass by the batch, and retention keep it, so it is corrected where it does.

Rejected: opening all of every compressed batch by default, as a broker of Kafka does. It costs
as much as all else that an append does, and a producer that writes nonsense does so from the
first record on.
"""

from __future__ import annotations

import struct
from typing import Final

from headrace.compiled import compiled
from headrace.core import limits
from headrace.core.errors import CorruptBatch, RecordTooLarge
from headrace.core.ports import Buffer
from headrace.record.batch import HEADER_BYTES, sizes_and_codecs
from headrace.record.record import NO_TIMESTAMP_MS
from headrace.record.varint import BITS_64, NumberCutOff, as_int64, read_more

LIMITS: Final = 1
KEYED: Final = 2
PART: Final = 4

WITHIN: Final = 0
CORRUPT: Final = 1
LONG_KEY: Final = 2
MANY_HEADERS: Final = 3
LONG_HEADERS: Final = 4
NO_KEY: Final = 5
LONG_RECORD: Final = 6

_FAULTS: Final = {
    LONG_KEY: f"a key has at most {limits.KEY_BYTES_MAX} bytes",
    MANY_HEADERS: f"a record has at most {limits.HEADERS_MAX} headers",
    LONG_HEADERS: f"headers have at most {limits.HEADER_BYTES_MAX} bytes together",
    LONG_RECORD: f"a record has at most {limits.RECORD_BYTES_MAX} bytes",
}
_COUNT_AT: Final = HEADER_BYTES - 4
# The time that those of the records count from, and the latest.
_TIMES: Final = struct.Struct(">qq")
_TIMES_AT: Final = 27
_INT64_MIN: Final = -(2**63)


class UnsoundRecords(CorruptBatch):
    """A batch whose checksum is right has records in it that cannot be stored."""


class KeylessRecords(UnsoundRecords):
    """Some records have no key, and every record of their topic needs one."""


def check_block(block: Buffer, count: int, rules: int, base_ms: int) -> int:
    """The latest time of the `count` records in these uncompressed bytes, whose times count
    from `base_ms` on. RecordTooLarge when one of them is beyond what a message may be;
    UnsoundRecords when they cannot be read or lack a key."""
    fault, latest_ms = find_fault(block, count, rules, base_ms)
    raise_fault(fault)
    return latest_ms


def is_right(says_ms: int, latest_ms: int, rules: int) -> bool:
    """Whether a header may say so of records that were gone over by these rules. Behind the
    first of them there may be later ones."""
    return latest_ms <= says_ms if rules & PART else latest_ms == says_ms


def raise_fault(fault: int) -> None:
    if fault == CORRUPT:
        raise UnsoundRecords("the records of the batch cannot be read")
    if fault == NO_KEY:
        raise KeylessRecords("a topic that is compacted takes no records without a key")
    if fault:
        raise RecordTooLarge(f"{_FAULTS[fault]}; one in the batch has more")


@compiled
def find_fault_in_plain(
    batches: Buffer, rules: int, bytes_max: int
) -> tuple[int, list[tuple[int, int]], list[tuple[int, int]]]:
    """The first fault in these batches, back to back, as far as they are not compressed;
    number and position of those that are; and of those whose headers do not say the latest
    time of their records, position and what it is. Of each batch the first `bytes_max` bytes
    of records are gone over."""
    compressed: list[tuple[int, int]] = []
    wrong: list[tuple[int, int]] = []
    with memoryview(batches) as view:
        for number, (position, size, codec) in enumerate(sizes_and_codecs(view)):
            if codec:
                compressed.append((number, position))
                continue
            records = position + HEADER_BYTES
            count = int.from_bytes(view[position + _COUNT_AT : records], "big")
            base_ms, says_ms = _TIMES.unpack_from(view, position + _TIMES_AT)
            part = PART if size - HEADER_BYTES > bytes_max else 0
            end = records + bytes_max if part else position + size
            fault, latest_ms = _find_in(bytes(view[records:end]), count, rules | part, base_ms)
            if fault:
                return fault, [], []
            if not is_right(says_ms, latest_ms, part):
                wrong.append((position, latest_ms))
    return WITHIN, compressed, wrong


@compiled
def find_fault(data: Buffer, count: int, rules: int, base_ms: int) -> tuple[int, int]:
    """What is wrong with these records, `count` of which fill the bytes; WITHIN when
    nothing is, and then the latest time of those that were gone over: NO_TIMESTAMP_MS where
    none has any."""
    return _find_in(bytes(data), count, rules, base_ms)


def _find_in(block: bytes, count: int, rules: int, base_ms: int) -> tuple[int, int]:
    times = [NO_TIMESTAMP_MS]
    try:
        fault = _find_fault(block, count, rules, base_ms, times)
    except (IndexError, NumberCutOff):
        fault = WITHIN if rules & PART else CORRUPT
    except CorruptBatch:
        fault = CORRUPT
    return fault, NO_TIMESTAMP_MS if fault else times[-1]


def _find_fault(data: bytes, count: int, rules: int, base_ms: int, times: list[int]) -> int:
    """`times` get those that are later than all before."""
    size = len(data)
    position = 0
    latest_ms = times[-1]
    for number in range(count):
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        end = position + (raw >> 1)
        if raw & 1 or (end > size and not rules & PART):
            return CORRUPT
        if rules & LIMITS and raw >> 1 > limits.RECORD_BYTES_MAX:
            return LONG_RECORD
        # The time, then the offset.
        raw = data[position + 1]
        position += 2
        if raw > 127:
            raw, position = read_more(data, position, raw, BITS_64)
        time_ms = base_ms + ((raw >> 1) ^ -(raw & 1))
        if not latest_ms >= time_ms >= _INT64_MIN:
            time_ms = as_int64(time_ms)
            if time_ms > latest_ms:
                latest_ms = time_ms
                times.append(time_ms)
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        if raw != number << 1:
            return CORRUPT
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        if raw != 1:
            if raw & 1:
                return CORRUPT
            if rules & LIMITS and raw >> 1 > limits.KEY_BYTES_MAX:
                return LONG_KEY
            if raw >> 1 > end - position:
                return CORRUPT
            position += raw >> 1
        elif rules & KEYED:
            return NO_KEY
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        if raw != 1:
            if raw & 1 or raw >> 1 > end - position:
                return CORRUPT
            position += raw >> 1
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        if raw & 1 or position > end:
            return CORRUPT
        if end > size:
            return WITHIN
        if raw:
            # The record is here whole, so that its headers are too.
            fault = _find_header_fault(data, position, end, raw >> 1, rules)
            if fault:
                return fault
        elif position != end:
            return CORRUPT
        position = end
        if rules & PART and position == size:
            return WITHIN
    return WITHIN if position == size else CORRUPT


def _find_header_fault(data: bytes, position: int, end: int, count: int, rules: int) -> int:
    if 2 * count > end - position:
        return CORRUPT
    try:
        return _find_in_headers(data, position, end, count, rules)
    except (IndexError, NumberCutOff):
        return CORRUPT


def _find_in_headers(data: bytes, position: int, end: int, count: int, rules: int) -> int:
    if rules & LIMITS and count > limits.HEADERS_MAX:
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
    return LONG_HEADERS if rules & LIMITS and total > limits.HEADER_BYTES_MAX else WITHIN
