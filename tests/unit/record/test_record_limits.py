"""Batches of clients are held to the limits of messages, without being decoded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.twins import both

from headrace.core import limits
from headrace.core.errors import CorruptBatch, RecordTooLarge
from headrace.record import Codec, NewRecord, build_batch
from headrace.record.batch import HEADER_BYTES
from headrace.record.record_limits import (
    CORRUPT,
    LONG_HEADERS,
    LONG_KEY,
    MANY_HEADERS,
    WITHIN,
    check_record_limits,
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


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_is_refused_by_what_is_inside_whatever_its_codec(codec: Codec) -> None:
    check_record_limits(build_batch([PLAIN] * 3, codec=codec))
    with pytest.raises(RecordTooLarge, match="at most 128 headers"):
        check_record_limits(build_batch([PLAIN, with_headers(200_000)], codec=codec))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_holds_more_than_is_opened_is_refused(codec: Codec) -> None:
    large = [NewRecord(None, bytes(limits.RECORD_BYTES_MAX - 100))] * 3
    batch = build_batch(large, codec=codec)
    with pytest.raises(RecordTooLarge, match="send smaller batches"):
        check_record_limits(batch)


def test_nonsense_behind_a_good_checksum_is_corrupt() -> None:
    batch = build_batch([PLAIN])
    batch[HEADER_BYTES] = 0x7E
    with pytest.raises(CorruptBatch):
        check_record_limits(batch)
