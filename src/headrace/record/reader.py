"""The reader: the bytes of one batch in, its records out.

Whatever the bytes are, the outcome is a list of records or CorruptBatch. The
loop runs at most `count` times, every length is held against the bytes that are
left, and nothing is allocated by a number that the input merely claims.

    length attributes time offset key value headers | length ...
    ^position            strictly ascending         ^end of this record

A checksum proves who damaged a batch, not that it makes sense: a client with a
bug can send well-sealed nonsense. So the reader trusts nothing.

Rejected: one call per number. Nearly all numbers in a batch have one or two
bytes, and a call costs more than the decoding: the loop has the first case in
line and calls for the rest.
"""

from __future__ import annotations

from typing import Final

from headrace.core.errors import CorruptBatch
from headrace.core.ports import Buffer
from headrace.record.batch import HEADER_BYTES, BatchHeader, read_header
from headrace.record.compression import decompress
from headrace.record.control import ControlMarker, decode_marker
from headrace.record.record import Headers, Record
from headrace.record.varint import (
    BITS_32,
    BITS_64,
    SMALL,
    decode_unsigned,
    encode_varint,
    varint_size,
)

# Offset deltas below this take one byte.
_SMALLER_COUNT: Final = 64
# The deltas of one byte and those of two, back to back, by the first of them.
_DELTAS: Final = {
    0: b"".join(SMALL[:_SMALLER_COUNT]),
    _SMALLER_COUNT: b"".join(SMALL[_SMALLER_COUNT:]),
}


def read_records(batch: Buffer, header: BatchHeader | None = None) -> list[Record]:
    """All records of the batch at the start of the buffer.

    `header` saves reading it again when the caller has it. CorruptBatch on
    anything wrong inside; the checksum is not checked.
    """
    if header is None:
        header = read_header(batch)
    return read_block_records(read_block(batch, header), header)


def read_block_records(data: bytes, header: BatchHeader) -> list[Record]:
    """The records in these bytes, which `read_block` returned for this header."""
    try:
        return _read_values(data, header) or _read_all(data, header)
    except IndexError:
        raise CorruptBatch("a record is cut off at the end of the batch") from None


def read_control(batch: Buffer, header: BatchHeader | None = None) -> ControlMarker:
    """The marker in a control batch; CorruptBatch when it is none."""
    if header is None:
        header = read_header(batch)
    if not header.is_control:
        raise CorruptBatch("the batch is not a control batch")
    records = read_records(batch, header)
    if len(records) != 1:
        raise CorruptBatch(f"a control batch has {len(records)} records instead of one")
    marker = records[0]
    kind, coordinator_epoch = decode_marker(marker.key, marker.value)
    return ControlMarker(
        kind,
        marker.offset,
        marker.timestamp_ms,
        header.producer_id,
        header.producer_epoch,
        coordinator_epoch,
    )


def read_block(batch: Buffer, header: BatchHeader) -> bytes:
    """The bytes of the records, decompressed, in a copy of their own."""
    end = header.size_bytes
    if end > len(batch):
        raise CorruptBatch(f"the batch is cut off: {len(batch)} of {end} bytes")
    with memoryview(batch) as view, view[HEADER_BYTES:end] as block:
        # A batch that compaction emptied has no block, whatever its codec.
        if not header.count and not block:
            return b""
        return decompress(header.codec, block)


def _read_values(data: bytes, header: BatchHeader) -> list[Record]:
    """The records of a batch as `build_values_batch` makes it of values of one
    length, in half the time: they differ in offset delta and value alone, so a
    comparison does for reading. Empty when the batch is any other."""
    count = header.count
    if header.has_log_append_time or header.last_offset_delta != count - 1 or count > len(SMALL):
        return []
    position = 0
    values: list[bytes] = []
    # Within each of these, the delta has one size and so has the record.
    for start, end in ((0, min(count, _SMALLER_COUNT)), (_SMALLER_COUNT, count)):
        if start >= end:
            break
        raw, body = data[position], position + 1
        if raw > 127:
            raw, body = read_more(data, body, raw)
        record_bytes = body - position + (raw >> 1)
        if position + record_bytes * (end - start) > len(data):
            return []
        before = data[position:body] + b"\0\0"
        delta_bytes = len(SMALL[start])
        behind_at = len(before) + delta_bytes
        value_bytes = _value_bytes(record_bytes - behind_at - 2)
        behind = b"\1" + encode_varint(value_bytes)
        value_at = behind_at + len(behind)
        if value_at + value_bytes + 1 != record_bytes:
            return []
        # Each place within the records is compared in all of them at once.
        stop = position + record_bytes * (end - start)
        around = before + SMALL[start] + behind
        for at in range(value_at):
            delta_at = at - len(before)
            if 0 <= delta_at < delta_bytes:
                expected = _DELTAS[start][delta_at : delta_bytes * (end - start) : delta_bytes]
            else:
                expected = around[at : at + 1] * (end - start)
            if data[position + at : stop : record_bytes] != expected:
                return []
        if any(data[position + record_bytes - 1 : stop : record_bytes]):
            return []
        values += [
            data[at : at + value_bytes] for at in range(position + value_at, stop, record_bytes)
        ]
        position = stop
    if position != len(data):
        return []
    new, timestamp_ms = tuple.__new__, header.base_timestamp_ms
    return [
        new(Record, (offset, timestamp_ms, None, value, ()))
        for offset, value in enumerate(values, header.base_offset)
    ]


