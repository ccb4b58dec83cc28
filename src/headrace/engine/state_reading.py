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

from headrace.core.errors import CorruptBatch, CorruptLog
from headrace.engine.state import Event, decode_event
from headrace.engine.state_log import TransactionDecided
from headrace.log import Log
from headrace.log.segment import Segment
from headrace.record import HEADER_BYTES, BatchHeader, read_control, read_header, read_records
from headrace.record.control import ControlKind
from headrace.record.varint import decode_unsigned

PIECE_BYTES = 64 * 1024

# What a value is preceded by in a batch of one event: attributes, time, offset and key.
_BARE = b"\0\0\0\1"


class Placed(NamedTuple):
    """An event, or the marker of a transaction, and where it lies."""

    position: int
    event: Event | TransactionDecided


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
    for data in twins.pieces():
        found: list[Placed] = []
        position = 0
        try:
            while position < len(data):
                header = read_header(data, position)
                if header.last_offset >= twins.start:
                    _read_batch(data, position, header, found)
                position += header.size_bytes
        except CorruptBatch as error:
            raise CorruptLog(f"a batch of a state log cannot be read: {error}") from error
        yield len(data), found


def _read_batch(data: bytes, position: int, header: BatchHeader, found: list[Placed]) -> None:
    end = position + header.size_bytes
    if header.is_control:
        marker = read_control(data[position:end], header)
        decided = TransactionDecided(
            marker.producer_id, marker.timestamp_ms, marker.kind is ControlKind.COMMIT
        )
        found.append(Placed(marker.offset, decided))
        return
    if header.count == 1 and not header.codec:
        value = _only_value(data, position + HEADER_BYTES, end)
        if value is not None:
            found.append(Placed(header.base_offset, decode_event(value)))
            return
    for record in read_records(data[position:end], header):
        found.append(Placed(record.offset, decode_event(record.value or b"")))


def _only_value(data: bytes, position: int, end: int) -> bytes | None:
    """The value of a batch's only record, if that has neither key nor headers."""
    try:
        _, position = decode_unsigned(data, position)
        if data[position : position + 4] != _BARE:
            return None
        size, start = decode_unsigned(data, position + 4)
    except IndexError:
        return None
    # Behind the value there is one byte: no headers.
    if size & 1 or start + (size >> 1) + 1 != end:
        return None
    return data[start : end - 1]
