"""Giving batches their places: offset and epoch, in each of them.

    | batch | batch | batch |     back to back, in one buffer, to be written at once
      o       o+n     o+n+m       their base offsets
              ^ an entry          the index notes one batch in so many bytes

On the way it is found which batches the sparse index has to note, since a call for each
batch would cost more than all else that is done here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.compiled import compiled
from headrace.core.ports import Buffer
from headrace.record.batch import LENGTH_OVERHEAD, patch_batch, read_header

# Last offset, position in the buffer, size, and largest timestamp of a batch.
Place = tuple[int, int, int, int]


class Progress(NamedTuple):
    """How far a sparse index has come: what decides where its next entry is."""

    # The size of the batches since the last entry, of which that is about the first.
    since_entry_bytes: int
    # The largest timestamp so far, and the last offset of the first batch that has it.
    latest_ms: int
    latest_offset: int


class Entry(NamedTuple):
    """A batch that the index notes, and the largest timestamp up to and with it."""

    last_offset: int
    position: int
    latest_ms: int
    latest_offset: int


class Placed(NamedTuple):
    next_offset: int
    progress: Progress
    entries: list[Entry]


@compiled
def place_batches(
    batches: bytearray | memoryview,
    offset: int,
    epoch: int,
    progress: Progress,
    interval_bytes: int,
) -> Placed:
    """Patch `offset` and what follows it into the batches, which were checked. An index that
    has come as far as `progress` notes a batch once in `interval_bytes`."""
    return note_places(_patch(batches, offset, epoch), offset, progress, interval_bytes)


def places_of(batches: Buffer, progress: Progress, interval_bytes: int) -> Placed:
    """As `place_batches`, for batches that have their places already."""
    return note_places(_read(batches), 0, progress, interval_bytes)


def note_places(
    places: Iterable[Place], next_offset: int, progress: Progress, interval_bytes: int
) -> Placed:
    """What an index notes of batches at these places; without any, `next_offset` stays."""
    since_bytes, latest_ms, latest_offset = progress
    entries: list[Entry] = []
    for last_offset, position, size, timestamp_ms in places:
        if timestamp_ms > latest_ms:
            latest_ms, latest_offset = timestamp_ms, last_offset
        if since_bytes > interval_bytes:
            entries.append(Entry(last_offset, position, latest_ms, latest_offset))
            since_bytes = 0
        since_bytes += size
        next_offset = last_offset + 1
    return Placed(next_offset, Progress(since_bytes, latest_ms, latest_offset), entries)


def _patch(batches: bytearray | memoryview, offset: int, epoch: int) -> Iterator[Place]:
    position = 0
    while position < len(batches):
        header = read_header(batches, position)
        patch_batch(batches, offset, epoch, position)
        offset += header.last_offset_delta + 1
        size = header.batch_length + LENGTH_OVERHEAD
        yield offset - 1, position, size, header.max_timestamp_ms
        position += size


def _read(batches: Buffer) -> Iterator[Place]:
    position = 0
    while position < len(batches):
        header = read_header(batches, position)
        yield header.last_offset, position, header.size_bytes, header.max_timestamp_ms
        position += header.size_bytes
