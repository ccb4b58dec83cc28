"""The builder: records in, the bytes of one batch out.

    header | length attributes time offset key value headers | length ... | ...
           '------ one record: its parts, in one list -------'
    '----------------------- one join, one checksum -----------------------'

Every way to make a batch ends in `_assemble`. What differs is how the parts come
about: from records (`build_batch`), from bare values that share time and headers
(`build_values_batch`, several times faster), or from records that keep the
offsets of a batch they were in before (`build_sparse_batch`).

Rejected: growing a bytearray record by record. Appending its eight small parts
costs more than listing them and joining once.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Final

from headrace.core import limits
from headrace.core.errors import InvalidArgument, RecordTooLarge
from headrace.record.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    seal_batch,
)
from headrace.record.compression import Codec, compress
from headrace.record.control import ControlKind, encode_marker
from headrace.record.record import Headers, NewRecord, RawRecord, Record
from headrace.record.varint import SMALL, as_int64, encode_varint

_SMALL_COUNT: Final = len(SMALL)
_NULL: Final = encode_varint(-1)
_ZERO: Final = encode_varint(0)
_ROOM_FOR_HEADER: Final = bytes(HEADER_BYTES)
# Batches of values of one length share what lies between the values: for how many
# values it pays, and how many kinds of such batches are remembered.
_SHARED_COUNT_MIN: Final = 16
_SHARED_COUNT_MAX: Final = 10_000
_SHARED_KINDS_MAX: Final = 8


def encode_headers(headers: Headers) -> bytes:
    """The header block that ends a record: count, then keys and values.

    InvalidArgument when a name holds half a surrogate pair, which has no UTF-8.
    """
    if not headers:
        return _ZERO
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        try:
            key = name.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"header name {name!r} is not valid Unicode") from error
        parts += (encode_varint(len(key)), key)
        parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


# The header block of a record without headers.
NO_HEADERS: Final = encode_headers(())


def build_batch(
    records: Sequence[NewRecord | Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    is_bounded: bool = True,
) -> bytearray:
    """One batch of these records at consecutive offsets.

    A `Record` that was read elsewhere is as good as a new one; its offset is
    not looked at. InvalidArgument when there are none, RecordTooLarge when one
    record or the whole batch is above its limit. Unless it is to be bounded, a record
    may fill the batch.
    """
    _check_count(len(records))
    timestamps = [record.timestamp_ms for record in records]
    base_timestamp_ms = timestamps[0]
    parts = [_ROOM_FOR_HEADER]
    for delta, record in enumerate(records):
        size = _add_record(parts, record, delta, timestamps[delta] - base_timestamp_ms)
        if is_bounded:
            _check_record(size)
    return _assemble(
        parts,
        base_offset,
        leader_epoch,
        codec | TRANSACTIONAL if transactional else codec,
        len(records) - 1,
        base_timestamp_ms,
        max(timestamps),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )


def build_values_batch(
    values: Sequence[bytes],
    timestamp_ms: int,
    *,
    headers: bytes = NO_HEADERS,
    base_offset: int = 0,
    leader_epoch: int = 0,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """Like `build_batch` for records that are a value and nothing else: no key,
    one timestamp, and one header block (from `encode_headers`) for all."""
    count = len(values)
    _check_count(count)
    if _SHARED_COUNT_MIN <= count <= _SHARED_COUNT_MAX and len(set(map(len, values))) == 1:
        parts = _equal_parts(values, len(values[0]), headers)
    else:
        parts = _value_parts(values, headers)
    return _assemble(
        parts,
        base_offset,
        leader_epoch,
        codec | TRANSACTIONAL if transactional else codec,
        count - 1,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )


def _value_parts(values: Sequence[bytes], headers: bytes) -> list[bytes]:
    parts = [_ROOM_FOR_HEADER]
    # Attributes, time delta and key length take three bytes; what stands around
    # the offset delta depends on nothing but the length of the value and the
    # size of the delta, so runs of equal lengths share it.
    known_length = known_delta_bytes = -1
    before = middle = b""
    for delta, value in enumerate(values):
        offset = SMALL[delta] if delta < _SMALL_COUNT else encode_varint(delta)
        length = len(value)
        if length != known_length or len(offset) != known_delta_bytes:
            known_length, known_delta_bytes = length, len(offset)
            middle = _NULL + encode_varint(length)
            record_bytes = 2 + known_delta_bytes + len(middle) + length + len(headers)
            _check_record(record_bytes)
            before = encode_varint(record_bytes) + b"\0" + _ZERO
        parts += (before, offset, middle, value, headers)
    return parts


def _equal_parts(values: Sequence[bytes], length: int, headers: bytes) -> list[bytes]:
    """For values of one length: everything between them is known beforehand."""
    parts = [b""] * (2 * len(values) + 1)
    parts[0::2] = _between(len(values), length, headers)
    parts[1::2] = values
    return parts


@functools.lru_cache(_SHARED_KINDS_MAX)
def _between(count: int, length: int, headers: bytes) -> list[bytes]:
    """What lies before each of `count` values of this length, and behind the last."""
    blank = b"\0" * length
    parts = _value_parts([blank] * count, headers)
    first = b"".join(parts[:4])
    others = [headers + b"".join(parts[n : n + 3]) for n in range(6, len(parts), 5)]
    return [first, *others, headers]


def seal_records(
    records: bytes | bytearray,
    count: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    *,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """A batch of records that are encoded already, with offset deltas from 0 on."""
    _check_count(count)
    return _assemble(
        [_ROOM_FOR_HEADER, records],
        0,
        0,
        codec | TRANSACTIONAL if transactional else codec,
        count - 1,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )


def build_sparse_batch(
    records: Sequence[Record | RawRecord],
    template: BatchHeader,
    *,
    codec: Codec | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Some records of an earlier batch, or none, in a batch of the same extent.

    Offsets, timestamps, producer fields and last offset are the template's, so
    readers and producer state see no difference but the gaps; the template's max
    timestamp stays as an upper bound. `codec` is the template's unless given;
    `delete_horizon_ms` sets when tombstones may go. A record that is in the log
    is taken whatever its size; RecordTooLarge only when the batch is too large.
    """
    attributes = template.attributes
    base_timestamp_ms = template.base_timestamp_ms
    if codec is not None:
        attributes = attributes & ~CODEC_MASK | codec
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
        base_timestamp_ms = delete_horizon_ms
    parts = [_ROOM_FOR_HEADER]
    previous = -1
    for record in records:
        delta = record.offset - template.base_offset
        if not previous < delta <= template.last_offset_delta:
            raise InvalidArgument(
                f"offset {record.offset} is out of order, or not between "
                f"{template.base_offset} and {template.last_offset}"
            )
        previous = delta
        # With append time the header speaks for all records: their deltas mean
        # nothing, and zero is the shortest.
        time_delta = 0 if template.has_log_append_time else record.timestamp_ms - base_timestamp_ms
        _add_record(parts, record, delta, time_delta)
    return _assemble(
        parts,
        template.base_offset,
        template.leader_epoch,
        attributes,
        template.last_offset_delta,
        base_timestamp_ms,
        template.max_timestamp_ms,
        template.producer_id,
        template.producer_epoch,
        template.base_sequence,
        len(records),
    )


