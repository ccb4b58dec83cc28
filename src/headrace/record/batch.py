"""The batch header: what the broker knows of a batch without opening it.

    0        8        12      16 17    21   23     27     35     43   51  53   57   61
    | base   | batch  |leader |m | crc |attr|last  |base  |max   |prod|pr |base|count| records
    | offset | length |epoch  |  |     |    |delta |time  |time  | id |ep |seq |     |
                                       |<------------- covered by the crc ------------->

A batch that passes `check_batch` is whole and is what its producer wrote. It may
still be nonsense inside: only the reader knows, and the hot path never asks.

Base offset and leader epoch lie before the checksum, so `patch_batch` assigns
them in place and costs nothing.

Rejected: a view object with lazy fields. Every path needs most fields, and one
`struct` call for all of them is cheaper than two for some.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.core import limits
from headrace.core.errors import CorruptBatch
from headrace.core.ports import Buffer

HEADER_BYTES: Final = 61
MAGIC: Final = 2
# The smallest record: seven fields of one byte each.
RECORD_BYTES_MIN: Final = 7

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

# What lies before and including the batch length is not counted by it.
LENGTH_OVERHEAD: Final = 12
_LENGTH_MIN: Final = HEADER_BYTES - LENGTH_OVERHEAD
_LENGTH_MAX: Final = limits.BATCH_BYTES_MAX - LENGTH_OVERHEAD
_CODEC_MAX: Final = 4
_OFFSET_MAX: Final = 2**63 - 1
_SEQUENCE_MASK: Final = 2**31 - 1

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET: Final = struct.Struct(">q")
_BATCH_LENGTH: Final = struct.Struct(">i")
_LEADER_EPOCH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")

_BATCH_LENGTH_AT: Final = 8
_LEADER_EPOCH_AT: Final = 12
_CRC_AT: Final = 17
CRC_FROM: Final = 21
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35


class BatchHeader(NamedTuple):
    """The header's fields, in the order in which they lie."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    # A tuple's own `count` is of no use here, and this is the field's name.
    count: int  # type: ignore[assignment]

    @property
    def size_bytes(self) -> int:
        """The whole batch, this header included."""
        return LENGTH_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    def with_append_time(self, timestamp_ms: int) -> BatchHeader:
        """As `stamp_append_time` makes it, but for the checksum."""
        return self._replace(
            attributes=self.attributes | LOG_APPEND_TIME, max_timestamp_ms=timestamp_ms
        )

    @property
    def has_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def first_timestamp_ms(self) -> int:
        """The time of the first record."""
        return self.max_timestamp_ms if self.has_log_append_time else self.base_timestamp_ms

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the tombstones in here; None: not decided."""
        return self.base_timestamp_ms if self.has_delete_horizon else None

    @property
    def is_dense(self) -> bool:
        """Every offset has its record, as in all batches that producers send."""
        return self.count == self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last offset; -1 when there are none. Sequence
        numbers wrap from 2^31 - 1 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & _SEQUENCE_MASK


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, without reading what follows it.

    CorruptBatch when it is cut off or says what no batch can be. The checksum
    is not checked, and the rest of the batch need not be in the buffer.
    """
    if len(buffer) - position < HEADER_BYTES:
        raise CorruptBatch(
            f"batch header at byte {position} is cut off: "
            f"{len(buffer) - position} of {HEADER_BYTES} bytes"
        )
    fields = HEADER.unpack_from(buffer, position)
    base_offset, length, _, magic, _, attributes, last_delta, _, _, _, _, _, count = fields
    header: BatchHeader = tuple.__new__(BatchHeader, fields)
    # One expression decides the usual case; the reasons are told apart only
    # for a batch that is refused.
    if (
        magic != MAGIC
        or not _LENGTH_MIN <= length <= _LENGTH_MAX
        or not 0 <= count <= limits.BATCH_RECORDS_MAX
        or last_delta < 0
        or count > last_delta + 1
        or not 0 <= base_offset <= _OFFSET_MAX - last_delta
        or attributes & CODEC_MASK > _CODEC_MAX
        or (not attributes & CODEC_MASK and count * RECORD_BYTES_MIN > length - _LENGTH_MIN)
    ):
        raise CorruptBatch(f"batch header at byte {position}: {_fault(header)}")
    return header


