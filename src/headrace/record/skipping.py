"""Stepping over records of a batch to one that is wanted, by lengths and offsets alone.

A batch may hold a million records, and who leases or reads it in small bites comes back
to the middle of it again and again.
"""

from __future__ import annotations

from headrace.compiled import compiled
from headrace.core.errors import CorruptBatch
from headrace.record.varint import BITS_64, read_more

# Where a record begins, the offset delta before it, and how many records are left.
Place = tuple[int, int, int]


@compiled
def skip_to(data: bytes, position: int, previous: int, left: int, wanted: int, stop: int) -> Place:
    """From this place on, the place of the first record at the offset delta `wanted` or
    behind it, or that begins at the byte `stop` or behind it. CorruptBatch when a record
    on the way cannot be read."""
    try:
        return _skip_to(data, position, previous, left, wanted, stop)
    except IndexError:
        raise CorruptBatch("a record is cut off at the end of the batch") from None


def _skip_to(data: bytes, position: int, previous: int, left: int, wanted: int, stop: int) -> Place:
    while left and previous < wanted - 1 and position < stop:
        raw, body = data[position], position + 1
        if raw > 127:
            raw, body = read_more(data, body, raw)
        end = body + (raw >> 1)
        if raw & 1 or end > len(data):
            raise CorruptBatch(f"a record's length at byte {body} is impossible")
        # Attributes and the time stand before the offset.
        raw, body = data[body + 1], body + 2
        if raw > 127:
            raw, body = read_more(data, body, raw, BITS_64)
        raw, body = data[body], body + 1
        if raw > 127:
            raw, body = read_more(data, body, raw)
        if raw >> 1 >= wanted:
            break
        position, previous, left = end, raw >> 1, left - 1
    return position, previous, left