def _value_bytes(room: int) -> int:
    """How long a value is that fills the room together with its own length; 0
    when there is none."""
    for length_bytes in range(1, 6):
        if room >= length_bytes and varint_size(room - length_bytes) == length_bytes:
            return room - length_bytes
    return 0


def _read_all(data: bytes, header: BatchHeader) -> list[Record]:
    size = len(data)
    base_offset = header.base_offset
    base_timestamp_ms = header.base_timestamp_ms
    append_time_ms = header.max_timestamp_ms if header.has_log_append_time else None
    last_delta = header.last_offset_delta
    previous = -1
    position = 0
    records: list[Record] = []
    append = records.append
    new = tuple.__new__
    for _ in range(header.count):
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        end = position + (raw >> 1)
        if raw & 1 or end > size:
            raise CorruptBatch(f"a record's length at byte {position} is impossible")

        raw = data[position + 1]
        position += 2
        if raw > 127:
            raw, position = read_more(data, position, raw, BITS_64)
        if append_time_ms is None:
            timestamp_ms = base_timestamp_ms + ((raw >> 1) ^ -(raw & 1))
        else:
            timestamp_ms = append_time_ms

        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        delta = raw >> 1
        if raw & 1 or not previous < delta <= last_delta:
            raise CorruptBatch(f"a record's offset delta at byte {position} is out of order")
        previous = delta

        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        if raw == 1:
            key = None
        else:
            start = position
            position += raw >> 1
            if raw & 1 or position > end:
                raise CorruptBatch(f"a key's length at byte {start} is impossible")
            key = data[start:position]

        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        if raw == 1:
            value = None
        else:
            start = position
            position += raw >> 1
            if raw & 1 or position > end:
                raise CorruptBatch(f"a value's length at byte {start} is impossible")
            value = data[start:position]

        headers: Headers = ()
        if data[position]:
            headers, position = read_headers(data, position, end)
        else:
            position += 1
        if position != end:
            raise CorruptBatch(f"a record ends at byte {position} instead of {end}")
        append(new(Record, (base_offset + delta, timestamp_ms, key, value, headers)))
    if position != size:
        raise CorruptBatch(f"{size - position} bytes follow the last record")
    return records


def read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    """The header block at `position` of a record that ends at `end`."""
    raw = data[position]
    position += 1
    if raw > 127:
        raw, position = read_more(data, position, raw)
    # Each header takes two bytes or more, so a larger count is a lie.
    if raw & 1 or raw > end - position:
        raise CorruptBatch(f"a header count at byte {position} is impossible")
    headers = []
    for _ in range(raw >> 1):
        key, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        if key is None:
            raise CorruptBatch(f"a header before byte {position} has no key")
        try:
            headers.append((key.decode(), value))
        except UnicodeDecodeError as error:
            raise CorruptBatch(f"a header key before byte {position} is not UTF-8") from error
    return tuple(headers), position


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    raw = data[position]
    position += 1
    if raw > 127:
        raw, position = read_more(data, position, raw)
    if raw == 1:
        return None, position
    start = position
    position += raw >> 1
    if raw & 1 or position > end:
        raise CorruptBatch(f"a length at byte {start} is impossible")
    return data[start:position], position


def read_more(data: bytes, position: int, raw: int, bits: int = BITS_32) -> tuple[int, int]:
    """A number whose first byte was `raw`, before `position`, and where it ends.
    The zigzag is not undone: odd is negative. IndexError at the end of the data."""
    following = data[position]
    if following < 128:
        return raw - 128 + (following << 7), position + 1
    return decode_unsigned(data, position - 1, bits)
