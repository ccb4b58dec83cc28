"""Batches of clients are held to the limits of messages, without being decoded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.twins import both

from headrace.core import limits
from headrace.record import NewRecord, build_batch
from headrace.record.batch import HEADER_BYTES
from headrace.record.record_limits import (
    CORRUPT,
    LONG_HEADERS,
    LONG_KEY,
    MANY_HEADERS,
    WITHIN,
)

Find = Callable[[bytes, int], int]
twins = pytest.mark.parametrize("find_fault", both("headrace.record.record_limits.find_fault"))

PLAIN = NewRecord(b"key", b"value", (("name", b"content"), ("none", None)), 5)


def with_headers(count: int, size: int = 0) -> NewRecord:
    return NewRecord(None, b"v", (("", b"x" * size),) * count)


def block_of(*records: NewRecord) -> bytes:
    return bytes(build_batch(records)[HEADER_BYTES:])


@twins
@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (PLAIN, WITHIN),
        (NewRecord(None, None), WITHIN),
        (NewRecord(b"k" * limits.KEY_BYTES_MAX, b""), WITHIN),
        (NewRecord(b"k" * (limits.KEY_BYTES_MAX + 1), b""), LONG_KEY),
        (with_headers(limits.HEADERS_MAX), WITHIN),
        (with_headers(limits.HEADERS_MAX + 1), MANY_HEADERS),
        (with_headers(64, limits.HEADER_BYTES_MAX // 64), WITHIN),
        (with_headers(1, limits.HEADER_BYTES_MAX + 1), LONG_HEADERS),
    ],
)
def test_every_limit_holds_at_its_border(find_fault: Find, record: NewRecord, fault: int) -> None:
    assert find_fault(block_of(PLAIN, record, PLAIN), 3) == fault


@twins
def test_records_that_do_not_fill_their_bytes_are_corrupt(find_fault: Find) -> None:
    block = block_of(PLAIN, PLAIN)
    assert find_fault(block, 2) == WITHIN
    assert find_fault(block, 1) == find_fault(block, 3) == CORRUPT
    assert {find_fault(block[:end], 2) for end in range(len(block))} == {CORRUPT}
