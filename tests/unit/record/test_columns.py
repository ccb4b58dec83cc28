"""Records as columns, plain and compiled."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.twins import both

from headrace.core.errors import CorruptBatch
from headrace.record import (
    Codec,
    NewRecord,
    build_batch,
    build_sparse_batch,
    read_header,
    read_records,
    stamp_append_time,
)
from headrace.record.columns import BytesColumn, Columns, open_block

Decode = Callable[..., Columns]
EVERYTHING = (0, 2**63 - 1)

each_twin = pytest.mark.parametrize("decode", both("headrace.record.columns.decode_columns"))

RECORDS = [
    NewRecord(b"k", b"value", (), 1_000),
    NewRecord(None, b"", (("a", b"1"), ("b", None)), 1_001),
    NewRecord(b"", None, (), 999),
    NewRecord(b"key" * 100, b"v" * 5_000, (("é", b""),), 2_000_000_000_000),
]


def blocks_of(*batches: bytes | bytearray) -> list[Any]:
    return [open_block(batch, read_header(batch)) for batch in batches]


def column(found: BytesColumn, rows: int) -> list[bytes | None]:
    starts = array("i", bytes(found.starts))
    assert len(starts) == rows + 1
    return [
        bytes(found.data[starts[row] : starts[row + 1]])
        if found.validity is None or found.validity[row >> 3] >> (row & 7) & 1
        else None
        for row in range(rows)
    ]


def numbers(code: str, data: Any) -> list[int]:
    return list(array(code, bytes(data)))


def rows_of(columns: Columns) -> list[tuple[Any, ...]]:
    rows = columns.rows
    headers: Sequence[Any] = [None] * rows
    if columns.headers is not None:
        names = column(columns.headers.names, columns.headers.headers)
        values = column(columns.headers.values, columns.headers.headers)
        starts = numbers("i", columns.headers.starts)
        validity = columns.headers.validity
        pairs = list(zip(names, values, strict=True))
        headers = [
            pairs[starts[row] : starts[row + 1]]
            if validity is None or validity[row >> 3] >> (row & 7) & 1
            else None
            for row in range(rows)
        ]
    return list(
        zip(
            numbers("q", columns.offset),
            numbers("q", columns.timestamp_us),
            numbers("i", columns.timestamp_type),
            column(columns.key, rows),
            column(columns.value, rows),
            headers,
            strict=True,
        )
    )


@each_twin
@pytest.mark.parametrize("codec", list(Codec))
def test_every_field_of_a_record_has_its_column(decode: Decode, codec: Codec) -> None:
    batch = build_batch(RECORDS, base_offset=7, codec=codec)
    assert rows_of(decode(blocks_of(batch), *EVERYTHING, with_headers=True)) == [
        (7, 1_000_000, 0, b"k", b"value", None),
        (8, 1_001_000, 0, None, b"", [(b"a", b"1"), (b"b", None)]),
        (9, 999_000, 0, b"", None, None),
        (10, 2_000_000_000_000_000, 0, b"key" * 100, b"v" * 5_000, [("é".encode(), b"")]),
    ]


@each_twin
def test_headers_are_left_out_when_nobody_asks_for_them(decode: Decode) -> None:
    columns = decode(blocks_of(build_batch(RECORDS)), *EVERYTHING)
    assert columns.headers is None
    assert columns.rows == len(RECORDS)


@each_twin
def test_a_column_without_nulls_has_no_validity(decode: Decode) -> None:
    batch = build_batch([NewRecord(None, b"1", (), 0), NewRecord(None, b"2", (), 0)])
    columns = decode(blocks_of(batch), *EVERYTHING)
    assert columns.value.validity is None
    assert bytes(columns.key.validity or b"") == b"\0"


@each_twin
def test_only_the_offsets_of_the_range_come_out(decode: Decode) -> None:
    batches = [
        build_batch([NewRecord(None, b"%d" % n, (), n) for n in range(10)], base_offset=base)
        for base in (0, 10, 20)
    ]
    columns = decode(blocks_of(*batches), 5, 23)
    assert numbers("q", columns.offset) == list(range(5, 23))


@each_twin
def test_the_time_of_the_broker_is_the_time_of_every_record(decode: Decode) -> None:
    batch = build_batch(RECORDS)
    stamp_append_time(batch, 5_000)
    columns = decode(blocks_of(batch), *EVERYTHING)
    assert numbers("q", columns.timestamp_us) == [5_000_000] * 4
    assert numbers("i", columns.timestamp_type) == [1] * 4


@each_twin
def test_gaps_that_compaction_left_stay_gaps(decode: Decode) -> None:
    whole = build_batch([NewRecord(b"k", b"%d" % n, (), n) for n in range(6)], base_offset=40)
    kept = [record for record in read_records(whole) if record.offset in (41, 45)]
    sparse = build_sparse_batch(kept, read_header(whole))
    columns = decode(blocks_of(sparse), *EVERYTHING)
    assert numbers("q", columns.offset) == [41, 45]


@each_twin
def test_no_blocks_are_no_rows(decode: Decode) -> None:
    assert rows_of(decode([], *EVERYTHING, with_headers=True)) == []
    empty = build_sparse_batch([], read_header(build_batch(RECORDS)))
    assert decode(blocks_of(empty), *EVERYTHING).rows == 0


@each_twin
@pytest.mark.parametrize("time_ms", [-1, -(2**62), 2**62])
def test_impossible_times_become_the_nearest_possible(decode: Decode, time_ms: int) -> None:
    batch = build_batch([NewRecord(None, b"", (), time_ms)])
    most = (2**63 - 1) // 1000
    expected = min(max(time_ms, -most), most) * 1000
    assert numbers("q", decode(blocks_of(batch), *EVERYTHING).timestamp_us) == [expected]


@each_twin
@pytest.mark.parametrize("damage", ["cut", "more", "count", "bytes"])
def test_records_that_are_not_what_they_claim_are_refused(decode: Decode, damage: str) -> None:
    [block] = blocks_of(build_batch(RECORDS))
    records, header = bytes(block.records), block.header
    if damage == "cut":
        records = records[:-1]
    elif damage == "more":
        records += b"\0"
    elif damage == "count":
        header = header._replace(count=10_000_000, last_offset_delta=10_000_000)
    else:
        records = b"\xff" * len(records)
    with pytest.raises(CorruptBatch):
        decode([(records, header)], *EVERYTHING)


@each_twin
def test_of_a_header_name_that_is_not_text_the_rest_is_kept(decode: Decode) -> None:
    made = NewRecord(None, b"", (("a-bcd", b"1"), ("é", b"2")), 0)
    [block] = blocks_of(build_batch([made] * 100))
    records = bytes(block.records).replace(b"-bcd", b"\xff\xfe\xfd\xfc")
    rows = rows_of(decode([(records, block.header)], *EVERYTHING, with_headers=True))
    name = "a\ufffd\ufffd\ufffd\ufffd".encode()
    assert [row[-1] for row in rows] == [[(name, b"1"), ("é".encode(), b"2")]] * 100


@each_twin
def test_a_record_has_all_its_headers_however_many(decode: Decode) -> None:
    headers = tuple((f"{number}", b"x" * 600) for number in range(300))
    blocks = blocks_of(build_batch([NewRecord(None, b"", headers)]))
    (row,) = rows_of(decode(blocks, *EVERYTHING, with_headers=True))
    assert row[-1] == [(name.encode(), value) for name, value in headers]
