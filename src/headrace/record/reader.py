"""The reader: the bytes of one batch in, its records out.

Whatever the bytes are, the outcome is a list of records or CorruptBatch. The
loop runs at most `count` times, every length is held against the bytes that are
left, and nothing is allocated by a number that the input merely claims.

    length attributes time offset key value headers | length ...
    ^position            strictly ascending         ^end of this record

A checksum proves who damaged a batch, not that it makes sense: a client with a
bug can send well-sealed nonsense. So the reader trusts nothing.

A batch of kilobytes can hold millions of records or headers. A reader that works
for a client takes it in parts (`read_parts`, `BatchParts`), and a record has at most
as many headers as a message or a dead letter may have: what lies behind is stepped over. A
reader that copies records leaves their headers as they are (`RawRecord`).

Rejected: one call per number. Nearly all numbers in a batch have one or two
bytes, and a call costs more than the decoding: the loop has the first case in
line and calls for the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter, itemgetter
from typing import Any, Final

from headrace.core import limits
from headrace.core.errors import CorruptBatch
from headrace.core.ports import Buffer
from headrace.record.batch import HEADER_BYTES, BatchHeader, read_header
from headrace.record.compression import decompress
from headrace.record.control import ControlMarker, decode_marker
from headrace.record.record import Headers, RawRecord, Record
from headrace.record.skipping import Place, skip_to
from headrace.record.varint import (
    BITS_64,
    SMALL,
    as_int64,
    encode_varint,
    read_more,
    varint_size,
)

# Offset deltas below this take one byte.
_SMALLER_COUNT: Final = 64
# The deltas of one byte and those of two, back to back, by the first of them.
_DELTAS: Final = {
    0: b"".join(SMALL[:_SMALLER_COUNT]),
    _SMALLER_COUNT: b"".join(SMALL[_SMALLER_COUNT:]),
}
# What an object costs in memory beside the bytes that it holds.
_RECORD_COST: Final = 128
_HEADER_COST: Final = 96
# The cost of a part is looked at once in so many records.
_LOOKED_AT: Final = 64
# Sums of smaller times fit into 64 bits.
_FAR_MS: Final = 2**61
# A place in a large batch is marked once in so many bytes.
_MARKED_BYTES: Final = 64 * 1024

_offset_of = attrgetter("offset")
_delta_before = itemgetter(1)


def read_records(
    batch: Buffer,
    header: BatchHeader | None = None,
    bytes_max: int = limits.DECOMPRESSED_BYTES_MAX,
) -> list[Record]:
    """All records of the batch at the start of the buffer, for batches that this
    process made itself: those of others are read in parts.

    `header` saves reading it again when the caller has it. CorruptBatch on
    anything wrong inside; the checksum is not checked.
    """
    if header is None:
        header = read_header(batch)
    return read_block_records(read_block(batch, header, bytes_max), header)


def read_block_records(data: bytes, header: BatchHeader) -> list[Record]:
    """The records in these bytes, which `read_block` returned for this header."""
    try:
        return _read_values(data, header) or _read_all(data, header)
    except IndexError:
        raise CorruptBatch("a record is cut off at the end of the batch") from None


class BatchParts:
    """The records of one batch, a bounded part of them at a time.

    `cost` is about what the last part takes in memory.
    """

    def __init__(self, batch: Buffer, header: BatchHeader, block: bytes | None = None) -> None:
        """`block` is what `read_block` returned for the batch, where the caller has it."""
        self.header = header
        self.cost = 0
        self._data = read_block(batch, header) if block is None else block
        self._place: Place = (0, -1, header.count)
        # Ascending places within a large batch, so that going back is no long way.
        self._marks: list[Place] = []

    @property
    def size_bytes(self) -> int:
        """Of all records, uncompressed."""
        return len(self._data)

    @property
    def cost_max(self) -> int:
        """What all records cost if they have few headers."""
        return len(self._data) + _RECORD_COST * self.header.count

    @property
    def is_begun(self) -> bool:
        return self._place[0] > 0

    @property
    def is_over(self) -> bool:
        return not self._place[2]

    @property
    def next_offset(self) -> int:
        """Behind the last record that was read; when it is over, behind the batch."""
        if self.is_over:
            return self.header.next_offset
        return self.header.base_offset + self._place[1] + 1

    def rewind(self) -> None:
        """Begin again at the first record."""
        self._place = (0, -1, self.header.count)

    def read(
        self,
        start: int = 0,
        cost_max: int = limits.DECODED_BYTES_MAX,
        stop: int | None = None,
    ) -> list[Record]:
        """The next records from the offset `start` on, until they cost about
        `cost_max` or the offset `stop` is reached; none only when there are no more."""
        data, header = self._data, self.header
        position, _, left = self._place
        try:
            if stop is not None and stop < header.next_offset:
                return self._read_between(start, stop, cost_max)
            if not position and start <= header.base_offset:
                cost = len(data) + _RECORD_COST * left
                values = _read_values(data, header) if cost <= cost_max else []
                if values:
                    self._place, self.cost = (len(data), header.last_offset_delta, 0), cost
                    return values
            place = self._skip_to(start)
            records, self._place, self.cost = _read_some(data, header, place, cost_max)
        except IndexError:
            raise CorruptBatch("a record is cut off at the end of the batch") from None
        return records

    def _read_between(self, start: int, stop: int, cost_max: int) -> list[Record]:
        place = self._skip_to(start)
        # Where records were taken out there are fewer, and some of these lie behind.
        count = max(0, stop - max(start, self.header.base_offset))
        records, self._place, self.cost = _read_some(
            self._data, self.header, place, cost_max, count_max=count
        )
        if records and records[-1].offset >= stop:
            del records[bisect_left(records, stop, key=_offset_of) :]
        return records

    def _skip_to(self, start: int) -> Place:
        """The place of the first record from the offset `start` on that was not read."""
        wanted = start - self.header.base_offset
        place, marks = self._place, self._marks
        if marks:
            known = bisect_left(marks, wanted, key=_delta_before)
            if known and marks[known - 1] > place:
                place = marks[known - 1]
        while True:
            stop = place[0] + _MARKED_BYTES
            place = skip_to(self._data, *place, wanted, stop)
            if place[0] < stop:
                return place
            if not marks or place > marks[-1]:
                marks.append(place)


def read_parts(batch: Buffer, header: BatchHeader) -> Iterator[list[Record]]:
    """All records of a batch, in parts of bounded size. CorruptBatch as in
    `read_records`, when the fault is reached: what came before it was good."""
    parts = BatchParts(batch, header)
    while not parts.is_over:
        yield parts.read()


def read_raw_records(batch: Buffer, header: BatchHeader) -> list[RawRecord]:
    """All records with the bytes of their headers, which are not looked at."""
    return [record for part in read_raw_parts(batch, header) for record in part]


def read_raw_parts(batch: Buffer, header: BatchHeader) -> Iterator[list[RawRecord]]:
    """As `read_raw_records`, in parts of bounded size."""
    return read_raw_block(read_block(batch, header), header)


def read_raw_block(data: bytes, header: BatchHeader) -> Iterator[list[RawRecord]]:
    """As `read_raw_parts`, from the uncompressed bytes of the batch's records."""
    place = 0, -1, header.count
    try:
        while place[2]:
            part, place, _ = _read_some(data, header, place, limits.DECODED_BYTES_MAX, True)
            yield part
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


