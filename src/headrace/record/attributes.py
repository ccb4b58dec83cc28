"""Queue attributes: what record headers say about how a queue treats a message.

    headrace-priority: high          -> lane 1
    headrace-delay-ms: 60000         -> deliver_at_ms = timestamp + 60000
    headrace-redrive-group: billing  -> seen by that group alone

Reading is lenient: a value that makes no sense may come from any Kafka client
and is already in the log, so it is as if it were absent.

Most batches have no attributes, and finding that out costs one search. Where
the search hits, the records before the hit are stepped over by their lengths,
and only the one around it is opened: the hit may be in its value and mean nothing.

    data.find(b"headrace-") ------------------.
                                              v
    length ... | length ... | length ... key value headers | length ...
    skipped      skipped      opened                         skipped

Because the scan does not open what it skips, it is no check of the batch: it
raises CorruptBatch for what it stumbles over and nothing else.

Rejected: reading all records and asking each. It is several times the work for
batches that have something, and endless waste for those that have nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from headrace.core import limits
from headrace.core.errors import CorruptBatch
from headrace.core.ports import Buffer
from headrace.record.attribute_headers import (
    DEDUP_ID,
    DELAY,
    DELIVER_AT,
    LANE_NORMAL,
    LANE_OF,
    LANES,
    MAX_ATTEMPTS,
    NUMBER_BOUNDS,
    PREFIX,
    PRIORITY,
    REDRIVE_GROUP,
    TTL,
    VISIBILITY,
    attribute_headers,
    parse_priority,
)
from headrace.record.batch import HEADER_BYTES, BatchHeader, read_header
from headrace.record.reader import read_block, read_headers
from headrace.record.record import Headers
from headrace.record.varint import BITS_64, as_int64, read_more

__all__ = [
    "Attributes",
    "DEFAULT_ATTRIBUTES",
    "LANES",
    "attribute_headers",
    "may_have_attributes",
    "parse_priority",
    "read_attributes",
    "scan_attributes",
]

_PREFIX: Final = PREFIX.encode()
# As many as 2^63 has: enough for every number here, and no more work than that.
_DIGITS_MAX: Final = 19


class Attributes(NamedTuple):
    """What the queue's view of one message needs to know."""

    lane: int = LANE_NORMAL
    deliver_at_ms: int = 0
    # Zero: never.
    expires_at_ms: int = 0
    # Zero: as the group says.
    max_attempts: int = 0
    visibility_ms: int = 0
    redrive_group: str | None = None
    dedup_id: bytes | None = None
    # What of `deliver_at_ms` is a delay from the record's timestamp on; zero where a
    # moment was given.
    delay_ms: int = 0
    # How long it lives from the record's timestamp on; zero for ever.
    ttl_ms: int = 0


DEFAULT_ATTRIBUTES: Final = Attributes()


class _Wishes(NamedTuple):
    """What headers say before they meet a timestamp: `attributes` with delay
    and time to live still relative. Equal headers make equal wishes, so a
    scan over many records works them out once."""

    attributes: Attributes
    delay_ms: int
    ttl_ms: int

    def at(self, timestamp_ms: int) -> Attributes:
        """The attributes of a record with these headers and this timestamp."""
        if timestamp_ms < 0 or not (self.delay_ms or self.ttl_ms):
            return self.attributes
        attributes = self.attributes
        if self.delay_ms:
            attributes = attributes._replace(
                deliver_at_ms=later(timestamp_ms, self.delay_ms), delay_ms=self.delay_ms
            )
        if self.ttl_ms:
            attributes = attributes._replace(
                expires_at_ms=later(timestamp_ms, self.ttl_ms), ttl_ms=self.ttl_ms
            )
        return attributes


def _read_wishes(headers: Headers) -> _Wishes:
    """Everything that these headers say and that makes sense."""
    numbers = {}
    lane = LANE_NORMAL
    redrive_group = None
    dedup_id = None
    for name, value in headers:
        if value is None or not name.startswith(PREFIX):
            continue
        if name in NUMBER_BOUNDS:
            number = _read_number(name, value)
            if number is not None:
                numbers[name] = number
        elif name == PRIORITY:
            lane = LANE_OF.get(value.lower(), lane)
        elif name == DEDUP_ID:
            if 1 <= len(value) <= limits.DEDUP_ID_BYTES_MAX:
                dedup_id = value
        elif name == REDRIVE_GROUP:
            redrive_group = _read_group(value) or redrive_group
    if not numbers:
        return _Wishes(Attributes(lane, 0, 0, 0, 0, redrive_group, dedup_id), 0, 0)
    number_of = numbers.get
    attributes = Attributes(
        lane=lane,
        deliver_at_ms=number_of(DELIVER_AT, 0),
        max_attempts=number_of(MAX_ATTEMPTS, 0),
        visibility_ms=number_of(VISIBILITY, 0),
        redrive_group=redrive_group,
        dedup_id=dedup_id,
    )
    # A moment that was given wins even when it is the zeroth millisecond, so
    # whether it was given decides, and not what it is.
    delay_ms = 0 if DELIVER_AT in numbers else number_of(DELAY, 0)
    return _Wishes(attributes, delay_ms, number_of(TTL, 0))


