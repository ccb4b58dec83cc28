"""Building batches: the general way, the fast way, sparse and control batches."""

from __future__ import annotations

import pytest

from headrace.core import limits
from headrace.core.errors import CorruptBatch, InvalidArgument, RecordTooLarge
from headrace.record import (
    Codec,
    ControlKind,
    ControlMarker,
    Headers,
    NewRecord,
    Record,
    build_batch,
    build_control_batch,
    build_sparse_batch,
    build_values_batch,
    check_batch,
    encode_headers,
    read_control,
    read_header,
    read_records,
    stamp_append_time,
)

HEADERS = (("trace", b"abc"), ("empty", b""), ("null", None), ("größe", b"\x00"))
RECORDS = [
    NewRecord(b"key", b"value", HEADERS, 1_000),
    NewRecord(None, b"no key", (), 999),
    NewRecord(b"tombstone", None, (), 5_000_000),
    NewRecord(b"", b"", (("a", b"1"), ("a", b"2")), 1_000),
    NewRecord(None, None, (), -1),
]


def placed(records: list[NewRecord], base_offset: int) -> list[Record]:
    return [
        Record(base_offset + delta, record.timestamp_ms, record.key, record.value, record.headers)
        for delta, record in enumerate(records)
    ]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_come_back_as_they_were_given(codec: Codec) -> None:
    batch = build_batch(RECORDS, base_offset=40, codec=codec)
    header = check_batch(batch)
    assert header.codec == codec
    assert header.max_timestamp_ms == 5_000_000
    assert read_records(batch, header) == placed(RECORDS, 40)


def test_records_that_were_read_can_be_built_again_elsewhere() -> None:
    read = read_records(build_batch(RECORDS, base_offset=40))
    assert read_records(build_batch(read, base_offset=7)) == placed(RECORDS, 7)


@pytest.mark.parametrize("codec", list(Codec))
def test_the_fast_way_makes_the_same_bytes_as_the_general_way(codec: Codec) -> None:
    # Offset deltas of one, two and three bytes, lengths of one to three.
    values = [b"v" * (n % 150) for n in range(9_000)] + [b"v" * 20_000]
    headers = (("headrace-priority", b"1"),)
    fast = build_values_batch(
        values, 77, headers=encode_headers(headers), base_offset=3, leader_epoch=4, codec=codec
    )
    general = build_batch(
        [NewRecord(None, value, headers, 77) for value in values],
        base_offset=3,
        leader_epoch=4,
        codec=codec,
    )
    assert fast == general


@pytest.mark.parametrize("count", [63, 64, 65, 8_191, 8_192, 8_193])
def test_values_of_one_length_are_built_right_where_offsets_grow(count: int) -> None:
    # A longer offset delta makes a longer record, though the value is the same.
    batch = build_values_batch([b"same"] * count, 5)
    assert batch == build_batch([NewRecord(None, b"same", (), 5)] * count)
    assert len(read_records(batch)) == count


def test_the_fast_way_carries_the_producer() -> None:
    header = check_batch(
        build_values_batch(
            [b"x"], 1, producer_id=5, producer_epoch=6, base_sequence=7, transactional=True
        )
    )
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert header.is_transactional


def test_an_empty_batch_is_not_built() -> None:
    with pytest.raises(InvalidArgument):
        build_batch([])
    with pytest.raises(InvalidArgument):
        build_values_batch([], 0)


def test_too_many_records_are_not_built() -> None:
    with pytest.raises(InvalidArgument, match="records"):
        build_values_batch([b""] * (limits.BATCH_RECORDS_MAX + 1), 0)


def test_a_record_above_the_limit_is_not_built() -> None:
    value = bytes(limits.RECORD_BYTES_MAX)
    with pytest.raises(RecordTooLarge):
        build_values_batch([value], 0)
    with pytest.raises(RecordTooLarge):
        build_batch([NewRecord(None, value, (), 0)])


def test_a_batch_above_the_limit_is_not_built() -> None:
    value = bytes(limits.BATCH_BYTES_MAX // 8)
    with pytest.raises(RecordTooLarge, match="batch"):
        build_values_batch([value] * 8, 0)


def test_a_number_that_no_header_can_hold_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        build_values_batch([b"x"], 2**63)
    with pytest.raises(InvalidArgument):
        build_values_batch([b"x"], 0, base_offset=2**63)
    with pytest.raises(InvalidArgument):
        build_values_batch([b"x"], 0, producer_epoch=2**15)


def test_a_header_name_that_has_no_utf8_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="header name"):
        encode_headers((("\ud800", b""),))


def test_a_large_record_that_is_in_the_log_can_be_kept() -> None:
    template = read_header(build_values_batch([b"x"], 0, codec=Codec.ZSTD))
    record = Record(0, 0, None, bytes(limits.RECORD_BYTES_MAX + 1), ())
    assert read_records(build_sparse_batch([record], template)) == [record]


def test_times_further_apart_than_64_bits_come_back() -> None:
    times = [-(2**62), 2**63 - 1, -(2**63), 0]
    batch = build_batch([NewRecord(None, b"", (), each) for each in times])
    assert [record.timestamp_ms for record in read_records(batch)] == times


