"""The note of a partition's producers: what is known of them at some offset.

    <partition>/producers     crc32c, offset, what the files of the aborted
                              transactions hold, and the state as
                              `ProducerState.encode` has it

It saves an open from walking the log, and it is only ever written for an offset
up to which the log is synced, so it never knows more than the log. It is not
synced itself: when it does not pass its checksum it is made again from the log. The
layout is in docs/formats/producer-snapshot.md.
"""

from __future__ import annotations

import contextlib
from struct import Struct
from typing import Final

from crc32c import crc32c

from headrace.core.errors import HeadraceError
from headrace.core.ports import Disk
from headrace.engine.producer import ProducerState
from headrace.engine.records import iterate_batches
from headrace.engine.stability import replay_batch
from headrace.log import Log
from headrace.log.aborted import PartSummary
from headrace.record import read_header

# How much may be appended between two notes: what an open has to walk at most.
NOTE_BYTES: Final = 8 * 1024 * 1024
_NAME: Final = "producers"
_MAGIC: Final = b"HRPN"
_HEAD: Final = Struct(">Iq4sI")
_PART: Final = Struct(">qII")


class ProducerNote:
    def __init__(self, disk: Disk, log: Log) -> None:
        self._disk = disk
        self._log = log
        self._path = f"{log.path}/{_NAME}"
        self._noted_bytes = 0

    def load(self) -> ProducerState:
        """From the note, and from the log behind it. The log's aborted
        transactions are known as well afterwards."""
        log = self._log
        producers, parts, start = self._read()
        log.aborted.adopt(parts)
        for data, position in iterate_batches(log, start, log.end_offset):
            header = read_header(data, position)
            # Records may have been deleted up to the middle of the first.
            if header.producer_id >= 0 and header.next_offset > start:
                batch = data[position : position + header.size_bytes]
                replay_batch(log, producers, batch, header)
        self._noted_bytes = log.size_bytes
        return producers

    def _read(self) -> tuple[ProducerState, list[PartSummary], int]:
        log = self._log
        nothing: tuple[ProducerState, list[PartSummary], int] = (
            ProducerState(),
            [],
            log.start_offset,
        )
        try:
            file = self._disk.open(self._path, read_only=True)
        except FileNotFoundError:
            return nothing
        with contextlib.closing(file):
            content = file.read(file.size(), 0)
        if len(content) < _HEAD.size:
            return nothing
        crc, offset, magic, count = _HEAD.unpack_from(content)
        if crc32c(content[4:]) != crc or magic != _MAGIC:
            return nothing
        if not log.start_offset <= offset <= log.end_offset:
            return nothing
        end = _HEAD.size + count * _PART.size
        parts = [PartSummary(*fields) for fields in _PART.iter_unpack(content[_HEAD.size : end])]
        if any(part.base_offset not in log.segment_list.bases for part in parts):
            # Compaction joined segments since.
            return nothing
        try:
            return ProducerState.decode(content[end:]), parts, offset
        except HeadraceError:
            return nothing

    def cut(self, end: int) -> None:
        """The log is about to be cut here: a note of what lies behind would be taken for one
        of what comes in its place."""
        with contextlib.suppress(FileNotFoundError):
            with contextlib.closing(self._disk.open(self._path, read_only=True)) as file:
                content = file.read(_HEAD.size, 0)
            if len(content) < _HEAD.size or _HEAD.unpack(content)[1] > end:
                self._disk.remove(self._path)

    def write_if_due(self, producers: ProducerState) -> None:
        if self._log.size_bytes - self._noted_bytes >= NOTE_BYTES:
            self.write(producers)

    def write(self, producers: ProducerState) -> None:
        log = self._log
        if log.synced_end != log.end_offset or not log.end_offset:
            return
        self._noted_bytes = log.size_bytes
        log.aborted.save()
        parts = log.aborted.summary()
        head = _HEAD.pack(0, log.end_offset, _MAGIC, len(parts))[4:]
        content = b"".join((head, *(_PART.pack(*part) for part in parts), producers.encode()))
        file = self._disk.open(self._path, create=True)
        with contextlib.closing(file):
            file.truncate(0)
            file.write(crc32c(content).to_bytes(4, "big") + content, 0)