def read_block(
    batch: Buffer, header: BatchHeader, bytes_max: int = limits.DECOMPRESSED_BYTES_MAX
) -> bytes:
    """The bytes of the records, decompressed, in a copy of their own. CorruptBatch
    when a compressed batch holds more than `bytes_max`."""
    end = header.size_bytes
    if end > len(batch):
        raise CorruptBatch(f"the batch is cut off: {len(batch)} of {end} bytes")
    with memoryview(batch) as view, view[HEADER_BYTES:end] as block:
        # A batch that compaction emptied has no block, whatever its codec.
        if not header.count and not block:
            return b""
        return decompress(header.codec, block, max(bytes_max, len(block)))


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
    return _read_some(data, header, (0, -1, header.count), -1)[0]


def _read_some(
    data: bytes, header: BatchHeader, place: Place, cost_max: int,
    raw_headers: bool = False, count_max: int | None = None,
) -> tuple[list[Any], Place, int]:  # fmt: skip
    """Records from `place` on, the place behind them, and their cost; below 0 there is no most."""
    size = len(data)
    base_offset, base_timestamp_ms = header.base_offset, header.base_timestamp_ms
    append_time_ms = header.max_timestamp_ms if header.has_log_append_time else None
    # Whether a time is not simply the sum.
    is_odd = append_time_ms is not None or not -_FAR_MS < base_timestamp_ms < _FAR_MS
    last_delta = header.last_offset_delta
    position, previous, left = place
    last = left if count_max is None else min(left, count_max)
    cost = header_count = 0
    made: type[Record] | type[RawRecord] = RawRecord if raw_headers else Record
    records: list[Any] = []
    append, new = records.append, tuple.__new__
    for number in range(1, last + 1):
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
            is_odd = is_odd or raw > _FAR_MS
        timestamp_ms = base_timestamp_ms + ((raw >> 1) ^ -(raw & 1))
        if is_odd:
            timestamp_ms = as_int64(timestamp_ms) if append_time_ms is None else append_time_ms
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
        key = value = None
        if raw != 1:
            start = position
            position += raw >> 1
            if raw & 1 or position > end:
                raise CorruptBatch(f"a key's length at byte {start} is impossible")
            key = data[start:position]
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        if raw != 1:
            start = position
            position += raw >> 1
            if raw & 1 or position > end:
                raise CorruptBatch(f"a value's length at byte {start} is impossible")
            value = data[start:position]
        headers: Headers | bytes = ()
        if raw_headers:
            headers, position = data[position:end], end
        elif data[position]:
            headers, position = read_headers(data, position, end)
            header_count += len(headers)
        else:
            position += 1
        if position != end:
            raise CorruptBatch(f"a record ends at byte {position} instead of {end}")
        append(new(made, (base_offset + delta, timestamp_ms, key, value, headers)))
        if not number % _LOOKED_AT or number == last:
            cost = position - place[0] + _RECORD_COST * number + _HEADER_COST * header_count
            if 0 <= cost_max <= cost and number < last:
                return records, (position, previous, left - number), cost
    if last == left and position != size:
        raise CorruptBatch(f"{size - position} bytes follow the last record")
    return records, (position, previous, left - last), cost


