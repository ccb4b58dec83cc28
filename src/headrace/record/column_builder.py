"""Rows of columns, in; the records of one batch, out. The other way of `columns`.

    rows 4, 0, 2 of       ─>   length attributes time offset key value headers | ...
    key, value, headers

Rows are chosen by number, since the rows of one Arrow batch go to many partitions.

Rejected: a NewRecord for each row. Making the object costs more than encoding it.
"""

from __future__ import annotations

from array import array

from headrace.compiled import compiled
from headrace.core.errors import InvalidArgument, RecordTooLarge
from headrace.core.limits import RECORD_BYTES_MAX
from headrace.core.ports import Buffer
from headrace.record.builder import NO_HEADERS
from headrace.record.columns import BytesColumn
from headrace.record.varint import as_int64, encode_varint


@compiled
def encode_rows(
    rows: Buffer,
    key: BytesColumn | None,
    value: BytesColumn | None,
    headers: BytesColumn | None,
    timestamps_ms: Buffer | None,
    base_timestamp_ms: int,
) -> bytearray:
    """The records of these rows (int32 each), with offset deltas from 0 on. A column
    that is None is null in every row; `headers` are blocks as `encode_headers` makes
    them; without timestamps (int64 each) every record has the base.

    RecordTooLarge when one is. Numbers of rows that the columns do not have are the
    caller's fault, and raise InvalidArgument."""
    parts: list[bytes] = []
    chosen = array("i", bytes(rows))
    times = None if timestamps_ms is None else array("q", bytes(timestamps_ms))
    keys, values, blocks = _reader(key), _reader(value), _reader(headers)
    for delta, row in enumerate(chosen):
        time_delta = 0 if times is None else _at(times, row) - base_timestamp_ms
        body = (
            b"\0"
            + encode_varint(as_int64(time_delta))
            + encode_varint(delta)
            + _sized(keys(row))
            + _sized(values(row))
            + (blocks(row) or NO_HEADERS)
        )
        if len(body) > RECORD_BYTES_MAX:
            raise RecordTooLarge(
                f"row {row} makes a record of {len(body)} bytes, at most {RECORD_BYTES_MAX} are "
                "allowed"
            )
        parts += (encode_varint(len(body)), body)
    return bytearray().join(parts)


class _Nulls:
    def __call__(self, row: int) -> bytes | None:
        return None


class _Values:
    def __init__(self, column: BytesColumn) -> None:
        self._starts = array("i", bytes(column.starts))
        self._data = column.data
        self._validity = column.validity

    def __call__(self, row: int) -> bytes | None:
        if not 0 <= row < len(self._starts) - 1:
            raise InvalidArgument(f"there is no row {row}")
        if self._validity is not None and not self._validity[row >> 3] >> (row & 7) & 1:
            return None
        return bytes(self._data[self._starts[row] : self._starts[row + 1]])


def _reader(column: BytesColumn | None) -> _Nulls | _Values:
    return _Nulls() if column is None else _Values(column)


def _at(times: array[int], row: int) -> int:
    if not 0 <= row < len(times):
        raise InvalidArgument(f"there is no row {row}")
    return times[row]


def _sized(value: bytes | None) -> bytes:
    return encode_varint(-1) if value is None else encode_varint(len(value)) + value
