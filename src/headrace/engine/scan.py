"""What the queue needs to know of records without keeping them: their attributes.

A partition is scanned once for all its queue groups. Most records have nothing
special, so a scan is a range of offsets with a few rows for those that have, and
the offsets that hold no message at all.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.core.errors import CorruptBatch
from headrace.core.ports import Buffer
from headrace.engine.runs import Runs, runs_of
from headrace.engine.unreadable import Unreadable
from headrace.record import Attributes, BatchHeader, read_raw_parts
from headrace.record.attributes import iterate_batch_attributes


class Row(NamedTuple):
    """A run of offsets with the same attributes, which are not the default."""

    start: int
    end: int
    lane: int
    deliver_at_ms: int
    expires_at_ms: int
    redrive_group: str | None
    # 0 for what the group says.
    max_attempts: int = 0
    visibility_ms: int = 0
    # How long it was to wait from its timestamp on; 0 where a moment was given.
    delay_ms: int = 0
    # How long it lives from its timestamp on; 0 for ever.
    ttl_ms: int = 0


class Scan(NamedTuple):
    start: int
    end: int
    rows: tuple[Row, ...]
    # Offsets in the range where there is no message.
    absent: Runs
    # The key's hash for each offset, where the topic's order needs it.
    keys: list[int] | None
    # Start, end and producer of every batch that is part of a transaction.
    transactional: tuple[tuple[int, int, int], ...] = ()


def scan_batch(
    batch: Buffer,
    header: BatchHeader,
    start: int,
    *,
    attributes: bool,
    keys: bool,
    unreadable: Unreadable,
) -> Scan:
    """One batch; `start` is where the one before it ended, so that a gap that
    compaction left counts as absent. Without `attributes` they are not looked at:
    dead letters keep theirs for the day they are redriven."""
    end = header.next_offset
    absent: Runs = [start, header.base_offset] if start < header.base_offset else []
    if header.is_control:
        return Scan(start, end, (), [start, end], [0] * (end - start) if keys else None)
    try:
        return _scan_records(batch, header, start, absent, attributes=attributes, keys=keys)
    except CorruptBatch as error:
        # Its checksum is right, so its producer wrote nonsense. There is no message
        # in it, and those around it must not suffer.
        unreadable.note(header.base_offset, end, str(error))
        return Scan(start, end, (), [start, end], [0] * (end - start) if keys else None)


def _scan_records(
    batch: Buffer, header: BatchHeader, start: int, absent: Runs, *, attributes: bool, keys: bool
) -> Scan:
    end = header.next_offset
    hashes: list[int] | None = None
    if keys or header.count != header.last_offset_delta + 1:
        hashes = [0] * (end - start) if keys else None
        present: set[int] = set()
        for part in read_raw_parts(batch, header):
            present.update([record.offset for record in part])
            if hashes is not None:
                for record in part:
                    # DeleteRecords may have moved the log's start into the batch.
                    if record.offset >= start:
                        hashes[record.offset - start] = key_hash(record.key)
        absent = runs_of(offset for offset in range(start, end) if offset not in present)
    transactional: tuple[tuple[int, int, int], ...] = ()
    if header.is_transactional:
        transactional = ((header.base_offset, end, header.producer_id),)
    return Scan(
        start,
        end,
        tuple(rows_of(iterate_batch_attributes(batch, header))) if attributes else (),
        absent,
        hashes,
        transactional,
    )


def key_hash(key: bytes | None) -> int:
    """Never 0 for a key: 0 says that there is none."""
    return 0 if key is None else zlib.crc32(key) or 1


def row_of(offset: int, found: Attributes) -> Row:
    return Row(
        offset,
        offset + 1,
        found.lane,
        found.deliver_at_ms,
        found.expires_at_ms,
        found.redrive_group,
        found.max_attempts,
        found.visibility_ms,
        found.delay_ms,
        found.ttl_ms,
    )


def rows_of(found: Iterable[tuple[int, Attributes]]) -> Iterator[Row]:
    """Neighbours with the same attributes are one row."""
    last: Row | None = None
    for offset, attributes in found:
        row = row_of(offset, attributes)
        if last is not None and last.end == offset and last[2:] == row[2:]:
            last = last._replace(end=offset + 1)
            continue
        if last is not None:
            yield last
        last = row
    if last is not None:
        yield last
