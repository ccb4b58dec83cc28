"""Records as columns: the bytes of batches in, buffers of Arrow's layout out.

    batch ─> Block: its records, decompressed, and what its header says of all of them
    blocks ─> Columns: one buffer of offsets and one of bytes for each of key and value,
              one of numbers for each of offset and timestamp

        value       first   second
        starts      0 5 11          int32, one more than rows
        data        hellofriend     one after the other
        validity    0b11            a bit a row, low bits first; None: nothing is null

This is the same decoding as in the reader, and as distrustful: whatever the bytes
are, the outcome is columns or CorruptBatch. Timestamps beyond what microseconds can
hold become the nearest that they can. Names of headers that are not UTF-8, which a column
of text cannot hold, have U+FFFD where they are not.

Rejected: Arrow's own builders. They take a Python object for each value; a buffer
takes none.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from headrace.compiled import compiled
from headrace.core import limits
from headrace.core.errors import CorruptBatch
from headrace.core.ports import Buffer
from headrace.record.batch import HEADER_BYTES, BatchHeader
from headrace.record.compression import Codec, decompress
from headrace.record.reader import read_headers, read_raw_block
from headrace.record.record import Headers

# Starts are int32: so many bytes fit into one column.
COLUMN_BYTES_MAX: Final = 2**31 - 1
_MS_MAX: Final = (2**63 - 1) // 1000


class Block(NamedTuple):
    """The records of one batch, uncompressed, and where they stand."""

    records: Buffer
    header: BatchHeader


class BytesColumn(NamedTuple):
    """Values of any length: value n is data[starts[n]:starts[n + 1]]."""

    starts: Buffer
    data: Buffer
    validity: Buffer | None


class HeadersColumn(NamedTuple):
    """A list of (name, value) for each row: headers starts[n] to starts[n + 1] of the
    two columns. A row without headers is null."""

    starts: Buffer
    validity: Buffer | None
    names: BytesColumn
    values: BytesColumn
    headers: int


class Columns(NamedTuple):
    rows: int
    key: BytesColumn
    value: BytesColumn
    # int64 each; microseconds since 1970, as Spark has them.
    offset: Buffer
    timestamp_us: Buffer
    # int32: 0 for the producer's time, 1 for the broker's.
    timestamp_type: Buffer
    headers: HeadersColumn | None


def open_block(batch: Buffer, header: BatchHeader) -> Block:
    """The batch at the start of the buffer. Uncompressed records are a view of it."""
    end = header.size_bytes
    if end > len(batch):
        raise CorruptBatch(f"the batch is cut off: {len(batch)} of {end} bytes")
    block = memoryview(batch)[HEADER_BYTES:end]
    if header.codec == Codec.NONE or (not header.count and not block):
        return Block(block, header)
    return Block(decompress(header.codec, block, limits.DECOMPRESSED_BYTES_ALONE_MAX), header)


@compiled
def decode_columns(
    blocks: Sequence[Block], start: int, end: int, *, with_headers: bool = False
) -> Columns:
    """The records of these blocks whose offsets are in [start, end), in order."""
    keys = _BytesBuilder()
    values = _BytesBuilder()
    offsets = array("q")
    timestamps = array("q")
    types = array("i")
    names = _BytesBuilder()
    header_values = _BytesBuilder()
    header_starts = array("i", (0,))
    header_validity = _Validity()
    for records, header in blocks:
        timestamp_type = 1 if header.has_log_append_time else 0
        for record in chain.from_iterable(read_raw_block(bytes(records), header)):
            found = _read_headers(record.headers)
            if not start <= record.offset < end:
                continue
            keys.add(record.key)
            values.add(record.value)
            offsets.append(record.offset)
            timestamps.append(min(max(record.timestamp_ms, -_MS_MAX), _MS_MAX) * 1000)
            types.append(timestamp_type)
            if with_headers:
                for name, value in found:
                    names.add(name.encode())
                    header_values.add(value)
                header_starts.append(names.rows)
                header_validity.add(bool(found))
    headers = None
    if with_headers:
        headers = HeadersColumn(
            header_starts.tobytes(),
            header_validity.bits(),
            names.column(),
            header_values.column(),
            names.rows,
        )
    return Columns(
        len(offsets),
        keys.column(),
        values.column(),
        offsets.tobytes(),
        timestamps.tobytes(),
        types.tobytes(),
        headers,
    )


def _read_headers(block: bytes) -> Headers:
    """All of them, however many: who reads columns has room for them."""
    try:
        headers, stop = read_headers(block, 0, len(block), is_bounded=False)
    except IndexError:
        raise CorruptBatch("a record is cut off at the end of the batch") from None
    if stop != len(block):
        raise CorruptBatch("the headers of a record are not well formed")
    return headers


class _Validity:
    def __init__(self) -> None:
        self._flags: list[bool] = []
        self._nulls = 0

    def add(self, is_valid: bool) -> None:
        self._flags.append(is_valid)
        self._nulls += not is_valid

    def bits(self) -> bytes | None:
        return pack_bits(self._flags) if self._nulls else None


class _BytesBuilder:
    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._starts = array("i", (0,))
        self._validity = _Validity()
        self._size = 0

    @property
    def rows(self) -> int:
        return len(self._starts) - 1

    def add(self, value: bytes | None) -> None:
        if value:
            self._size += len(value)
            if self._size > COLUMN_BYTES_MAX:
                raise CorruptBatch("more bytes than one column can hold")
            self._parts.append(value)
        self._starts.append(self._size)
        self._validity.add(value is not None)

    def column(self) -> BytesColumn:
        return BytesColumn(self._starts.tobytes(), b"".join(self._parts), self._validity.bits())


def pack_bits(flags: Iterable[bool]) -> bytes:
    """A bit each, low bits first, zeros behind the last."""
    packed = bytearray()
    for number, flag in enumerate(flags):
        if not number & 7:
            packed.append(0)
        if flag:
            packed[-1] |= 1 << (number & 7)
    return bytes(packed)
