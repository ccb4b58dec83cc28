"""The header view: what it reads, what it refuses, what it changes in place."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from headrace.core import limits
from headrace.core.errors import CorruptBatch
from headrace.record import (
    HEADER_BYTES,
    Codec,
    NewRecord,
    build_batch,
    build_values_batch,
    check_batch,
    patch_batch,
    read_header,
    read_records,
    split_batches,
    stamp_append_time,
)

# One record, value "hi", at time 5: written out by hand from the format page.
BY_HAND = bytes.fromhex(
    "0000000000000000"  # base offset
    "0000003a"  # batch length: 49 and a record of 9 bytes
    "00000000"  # leader epoch
    "02"  # magic
    "00000000"  # crc, compared separately
    "0000"  # attributes
    "00000000"  # last offset delta
    "0000000000000005"  # base timestamp
    "0000000000000005"  # max timestamp
    "ffffffffffffffff"  # producer id
    "ffff"  # producer epoch
    "ffffffff"  # base sequence
    "00000001"  # count
    "10"  # length 8
    "00"  # attributes
    "00"  # timestamp delta
    "00"  # offset delta
    "01"  # null key
    "04"  # value of 2 bytes
    "6869"
    "00"  # no headers
)


def crc32c_by_definition(data: bytes) -> int:
    """The Castagnoli polynomial, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def changed(at: int, form: str, value: int) -> bytearray:
    batch = build_values_batch([b"one", b"two", b"three"], 1000, base_offset=7)
    struct.pack_into(form, batch, at, value)
    return batch


def test_a_batch_is_what_the_format_page_says() -> None:
    batch = build_values_batch([b"hi"], 5)
    assert batch[:17] == BY_HAND[:17]
    assert batch[21:] == BY_HAND[21:]
    assert batch[17:21] == crc32c_by_definition(BY_HAND[21:]).to_bytes(4, "big")


def test_the_header_view_has_every_field() -> None:
    batch = build_batch(
        [NewRecord(None, b"a", timestamp_ms=50), NewRecord(None, b"b", timestamp_ms=40)],
        base_offset=1000,
        leader_epoch=3,
        codec=Codec.GZIP,
        producer_id=77,
        producer_epoch=2,
        base_sequence=9,
        transactional=True,
    )
    header = read_header(batch)
    assert header.base_offset == 1000
    assert header.size_bytes == len(batch) == header.batch_length + 12
    assert header.leader_epoch == 3
    assert header.magic == 2
    assert (header.last_offset, header.next_offset, header.count) == (1001, 1002, 2)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (50, 50)
    assert (header.producer_id, header.producer_epoch) == (77, 2)
    assert (header.base_sequence, header.last_sequence) == (9, 10)
    assert header.codec == Codec.GZIP
    assert header.is_transactional and header.is_dense
    assert not (header.is_control or header.has_log_append_time or header.has_delete_horizon)
    assert header.delete_horizon_ms is None


def test_sequence_numbers_wrap_to_zero() -> None:
    batch = build_values_batch([b"", b"", b""], 0, producer_id=1, base_sequence=2**31 - 2)
    assert read_header(batch).last_sequence == 0


def test_a_batch_without_sequence_has_no_last_sequence() -> None:
    assert read_header(build_values_batch([b"", b""], 0)).last_sequence == -1


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_batch_is_checked_at_any_position_of_any_buffer(
    kind: Callable[[bytes], bytes],
) -> None:
    batch = build_values_batch([b"x"], 0, base_offset=5)
    buffer = kind(b"junk" + batch + b"more")
    assert check_batch(buffer, 4).base_offset == 5


@pytest.mark.parametrize(
    ("at", "form", "value", "message"),
    [
        (16, ">b", 1, "magic is 1"),
        (8, ">i", 48, "length 48"),
        (8, ">i", -1, "length -1"),
        (8, ">i", limits.BATCH_BYTES_MAX - 11, "length"),
        (57, ">i", -1, "count -1"),
        (57, ">i", limits.BATCH_RECORDS_MAX + 1, "count"),
        (57, ">i", 4, "4 records in 3 offsets"),
        (23, ">i", -1, "impossible"),
        (0, ">q", -1, "impossible"),
        (0, ">q", 2**63 - 1, "beyond"),
        (21, ">h", 5, "codec 5 is unknown"),
    ],
)
def test_an_impossible_header_is_refused_with_its_reason(
    at: int, form: str, value: int, message: str
) -> None:
    with pytest.raises(CorruptBatch, match=message):
        read_header(changed(at, form, value))