def check_batch(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of a batch that is whole and matches its checksum.

    CorruptBatch says which of the two it is not.
    """
    header = read_header(buffer, position)
    end = position + header.size_bytes
    if end > len(buffer):
        raise CorruptBatch(
            f"batch at byte {position} is cut off: "
            f"{len(buffer) - position} of {header.size_bytes} bytes"
        )
    computed = _compute_crc(buffer, position, end)
    if computed != header.crc:
        raise CorruptBatch(
            f"batch at byte {position} has checksum {computed:08x}, "
            f"its header says {header.crc:08x}"
        )
    return header


def split_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each of the batches that fill the buffer.

    CorruptBatch when the last one is cut off or something else follows it. The
    checksums are not checked.
    """
    position = 0
    size = len(buffer)
    while position < size:
        header = read_header(buffer, position)
        end = position + header.size_bytes
        if end > size:
            raise CorruptBatch(
                f"batch at byte {position} is cut off: "
                f"{size - position} of {header.size_bytes} bytes"
            )
        yield position, header
        position = end


def sizes_and_codecs(view: memoryview) -> Iterator[tuple[int, int, int]]:
    """Position, size and codec of each of these batches, for a look in passing; it ends
    where there is no whole one."""
    position, end = 0, len(view)
    while end - position >= HEADER_BYTES:
        size = _BATCH_LENGTH.unpack_from(view, position + _BATCH_LENGTH_AT)[0] + LENGTH_OVERHEAD
        if not HEADER_BYTES <= size <= end - position:
            return
        # The lower byte of the attributes.
        yield position, size, view[position + _ATTRIBUTES_AT + 1] & CODEC_MASK
        position += size


def patch_batch(
    buffer: bytearray | memoryview, base_offset: int, leader_epoch: int, position: int = 0
) -> None:
    """Give the batch its place. The checksum does not cover these fields."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_AT, leader_epoch)


def stamp_append_time(buffer: bytearray | memoryview, timestamp_ms: int, position: int = 0) -> None:
    """Make `timestamp_ms` the time of every record, and renew the checksum."""
    header = read_header(buffer, position)
    end = position + header.size_bytes
    if end > len(buffer):
        raise CorruptBatch(f"batch at byte {position} is cut off")
    _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_AT, timestamp_ms)
    seal_batch(buffer, position, end)


def correct_latest(buffer: bytearray | memoryview, timestamp_ms: int, position: int = 0) -> None:
    """Make `timestamp_ms` the largest time that the batch says it has, and renew the checksum.
    CorruptBatch when that is wrong: what is damaged must not be sealed anew."""
    header = check_batch(buffer, position)
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_AT, timestamp_ms)
    seal_batch(buffer, position, position + header.size_bytes)


def seal_batch(buffer: bytearray | memoryview, position: int, end: int) -> None:
    """Write the checksum of the batch that lies from `position` to `end`."""
    _CRC.pack_into(buffer, position + _CRC_AT, _compute_crc(buffer, position, end))


def _compute_crc(buffer: Buffer, position: int, end: int) -> int:
    # Nothing keeps the view: a bytearray with a view on it could not grow.
    return crc32c(memoryview(buffer)[position + CRC_FROM : end])


def _fault(header: BatchHeader) -> str:
    if header.magic != MAGIC:
        return f"magic is {header.magic}, only {MAGIC} is supported"
    if not _LENGTH_MIN <= header.batch_length <= _LENGTH_MAX:
        return f"length {header.batch_length} is not between {_LENGTH_MIN} and {_LENGTH_MAX}"
    if not 0 <= header.count <= limits.BATCH_RECORDS_MAX:
        return f"count {header.count} is not between 0 and {limits.BATCH_RECORDS_MAX}"
    if header.last_offset_delta < 0 or header.base_offset < 0:
        return f"offsets {header.base_offset} and +{header.last_offset_delta} are impossible"
    if header.base_offset + header.last_offset_delta > _OFFSET_MAX:
        return f"last offset is beyond {_OFFSET_MAX}"
    if header.count > header.last_offset_delta + 1:
        return f"{header.count} records in {header.last_offset_delta + 1} offsets"
    if header.codec > _CODEC_MAX:
        return f"codec {header.codec} is unknown"
    return f"{header.count} records do not fit into {header.batch_length - _LENGTH_MIN} bytes"