def read_attributes(headers: Headers, timestamp_ms: int) -> Attributes:
    """The attributes of one record. Never raises: what makes no sense counts as
    absent, and so do delay and time to live on a record without a timestamp."""
    if not headers:
        return DEFAULT_ATTRIBUTES
    return _read_wishes(headers).at(timestamp_ms)


def may_have_attributes(batch: Buffer, header: BatchHeader) -> bool:
    """False when no record of the batch has any, by one search. A compressed
    batch may always have some, and a value that holds the prefix looks like it."""
    if header.is_control:
        return False
    if header.codec:
        return True
    end = header.size_bytes
    if isinstance(batch, memoryview):
        # A memoryview cannot search; the copy is cheap beside opening records.
        return _PREFIX in bytes(batch[HEADER_BYTES:end])
    return batch.find(_PREFIX, HEADER_BYTES, end) >= 0


def scan_attributes(
    batch: Buffer, header: BatchHeader | None = None
) -> list[tuple[int, Attributes]]:
    """Offset and attributes of the records whose attributes are not the default.

    In ascending order of offset. Empty for control batches.
    """
    return list(iterate_batch_attributes(batch, header or read_header(batch)))


def iterate_batch_attributes(
    batch: Buffer, header: BatchHeader
) -> Iterator[tuple[int, Attributes]]:
    """As `scan_attributes`, one after the other: a batch may hold a million."""
    if may_have_attributes(batch, header):
        yield from iterate_attributes(read_block(batch, header), header)


def block_may_have_attributes(block: bytes) -> bool:
    """As `may_have_attributes`, for the uncompressed bytes of records."""
    return _PREFIX in block


def iterate_attributes(block: bytes, header: BatchHeader) -> Iterator[tuple[int, Attributes]]:
    """As `scan_attributes`, from the uncompressed bytes of the batch's records."""
    try:
        yield from _scan(block, header)
    except IndexError:
        raise CorruptBatch("a record is cut off at the end of the batch") from None


def later(timestamp_ms: int, by_ms: int) -> int:
    """Sums of times stop there."""
    return min(timestamp_ms + by_ms, limits.TIMESTAMP_MS_MAX)


def _read_number(name: str, value: bytes) -> int | None:
    # isdigit alone on bytes is exactly the ten ASCII digits; int() would also
    # take signs, spaces and underscores.
    if not value.isdigit() or len(value) > _DIGITS_MAX:
        return None
    number = int(value)
    low, high = NUMBER_BOUNDS[name]
    return number if low <= number <= high else None


def _read_group(value: bytes) -> str | None:
    try:
        group = value.decode()
    except UnicodeDecodeError:
        return None
    return group if len(group) <= limits.NAME_CHARACTERS_MAX else None


def _scan(data: bytes, header: BatchHeader) -> Iterator[tuple[int, Attributes]]:
    wishes_of: dict[bytes, _Wishes] = {}
    append_time_ms = header.max_timestamp_ms if header.has_log_append_time else None
    last_delta = header.last_offset_delta
    size = len(data)
    previous = -1
    position = 0
    hit = data.find(_PREFIX)
    for _ in range(header.count):
        if hit < 0:
            break
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        end = position + (raw >> 1)
        if raw & 1 or end > size:
            raise CorruptBatch(f"a record's length at byte {position} is impossible")
        if hit < end:
            time_delta, delta, start = _find_headers(data, position)
            if not previous < delta <= last_delta:
                raise CorruptBatch(f"a record's offset delta at byte {position} is out of order")
            previous = delta
            block = data[start:end]
            wishes = wishes_of.get(block)
            if wishes is None:
                headers, stop = read_headers(data, start, end)
                if stop != end:
                    raise CorruptBatch(f"a record ends at byte {stop} instead of {end}")
                wishes = wishes_of[block] = _read_wishes(headers)
            timestamp_ms = append_time_ms
            if timestamp_ms is None:
                timestamp_ms = as_int64(header.base_timestamp_ms + time_delta)
            attributes = wishes.at(timestamp_ms)
            if attributes != DEFAULT_ATTRIBUTES:
                yield header.base_offset + delta, attributes
            hit = data.find(_PREFIX, end)
        position = end


def _find_headers(data: bytes, position: int) -> tuple[int, int, int]:
    """Time delta, offset delta, and where the headers of the record start. Lengths
    that lead out of the record are found out when the headers are read."""
    position += 1
    raw = data[position]
    position += 1
    if raw > 127:
        raw, position = read_more(data, position, raw, BITS_64)
    time_delta = (raw >> 1) ^ -(raw & 1)
    raw = data[position]
    position += 1
    if raw > 127:
        raw, position = read_more(data, position, raw)
    if raw & 1:
        raise CorruptBatch(f"a record's offset delta at byte {position} is negative")
    delta = raw >> 1
    # Key, then value: a length, or one for null, and that many bytes.
    for _ in range(2):
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_more(data, position, raw)
        if raw != 1:
            if raw & 1:
                raise CorruptBatch(f"a length at byte {position} is negative")
            position += raw >> 1
    return time_delta, delta, position