def test_more_records_than_fit_are_refused_before_reading_them() -> None:
    batch = changed(57, ">i", 1000)
    struct.pack_into(">i", batch, 23, 999)
    with pytest.raises(CorruptBatch, match="1000 records do not fit"):
        read_header(batch)


def test_an_empty_batch_has_at_least_one_offset() -> None:
    batch = changed(57, ">i", 0)
    struct.pack_into(">i", batch, 23, 0)
    assert read_header(batch).count == 0
    struct.pack_into(">i", batch, 23, -1)
    with pytest.raises(CorruptBatch, match="impossible"):
        read_header(batch)


def test_a_header_is_refused_when_cut_at_any_byte() -> None:
    batch = build_values_batch([b"x"], 0)
    for size in range(HEADER_BYTES):
        with pytest.raises(CorruptBatch, match="cut off"):
            read_header(batch[:size])
    assert read_header(batch[:HEADER_BYTES]).count == 1


def test_a_batch_is_refused_when_cut_at_any_byte() -> None:
    batch = build_values_batch([b"x" * 20], 0)
    for size in range(len(batch)):
        with pytest.raises(CorruptBatch, match="cut off"):
            check_batch(batch[:size])


def test_any_flipped_bit_behind_the_checksum_is_noticed() -> None:
    batch = build_values_batch([b"value"], 0)
    for position in range(17, len(batch)):
        for bit in range(8):
            batch[position] ^= 1 << bit
            with pytest.raises(CorruptBatch):
                check_batch(batch)
            batch[position] ^= 1 << bit
    check_batch(batch)


def test_batches_back_to_back_are_split() -> None:
    batches = [build_values_batch([b"x" * n], 0, base_offset=n) for n in range(3)]
    split = list(split_batches(b"".join(batches)))
    assert [header.base_offset for _, header in split] == [0, 1, 2]
    assert [position for position, _ in split] == [0, len(batches[0]), len(batches[0] + batches[1])]


def test_nothing_splits_into_no_batches() -> None:
    assert list(split_batches(b"")) == []


def test_bytes_that_follow_the_last_batch_are_refused() -> None:
    batch = bytes(build_values_batch([b"x"], 0))
    with pytest.raises(CorruptBatch):
        list(split_batches(batch + b"\0"))
    with pytest.raises(CorruptBatch, match="cut off"):
        list(split_batches(batch + batch[:-1]))


def test_patching_a_batch_leaves_its_checksum_valid() -> None:
    batch = bytearray(b"....") + build_values_batch([b"x"], 0)
    patch_batch(batch, 123456789012, 42, 4)
    header = check_batch(batch, 4)
    assert (header.base_offset, header.leader_epoch) == (123456789012, 42)
    assert batch[:4] == b"...."


def test_append_time_becomes_the_time_of_every_record() -> None:
    batch = build_batch([NewRecord(None, b"a", timestamp_ms=t) for t in (5, 9, 7)])
    stamp_append_time(batch, 1000)
    header = check_batch(batch)
    assert header.has_log_append_time and header.max_timestamp_ms == 1000
    assert [record.timestamp_ms for record in read_records(batch)] == [1000, 1000, 1000]


def test_append_time_leaves_the_other_attributes_alone() -> None:
    batch = build_values_batch([b"a" * 500], 1, codec=Codec.ZSTD, transactional=True)
    before = read_header(batch)
    stamp_append_time(batch, 7)
    header = check_batch(batch)
    assert header.codec == Codec.ZSTD and header.is_transactional
    assert header.base_timestamp_ms == before.base_timestamp_ms
    assert [record.value for record in read_records(batch)] == [b"a" * 500]


def test_append_time_is_stamped_on_the_batch_at_its_position_alone() -> None:
    first = build_values_batch([b"a"], 1)
    both = first + build_values_batch([b"b"], 2)
    stamp_append_time(both, 99, len(first))
    assert both[: len(first)] == first
    assert check_batch(both, len(first)).max_timestamp_ms == 99


def test_a_checked_bytearray_can_still_grow() -> None:
    batch = build_values_batch([b"x"], 0)
    check_batch(batch)
    batch += b"more"
    assert batch.endswith(b"more")
