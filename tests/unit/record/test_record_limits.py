"""Batches of clients are held to the limits of messages, without being decoded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.twins import both

from headrace.core import limits
from headrace.record import NewRecord, build_batch
from headrace.record.batch import HEADER_BYTES
from headrace.record.compression import Codec
from headrace.record.record_limits import (
    CORRUPT,
    KEYED,
    LIMITS,
    LONG_HEADERS,
    LONG_KEY,
    MANY_HEADERS,
    NO_KEY,
    WITHIN,
)

Find = Callable[[bytes, int, int], int]
FindInPlain = Callable[[bytes, int, int], tuple[int, list[tuple[int, int]]]]
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
    block = block_of(PLAIN, record, PLAIN)
    assert find_fault(block, 3, LIMITS) == fault
    # Where no queue reads the topic there are none.
    assert find_fault(block, 3, 0) == WITHIN


@twins
def test_records_that_do_not_fill_their_bytes_are_corrupt(find_fault: Find) -> None:
    block = block_of(PLAIN, PLAIN)
    for rules in (0, LIMITS):
        assert find_fault(block, 2, rules) == WITHIN
        assert find_fault(block, 1, rules) == find_fault(block, 3, rules) == CORRUPT
        assert {find_fault(block[:end], 2, rules) for end in range(len(block))} == {CORRUPT}


@twins
def test_offsets_that_are_not_one_behind_the_other_are_corrupt(find_fault: Find) -> None:
    block = bytearray(block_of(PLAIN, PLAIN, PLAIN))
    # Behind length, attributes and time.
    second = len(block) // 3 + 3
    assert block[second] == 2
    for delta in (0, 1, 4):
        block[second] = delta
        assert find_fault(bytes(block), 3, 0) == CORRUPT


@twins
def test_records_without_a_key_are_found_where_that_matters(find_fault: Find) -> None:
    block = block_of(PLAIN, NewRecord(b"", None), NewRecord(None, b"v"))
    assert find_fault(block, 3, KEYED) == NO_KEY
    assert find_fault(block, 3, LIMITS) == WITHIN
    assert find_fault(block_of(PLAIN, NewRecord(b"", None)), 2, KEYED | LIMITS) == WITHIN


@pytest.mark.parametrize("find_in_plain", both("headrace.record.record_limits.find_fault_in_plain"))
def test_plain_batches_are_gone_over_and_compressed_ones_named(find_in_plain: FindInPlain) -> None:
    plain, packed = build_batch([PLAIN] * 3), build_batch([PLAIN], codec=Codec.ZSTD)
    run = plain + packed + plain + packed
    places = [(1, len(plain)), (3, 2 * len(plain) + len(packed))]
    assert find_in_plain(bytes(run), 0, 10_000) == (WITHIN, places)
    assert find_in_plain(b"", 0, 1) == (WITHIN, [])
    run[len(plain) + len(packed) - 1] ^= 0xFF
    for bytes_max in (0, 1, 20, len(plain) - HEADER_BYTES - 1):
        assert find_in_plain(bytes(run), 0, bytes_max) == (WITHIN, places)
    run[len(plain) + len(packed) + HEADER_BYTES] = 0x7E
    assert find_in_plain(bytes(run), 0, 10_000) == (CORRUPT, [])
