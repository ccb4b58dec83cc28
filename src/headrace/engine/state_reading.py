"""Reading a state log from outside: every event with its position, in pieces.

The segments are read through files of their own, so a piece can be read anywhere, also
in a thread while the log is in use, and also when it is cut meanwhile. An event's
position is its offset in the state log, which no other event of that log ever has once
it is synced.

Nearly every batch of a state log is one event, and finding that one value is all that
there is to reading it; other batches are left to the reader of records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from headrace.core.errors import CorruptBatch
from headrace.engine.state import Event, decode_event
from headrace.engine.state_log import TransactionDecided
from headrace.log import Log
from headrace.log.segment import Segment
from headrace.record import BatchHeader, check_batch, read_control, read_header, read_records
from headrace.record.batch import CRC_FROM, HEADER, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC
from headrace.record.control import ControlKind

PIECE_BYTES = 64 * 1024

# What a value is preceded by in a batch of one event: attributes, time, offset and key.
_BARE = b"\0\0\0\1"
_unpack = HEADER.unpack_from


class Placed(NamedTuple):
    """An event, or the marker of a transaction, and where it lies."""

    position: int
    event: Event | TransactionDecided


class Raw(NamedTuple):
    """The same before it is decoded."""

    position: int
    content: bytes | TransactionDecided


class SegmentTwins:
    """A log's segments from `start` to `end`, with files of their own."""

    def __init__(self, log: Log | None, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self.segments: Sequence[Segment] = (
            ()
            if log is None
            else [
                segment.twin()
                for segment in log.segment_list
                if segment.size_bytes and segment.base_offset < end and segment.next_offset > start
            ]
        )

    def leave_out(self, bases: Collection[int]) -> None:
        """Do not read the segments with these base offsets."""
        self.segments, gone = (
            [each for each in self.segments if (each.base_offset in bases) is out]
            for out in (False, True)
        )
        for segment in gone:
            segment.close()

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        """Whole checked batches. The first may begin below `start`."""
        for segment in self.segments:
            position, wanted = 0, segment.base_offset
            if self.start > wanted:
                position, header = segment.find(self.start)
                wanted = header.base_offset
            while wanted < min(self.end, segment.next_offset):
                data, position, wanted = segment.read(position, piece_bytes, self.end, wanted)
                if not data:
                    break
                yield bytes(data)

    def close(self) -> None:
        for segment in self.segments:
            segment.close()


def read_events(twins: SegmentTwins) -> Iterator[tuple[int, list[Placed]]]:
    """For each piece its bytes and its events; CorruptLog for what cannot be read."""
    for size, raw in read_raw(twins):
        yield (
            size,
            [
                Placed(
                    position,
                    content if isinstance(content, TransactionDecided) else decode_event(content),
                )
                for position, content in raw
            ],
        )


def read_raw(twins: SegmentTwins) -> Iterator[tuple[int, list[Raw]]]:
    """The same, with events as they are written."""
    for segment in twins.segments:
        position = segment.find(twins.start)[0] if twins.start > segment.base_offset else 0
        file, length = segment.file(), PIECE_BYTES
        while position < segment.size_bytes:
            data = file.read(min(length, segment.size_bytes - position), position)
            try:
                found, used = _read_piece(data, twins.start, twins.end)
            except (CorruptBatch, IndexError) as error:
                raise segment.corrupt(position, f"a state event cannot be read: {error}") from error
            if not used:
                if position + len(data) >= segment.size_bytes or header_end(data) <= len(data):
                    break
                # One batch that is larger than a piece is read whole.
                length = header_end(data)
                continue
            length = PIECE_BYTES
            position += used
            yield used, found


def header_end(data: bytes) -> int:
    """Where the batch at the start of these bytes ends."""
    return read_header(data).size_bytes


def _read_piece(data: bytes, start: int, end: int) -> tuple[list[Raw], int]:
    """The events of the whole batches in these bytes, and how many bytes those are."""
    found: list[Raw] = []
    at, size = 0, len(data)
    view = memoryview(data)
    new = tuple.__new__
    while size - at >= HEADER_BYTES:
        base, length, _, magic, crc, attributes, delta, _, _, _, _, _, count = _unpack(data, at)
        stop = at + length + LENGTH_OVERHEAD
        if base >= end or stop > size:
            break
        # Nearly every batch is one event that was written alone: this loop is what
        # following costs, so it does without calls where it can.
        if magic == MAGIC and not attributes and count == 1 and not delta and base >= start:
            if crc32c(view[at + CRC_FROM : stop]) != crc:
                raise CorruptBatch(f"the checksum at offset {base} is wrong")
            body = at + HEADER_BYTES
            while data[body] & 0x80:
                body += 1
            if data[body + 1 : body + 5] == _BARE and not data[stop - 1]:
                body += 5
                while data[body] & 0x80:
                    body += 1
                found.append(new(Raw, (base, data[body + 1 : stop - 1])))
                at = stop
                continue
        header = check_batch(data, at)
        if header.last_offset >= start:
            _read_batch(data[at:stop], header, found)
        at = stop
    return found, at


def _read_batch(batch: bytes, header: BatchHeader, found: list[Raw]) -> None:
    if header.is_control:
        marker = read_control(batch, header)
        decided = TransactionDecided(
            marker.producer_id, marker.timestamp_ms, marker.kind is ControlKind.COMMIT
        )
        found.append(Raw(marker.offset, decided))
        return
    for record in read_records(batch, header):
        found.append(Raw(record.offset, record.value or b""))
