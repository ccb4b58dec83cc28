"""Reading records: every way in which a well-sealed batch can be nonsense."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.core.errors import CorruptBatch
from headrace.record import (
    HEADER_BYTES,
    BatchHeader,
    NewRecord,
    Record,
    build_batch,
    build_values_batch,
    read_header,
    read_records,
)
from headrace.record.varint import encode_varint

TEMPLATE = read_header(build_values_batch([bytes(100)] * 10, 1_000, base_offset=500))


def batch_of(block: bytes, count: int = 1) -> tuple[bytes, BatchHeader]:
    """A batch with these bytes for its records; checksums do not matter here."""
    header = TEMPLATE._replace(count=count, batch_length=len(block) + HEADER_BYTES - 12)
    return bytes(HEADER_BYTES) + block, header


def record_of(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


# Attributes, time delta 1, offset delta 0, null key, value "v", no headers.
GOOD = bytes.fromhex("00 02 00 01 02 76 00")


def test_a_record_written_by_hand_is_read() -> None:
    batch, header = batch_of(record_of(GOOD))
    assert read_records(batch, header) == [Record(500, 1_001, None, b"v", ())]


def test_numbers_that_are_longer_than_needed_are_read() -> None:
    body = bytes.fromhex("00 8200 808000 8100 8280808000 76 8000")
    batch, header = batch_of(record_of(body))
    assert read_records(batch, header) == [Record(500, 1_001, None, b"v", ())]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_are_read_from_any_buffer(kind: Callable[[bytes], bytes]) -> None:
    batch = build_values_batch([b"a", b"b"], 1)
    read = read_records(kind(bytes(batch)))
    assert [record.value for record in read] == [b"a", b"b"]
    assert all(type(record.value) is bytes for record in read)


def test_bytes_behind_the_batch_do_not_matter() -> None:
    batch = build_values_batch([b"a"], 1) + b"another batch"
    assert [record.value for record in read_records(batch)] == [b"a"]


def test_negative_time_deltas_are_read() -> None:
    batch = build_batch([NewRecord(None, b"", (), t) for t in (10**12, 0, 10**12 - 1)])
    assert [record.timestamp_ms for record in read_records(batch)] == [10**12, 0, 10**12 - 1]


def test_a_time_that_does_not_fit_into_64_bits_goes_on_at_the_other_end() -> None:
    batch, header = batch_of(record_of(GOOD))
    [record] = read_records(batch, header._replace(base_timestamp_ms=2**63 - 1))
    assert record.timestamp_ms == -(2**63)


@pytest.mark.parametrize(
    ("name", "read"), [("02 ff", "\ufffd"), ("04 61ff", "a\ufffd"), ("06 eda080", "\ufffd" * 3)]
)
def test_a_header_name_that_is_not_utf8_is_read_as_far_as_it_is(name: str, read: str) -> None:
    batch, header = batch_of(record_of(bytes.fromhex(f"00 00 00 01 02 76 02 {name} 02 31")))
    [record] = read_records(batch, header)
    assert (record.value, record.headers) == (b"v", ((read, b"1"),))


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("key's length", "00 00 00 03 02 76 00"),
        ("key's length", "00 00 00 7e 02 76 00"),
        ("key's length", "00 00 00 feffffff0f 02 76 00"),
        ("value's length", "00 00 00 01 03 76 00"),
        ("value's length", "00 00 00 01 7e 76 00"),
        ("offset delta", "00 00 01 01 02 76 00"),
        ("offset delta", "00 00 14 01 02 76 00"),
        ("header count", "00 00 00 01 02 76 01"),
        ("header count", "00 00 00 01 02 76 06 00 00"),
        ("no key", "00 00 00 01 02 76 02 01 00"),
        ("impossible", "00 00 00 01 02 76 02 03 00"),
        ("impossible", "00 00 00 01 02 76 02 00 04 00"),
        ("ends at byte", "00 00 00 01 02 76 00 00"),
        ("more than 64 bits", "00 ffffffffffffffffff03 00 01 02 76 00"),
        ("more than 32 bits", "00 00 ffffffff1f 01 02 76 00"),
        ("cut off", "00 00 00 01 02 76"),
        ("value's length", "00 00 00 01 02"),
        ("cut off", "00 00"),
        ("cut off", "00"),
        ("cut off", ""),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(what: str, body: str) -> None:
    batch, header = batch_of(record_of(bytes.fromhex(body)))
    with pytest.raises(CorruptBatch, match=what):
        read_records(batch, header)


def test_a_record_longer_than_the_batch_is_refused() -> None:
    for length in (b"\x10", b"\xfe\xff\xff\xff\x0f", b"\x0d"):
        batch, header = batch_of(length + GOOD)
        with pytest.raises(CorruptBatch, match="length"):
            read_records(batch, header)


def test_a_record_does_not_reach_into_the_next() -> None:
    # The value claims one byte more than its record has: the next one's length.
    greedy = bytes.fromhex("00 00 00 01 06 76 00")
    batch, header = batch_of(record_of(greedy) + record_of(GOOD), count=2)
    with pytest.raises(CorruptBatch, match="value's length"):
        read_records(batch, header)


def test_offsets_that_do_not_ascend_are_refused() -> None:
    batch, header = batch_of(record_of(GOOD) * 2, count=2)
    with pytest.raises(CorruptBatch, match="out of order"):
        read_records(batch, header)


def test_fewer_records_than_counted_are_refused() -> None:
    batch, header = batch_of(record_of(GOOD), count=2)
    with pytest.raises(CorruptBatch, match="cut off"):
        read_records(batch, header)


def test_more_records_than_counted_are_refused() -> None:
    batch, header = batch_of(record_of(GOOD) * 2, count=1)
    with pytest.raises(CorruptBatch, match="8 bytes follow"):
        read_records(batch, header)


def test_an_empty_batch_has_no_bytes_for_records() -> None:
    batch, header = batch_of(b"", count=0)
    assert read_records(batch, header) == []
    batch, header = batch_of(b"\0", count=0)
    with pytest.raises(CorruptBatch, match="follow"):
        read_records(batch, header)


def test_a_batch_that_is_not_all_there_is_refused() -> None:
    batch = build_values_batch([b"value"], 0)
    with pytest.raises(CorruptBatch, match="cut off"):
        read_records(batch[:-1])
    with pytest.raises(CorruptBatch, match="cut off"):
        read_records(batch[:-1], read_header(batch))


def test_a_compressed_block_that_is_not_of_its_codec_is_refused() -> None:
    batch, header = batch_of(b"nothing compressed")
    for codec in (1, 2, 3, 4, 5):
        with pytest.raises(CorruptBatch):
            read_records(batch, header._replace(attributes=codec))