@pytest.mark.parametrize("codec", list(Codec))
def test_a_sparse_batch_keeps_offsets_times_and_producer(codec: Codec) -> None:
    whole = build_batch(
        RECORDS, base_offset=40, leader_epoch=2, codec=codec, producer_id=9, base_sequence=3
    )
    template = read_header(whole)
    kept = read_records(whole)[1:4:2]
    header = check_batch(sparse := build_sparse_batch(kept, template))
    assert read_records(sparse) == kept
    assert header.count == 2
    assert not header.is_dense
    unchanged = {"batch_length": 0, "crc": 0, "count": 0}
    assert header._replace(**unchanged) == template._replace(**unchanged)


def test_a_sparse_batch_of_everything_is_the_batch_itself() -> None:
    whole = build_batch(RECORDS, base_offset=40, leader_epoch=2)
    assert build_sparse_batch(read_records(whole), read_header(whole)) == whole


@pytest.mark.parametrize("codec", list(Codec))
def test_a_sparse_batch_may_be_empty(codec: Codec) -> None:
    whole = build_batch(RECORDS, base_offset=40, codec=codec, producer_id=9, base_sequence=3)
    header = check_batch(sparse := build_sparse_batch([], read_header(whole)))
    assert read_records(sparse) == []
    assert (header.base_offset, header.next_offset, header.count) == (40, 45, 0)
    assert header.last_sequence == 7
    assert header.codec == Codec.NONE
    assert len(sparse) == 61


def test_a_sparse_batch_changes_its_codec_on_demand() -> None:
    whole = build_batch(RECORDS, codec=Codec.ZSTD, transactional=True)
    sparse = build_sparse_batch(read_records(whole), read_header(whole), codec=Codec.NONE)
    assert check_batch(sparse).codec == Codec.NONE
    assert check_batch(sparse).is_transactional
    assert read_records(sparse) == read_records(whole)


def test_a_delete_horizon_is_kept_and_moves_no_timestamp() -> None:
    whole = build_batch(RECORDS, base_offset=40)
    records = read_records(whole)
    once = build_sparse_batch(records, read_header(whole), delete_horizon_ms=123_456_789)
    again = build_sparse_batch(records[2:], check_batch(once))
    for batch in (once, again):
        assert check_batch(batch).has_delete_horizon
        assert check_batch(batch).delete_horizon_ms == 123_456_789
    assert read_records(once) == records
    assert read_records(again) == records[2:]


def test_a_sparse_batch_keeps_its_append_time() -> None:
    whole = build_batch(RECORDS)
    stamp_append_time(whole, 2**50)
    records = read_records(whole)[2:]
    sparse = build_sparse_batch(records, read_header(whole))
    assert read_records(sparse) == records
    assert {record.timestamp_ms for record in records} == {2**50}
    # The append time is far from the base timestamp, and still costs no bytes.
    assert len(build_sparse_batch(read_records(whole), read_header(whole))) <= len(whole)


@pytest.mark.parametrize("offsets", [(41, 40), (40, 40), (39,), (45,)])
def test_a_sparse_batch_refuses_offsets_that_are_not_its_own(offsets: tuple[int, ...]) -> None:
    template = read_header(build_batch(RECORDS, base_offset=40))
    with pytest.raises(InvalidArgument):
        build_sparse_batch([Record(offset, 0, None, b"", ()) for offset in offsets], template)


@pytest.mark.parametrize("kind", list(ControlKind))
def test_a_marker_comes_back_as_it_was_given(kind: ControlKind) -> None:
    batch = build_control_batch(
        kind,
        base_offset=11,
        leader_epoch=2,
        timestamp_ms=33,
        producer_id=44,
        producer_epoch=5,
        coordinator_epoch=66,
    )
    header = check_batch(batch)
    assert header.is_control and header.is_transactional
    assert (header.leader_epoch, header.base_sequence) == (2, -1)
    assert read_control(batch) == ControlMarker(kind, 11, 33, 44, 5, 66)


def test_an_ordinary_batch_is_no_marker() -> None:
    with pytest.raises(CorruptBatch, match="not a control batch"):
        read_control(build_values_batch([b"x"], 0))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0\0\0\7", bytes(6)),
        (b"\0\0", bytes(6)),
        (bytes(4), b"\0"),
        (None, bytes(6)),
        (bytes(4), None),
    ],
)
def test_a_control_record_that_is_no_marker_is_refused(
    key: bytes | None, value: bytes | None
) -> None:
    template = read_header(
        build_control_batch(
            ControlKind.ABORT,
            base_offset=0,
            leader_epoch=0,
            timestamp_ms=0,
            producer_id=1,
            producer_epoch=0,
            coordinator_epoch=0,
        )
    )
    with pytest.raises(CorruptBatch):
        read_control(build_sparse_batch([Record(0, 0, key, value, ())], template))
    with pytest.raises(CorruptBatch, match="0 records"):
        read_control(build_sparse_batch([], template))


@pytest.mark.parametrize("count", [15, 16, 63, 64, 65, 1_000, 8_192, 8_193])
@pytest.mark.parametrize("headers", [(), (("source", b"import"), ("empty", None))])
def test_values_of_one_length_make_the_same_batch_as_records_do(
    count: int, headers: Headers
) -> None:
    values = [b"%08d" % number for number in range(count)]
    records = [NewRecord(None, value, headers, 7) for value in values]
    for _ in range(2):
        built = build_values_batch(values, 7, headers=encode_headers(headers))
        assert built == build_batch(records)
