"""Rows of columns as records, plain and compiled."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import pytest
from tests.twins import both

from headrace.core.errors import InvalidArgument, RecordTooLarge
from headrace.core.limits import RECORD_BYTES_MAX
from headrace.record import Codec, encode_headers, read_header, read_records, seal_records
from headrace.record.columns import BytesColumn, pack_bits

Encode = Callable[..., bytearray]

each_twin = pytest.mark.parametrize("encode", both("headrace.record.column_builder.encode_rows"))


def column(values: Sequence[bytes | None]) -> BytesColumn:
    starts = array("i", [0])
    for value in values:
        starts.append(starts[-1] + len(value or b""))
    flags = [value is not None for value in values]
    return BytesColumn(
        starts.tobytes(),
        b"".join(value or b"" for value in values),
        None if all(flags) else pack_bits(flags),
    )


def rows(*numbers: int) -> bytes:
    return array("i", numbers).tobytes()


@each_twin
def test_records_have_what_their_rows_have(encode: Encode) -> None:
    headers = [encode_headers((("a", b"1"),)), None]
    data = encode(
        rows(1, 0),
        column([b"k0", None]),
        column([None, b"v" * 300]),
        column(headers),
        array("q", [1_000, 5]).tobytes(),
        5,
    )
    batch = seal_records(data, 2, 5, 1_000)
    first, second = read_records(batch)
    assert first == (0, 5, None, b"v" * 300, ())
    assert second == (1, 1_000, b"k0", None, (("a", b"1"),))


@each_twin
def test_missing_columns_are_null(encode: Encode) -> None:
    batch = seal_records(encode(rows(0, 1), None, column([b"", b"x"]), None, None, 7), 2, 7, 7)
    assert [record[1:4] for record in read_records(batch)] == [(7, None, b""), (7, None, b"x")]


@each_twin
def test_a_batch_knows_its_producer_and_is_compressed(encode: Encode) -> None:
    data = encode(rows(0), None, column([b"x" * 1_000]), None, None, 0)
    batch = seal_records(
        data, 1, 0, 0, codec=Codec.LZ4, producer_id=7, producer_epoch=1, base_sequence=9,
        transactional=True,
    )  # fmt: skip
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 9)
    assert header.is_transactional
    assert header.codec == Codec.LZ4
    assert read_records(batch)[0].value == b"x" * 1_000


@each_twin
@pytest.mark.parametrize("row", [-1, 2, 2**31 - 1])
def test_rows_that_are_not_there_are_refused(encode: Encode, row: int) -> None:
    with pytest.raises(InvalidArgument, match="there is no row"):
        encode(rows(0, row), None, column([b"a", b"b"]), None, None, 0)
    with pytest.raises(InvalidArgument, match="there is no row"):
        encode(rows(row), None, None, None, array("q", [1, 2]).tobytes(), 0)


@each_twin
def test_a_row_that_is_too_large_is_refused(encode: Encode) -> None:
    with pytest.raises(RecordTooLarge, match="row 1 makes a record of"):
        encode(rows(0, 1), None, column([b"", b"x" * RECORD_BYTES_MAX]), None, None, 0)