def cut_batch(parts: Sequence[bytes], count: int, template: BatchHeader) -> bytearray:
    """Some records of an earlier batch as they lay in it, uncompressed, in a batch
    of the same extent; `count` says how many the parts hold."""
    return _assemble(
        [_ROOM_FOR_HEADER, *parts],
        template.base_offset,
        template.leader_epoch,
        template.attributes & ~CODEC_MASK,
        template.last_offset_delta,
        template.base_timestamp_ms,
        template.max_timestamp_ms,
        template.producer_id,
        template.producer_epoch,
        template.base_sequence,
        count,
    )


def recompress_batch(block: bytes, template: BatchHeader, codec: Codec) -> bytearray:
    """A batch with all its records, which are uncompressed here, under another codec."""
    return _assemble(
        [_ROOM_FOR_HEADER, block],
        template.base_offset,
        template.leader_epoch,
        template.attributes & ~CODEC_MASK | codec,
        template.last_offset_delta,
        template.base_timestamp_ms,
        template.max_timestamp_ms,
        template.producer_id,
        template.producer_epoch,
        template.base_sequence,
        template.count,
    )


def build_control_batch(
    kind: ControlKind,
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> bytearray:
    """The marker that commits or aborts a producer's open transaction."""
    key, value = encode_marker(kind, coordinator_epoch)
    parts = [_ROOM_FOR_HEADER]
    _add_record(parts, NewRecord(key, value), 0, 0)
    return _assemble(
        parts,
        base_offset,
        leader_epoch,
        TRANSACTIONAL | CONTROL,
        0,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        -1,
        1,
    )


def _add_record(
    parts: list[bytes], record: NewRecord | Record | RawRecord, offset_delta: int, time_delta: int
) -> int:
    """Add the parts of one record; returns the length that it says it has."""
    key = record.key
    value = record.value
    headers = record.headers
    offset = SMALL[offset_delta] if offset_delta < _SMALL_COUNT else encode_varint(offset_delta)
    if 0 <= time_delta < _SMALL_COUNT:
        time = SMALL[time_delta]
    else:
        time = encode_varint(as_int64(time_delta))
    if key is None:
        key = b""
        key_length = _NULL
    else:
        key_length = encode_varint(len(key))
    if value is None:
        value = b""
        value_length = _NULL
    else:
        value_length = encode_varint(len(value))
    tail = NO_HEADERS
    if headers:
        tail = headers if isinstance(headers, bytes) else encode_headers(headers)
    head = b"\0" + time + offset + key_length
    record_bytes = len(head) + len(key) + len(value_length) + len(value) + len(tail)
    parts += (encode_varint(record_bytes), head, key, value_length, value, tail)
    return record_bytes


def _assemble(
    parts: Sequence[bytes | bytearray],
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    count: int,
) -> bytearray:
    """Join header room and records, compressed if need be, and seal them.

    The numbers are the header's, in its order, but for those that only the
    finished batch knows.
    """
    codec = attributes & CODEC_MASK
    if codec and count:
        parts = [_ROOM_FOR_HEADER, compress(Codec(codec), b"".join(parts[1:]))]
    elif codec:
        # A codec's frame around nothing would be the larger half of the batch.
        attributes &= ~CODEC_MASK
    batch = bytearray().join(parts)
    if len(batch) > limits.BATCH_BYTES_MAX:
        raise RecordTooLarge(
            f"the batch has {len(batch)} bytes, at most {limits.BATCH_BYTES_MAX} are allowed"
        )
    try:
        HEADER.pack_into(
            batch,
            0,
            base_offset,
            len(batch) - LENGTH_OVERHEAD,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            last_offset_delta,
            base_timestamp_ms,
            max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
    except struct.error as error:
        raise InvalidArgument(f"a batch cannot hold this header: {error}") from error
    seal_batch(batch, 0, len(batch))
    return batch


def _check_count(count: int) -> None:
    if not 1 <= count <= limits.BATCH_RECORDS_MAX:
        raise InvalidArgument(f"a batch holds 1 to {limits.BATCH_RECORDS_MAX} records, not {count}")


def _check_record(record_bytes: int) -> None:
    if record_bytes > limits.RECORD_BYTES_MAX:
        raise RecordTooLarge(
            f"the record has {record_bytes} bytes, at most {limits.RECORD_BYTES_MAX} are allowed"
        )
