"""Giving batches their places: offset and epoch, in each of them.

| batch | batch | batch |     back to back, in one buffer, to be written at once
  o       o+n     o+n+m       their base offsets
"""

from __future__ import annotations

from headrace.compiled import compiled
from headrace.core.ports import Buffer
from headrace.record.batch import LENGTH_OVERHEAD, patch_batch, read_header

# Last offset, position in the buffer, size, and largest timestamp of a batch.
Placed = tuple[int, int, int, int]


@compiled
def place_batches(
    batches: bytearray | memoryview, offset: int, epoch: int
) -> tuple[int, list[Placed]]:
    """Patch `offset` and what follows it into the batches, which were checked.
    Returns the next offset, and what an index wants to know of each."""
    position = 0
    placed = []
    while position < len(batches):
        header = read_header(batches, position)
        patch_batch(batches, offset, epoch, position)
        offset += header.last_offset_delta + 1
        size = header.batch_length + LENGTH_OVERHEAD
        placed.append((offset - 1, position, size, header.max_timestamp_ms))
        position += size
    return offset, placed


def places_of(batches: Buffer) -> tuple[int, list[Placed]]:
    """The same for batches that have their places already."""
    position = 0
    offset = 0
    placed = []
    while position < len(batches):
        header = read_header(batches, position)
        offset = header.next_offset
        placed.append((offset - 1, position, header.size_bytes, header.max_timestamp_ms))
        position += header.size_bytes
    return offset, placed
