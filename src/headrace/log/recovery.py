"""What is left of a log after a crash: how far its segments can be believed.

    segment    0 ............ 100 ............ 200 ............ 300 ......
                                  |
                               synced end
               believed, unread   | checked batch by batch, across segments;
                                  | cut at the first bad one, whatever follows

Pages that were never synced reach the disk in any order, so a good batch behind a
bad one proves nothing. Below the synced end a bad batch cannot be torn: it is
rot, and neither skipped nor cut.

Rejected: checking the whole last segment at each open. After a clean stop there
is nothing to check, and ten thousand partitions would read gigabytes to learn it.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from typing import Final, NamedTuple

from headrace.core.errors import CorruptBatch, CorruptLog
from headrace.core.ports import Disk, File
from headrace.log.checkpoint import TEMPORARY_SUFFIX, Mark, sync_file, sync_folder
from headrace.log.segment import LOG_SUFFIX, parse_base_offset, segment_name
from headrace.log.segment_index import INDEX_SUFFIXES
from headrace.record.batch import HEADER_BYTES, check_batch, read_header

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
_CHUNK_BYTES: Final = 1024 * 1024


class Tail(NamedTuple):
    """What checking one file from some position on has shown."""

    position: int
    next_offset: int
    epochs: list[tuple[int, int]]
    # Why the batch at `position` is bad; None when the file ends there.
    fault: str | None


class Recovered(NamedTuple):
    """The segments to keep, and the end of the last one."""

    bases: list[int]
    end_offset: int
    end_position: int
    mark: Mark
    epochs: list[tuple[int, int]]


def finish_compaction(disk: Disk, path: str, names: list[str]) -> list[str]:
    """Undo or complete what an interrupted compaction left, and drop temporary
    files; returns the names that are there afterwards."""
    left = [name for name in names if name.endswith((CLEANED_SUFFIX, TEMPORARY_SUFFIX))]
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    if not left and not swaps:
        return names
    for name in left:
        disk.remove(f"{path}/{name}")
    for name in swaps:
        with contextlib.closing(disk.open(f"{path}/{name}")) as file:
            tail = check_tail(file, 0, 0)
        if tail.fault is not None:
            raise CorruptLog(f"{path}/{name} at byte {tail.position}: {tail.fault}")
        finish_swap(disk, path, name.removesuffix(SWAP_SUFFIX), tail.next_offset)
    return disk.list(path)


def finish_swap(disk: Disk, path: str, name: str, next_offset: int) -> None:
    """Put `<name>.swap`, which ends before `next_offset`, in the place of every
    segment whose offsets it covers. Can be repeated after a crash at any point."""
    base = parse_base_offset(name)
    if base is None:
        raise CorruptLog(f"{path}/{name}{SWAP_SUFFIX} at byte 0: this is no segment's name")
    for other in disk.list(path):
        other_base = parse_base_offset(other)
        if other_base is not None and base <= other_base < next_offset:
            stem = f"{path}/{segment_name(other_base)}"
            for suffix in INDEX_SUFFIXES:
                disk.remove(stem + suffix)
            if other_base != base:
                disk.remove(stem + LOG_SUFFIX)
    # The covered segments must be gone for good before the swap file loses the
    # name that says what it covers.
    sync_folder(disk, path)
    disk.rename(f"{path}/{name}{SWAP_SUFFIX}", f"{path}/{name}")


def drop_stale(
    disk: Disk, path: str, bases: list[int], mark: Mark | None, start: int, *, read_only: bool
) -> tuple[list[int], Mark | None]:
    """Without the segments that lie wholly below the start, which are what an
    interrupted deletion left; their files are removed, and a mark in one of them
    moves up to what is left."""
    known = sorted({*bases, mark.base_offset}) if mark else bases
    first = known[max(0, bisect_right(known, start) - 1)] if known else 0
    if not read_only:
        for base in bases:
            if base < first:
                _remove(disk, path, base)
    if mark is not None and mark.base_offset < first:
        mark = Mark(first, first, 0)
    return [base for base in bases if base >= first], mark


def check_tail(file: File, position: int, offset: int) -> Tail:
    """Check each batch from `position`, where `offset` is expected, to the end
    of the file or to the first bad one."""
    size = file.size()
    epochs: list[tuple[int, int]] = []
    length = _CHUNK_BYTES
    while position < size:
        data = file.read(length, position)
        at = 0
        fault = None
        while at < len(data):
            try:
                header = check_batch(data, at)
            except CorruptBatch as error:
                fault = str(error)
                break
            if header.base_offset < offset:
                fault = f"offset {header.base_offset} is below {offset}, which was expected"
                break
            if not epochs or header.leader_epoch > epochs[-1][0]:
                epochs.append((header.leader_epoch, header.base_offset))
            offset = header.next_offset
            at += header.size_bytes
        position += at
        if fault is None or at:
            # A batch at the end of the chunk is judged when it is read whole.
            length = _CHUNK_BYTES
            continue
        needed = _batch_bytes(data)
        if needed <= len(data) or position + needed > size:
            return Tail(position, offset, epochs, fault)
        length = needed
    return Tail(position, offset, epochs, None)


def _batch_bytes(data: bytes) -> int:
    try:
        return read_header(data).size_bytes
    except CorruptBatch:
        return HEADER_BYTES if len(data) < HEADER_BYTES else 0


def recover(
    disk: Disk, path: str, bases: list[int], mark: Mark | None, start: int, *, read_only: bool
) -> Recovered:
    """Decide where the log ends and, unless `read_only`, make the files agree.

    `bases` are the base offsets of the segments that exist, ascending.
    """
    certain = mark is not None
    if mark is None:
        first = bases[0] if bases else start
        mark = Mark(first, first, 0)
    if mark.base_offset not in bases:
        if mark.position:
            name = f"{path}/{segment_name(mark.base_offset)}{LOG_SUFFIX}"
            raise CorruptLog(f"{name} at byte {mark.position}: the file is missing, synced data")
        # The segment was begun at the synced end, and its creation never
        # became durable; neither did whatever was begun after it.
        kept = [base for base in bases if base < mark.base_offset]
        _drop(disk, path, [base for base in bases if base > mark.base_offset], read_only)
        return Recovered([*kept, mark.base_offset], mark.offset, 0, mark, [])
    number = bases.index(mark.base_offset)
    position, offset = mark.position, mark.offset
    epochs: list[tuple[int, int]] = []
    while True:
        name = f"{path}/{segment_name(bases[number])}{LOG_SUFFIX}"
        file = disk.open(name, read_only=read_only)
        with contextlib.closing(file):
            if file.size() < position:
                raise CorruptLog(
                    f"{name} at byte {file.size()}: the file ends here, "
                    f"but was synced up to byte {position}"
                )
            tail = check_tail(file, position, offset)
            epochs += tail.epochs
            later = bases[number + 1 :]
            if tail.fault is None and later and later[0] == tail.next_offset:
                number += 1
                position, offset = 0, tail.next_offset
                continue
            if later and not certain:
                fault = tail.fault or f"ends at offset {tail.next_offset}, before the next segment"
                raise CorruptLog(f"{name} at byte {tail.position}: {fault}")
            if not read_only and tail.fault is not None:
                file.truncate(tail.position)
                # Synced, or a stale batch could come back behind a new one.
                sync_file(file, name)
        _drop(disk, path, later, read_only)
        return Recovered(bases[: number + 1], tail.next_offset, tail.position, mark, epochs)


def _drop(disk: Disk, path: str, bases: list[int], read_only: bool) -> None:
    """Remove segments that follow the end, the last one first, so that a crash
    in between leaves a shorter log and no hole."""
    if not bases or read_only:
        return
    for base in reversed(bases):
        _remove(disk, path, base)
    sync_folder(disk, path)


def _remove(disk: Disk, path: str, base: int) -> None:
    for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
        disk.remove(f"{path}/{segment_name(base)}{suffix}")