def read_headers(
    data: bytes, position: int, end: int, *, is_bounded: bool = True
) -> tuple[Headers, int]:
    """The header block at `position` of a record that ends at `end`: as many headers
    as a message or a dead letter may have, in number and in bytes. The others are stepped
    over, unless it is not to be bounded."""
    raw = data[position]
    position += 1
    if raw > 127:
        raw, position = read_more(data, position, raw)
    # Each header takes two bytes or more, so a larger count is a lie.
    if raw & 1 or raw > end - position:
        raise CorruptBatch(f"a header count at byte {position} is impossible")
    headers = []
    count = raw >> 1
    is_over = is_bounded and (
        count > limits.HEADERS_READ_MAX or end - position > limits.HEADER_BYTES_READ_MAX
    )
    left = limits.HEADER_BYTES_READ_MAX
    for _ in range(min(count, limits.HEADERS_READ_MAX) if is_over else count):
        key, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        if is_over:
            left -= len(key or b"") + len(value or b"")
            if left < 0:
                break
        if key is None:
            raise CorruptBatch(f"a header before byte {position} has no key")
        # Nobody checks names before they are stored, here or in Kafka: a reader that gave
        # up on one would lose the message.
        headers.append((key.decode(errors="replace"), value))
    if is_over and (left < 0 or count > limits.HEADERS_READ_MAX):
        position = end
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
