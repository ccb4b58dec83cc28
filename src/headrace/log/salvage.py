"""Salvage: every sound batch of a damaged log, and where the others lay.

    | batch | batch | ???????? | batch | batch |
                      ^ lost: whatever lies between two batches whose checksums are right

Files are read by their names alone; marks, indexes and checkpoints are not believed.
Behind a bad batch every place is tried at which one could begin.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from headrace.core.errors import CorruptBatch
from headrace.core.ports import Disk
from headrace.log.segment import parse_base_offset
from headrace.record.batch import BatchHeader, check_batch

# Where a batch has the number of its layout, and that number.
_MAGIC_AT = 16
_MAGIC = b"\x02"


class SoundBatch(NamedTuple):
    data: bytes
    header: BatchHeader


class Lost(NamedTuple):
    """Bytes of a file that are no batch."""

    file: str
    position: int
    size_bytes: int


def salvage(disk: Disk, folder: str) -> Iterator[SoundBatch | Lost]:
    """In the order of their offsets, which no checksum covers: a batch that is not where
    the one before it ended, or could not be behind what is lost, is lost itself."""
    names = [name for name in disk.list(folder) if parse_base_offset(name) is not None]
    next_offset = 0
    for name in names:
        path = f"{folder}/{name}"
        with contextlib.closing(disk.open(path, read_only=True)) as file:
            data = file.read(file.size(), 0)
        next_offset = max(next_offset, parse_base_offset(name) or 0)
        lost_at: int | None = None
        position = 0
        while position < len(data):
            # Less than a byte for an offset is not possible.
            room = 0 if lost_at is None else position - lost_at
            header = _batch_at(data, position, range(next_offset, next_offset + room + 1))
            if header is None:
                lost_at = position if lost_at is None else lost_at
                position = _next_place(data, position)
                continue
            if lost_at is not None:
                yield Lost(path, lost_at, position - lost_at)
                lost_at = None
            yield SoundBatch(data[position : position + header.size_bytes], header)
            next_offset = header.next_offset
            position += header.size_bytes
        if lost_at is not None:
            yield Lost(path, lost_at, len(data) - lost_at)


def _batch_at(data: bytes, position: int, expected: range) -> BatchHeader | None:
    try:
        header = check_batch(data, position)
    except CorruptBatch:
        return None
    return header if header.base_offset in expected else None


def _next_place(data: bytes, position: int) -> int:
    """Where a batch could begin, behind this one."""
    found = data.find(_MAGIC, position + 1 + _MAGIC_AT)
    return len(data) if found < 0 else found - _MAGIC_AT
