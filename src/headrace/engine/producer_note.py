"""The note of a partition's producers: what is known of them at some offset.

    <partition>/producers     crc32c, offset, state as `ProducerState.encode` has it

It saves an open from walking the log, and it is only ever written for an offset
up to which the log is synced, so it never knows more than the log. It is not
synced itself: when it does not pass its checksum it is made again from the log.
"""

from __future__ import annotations

import contextlib

from crc32c import crc32c

from headrace.core.errors import HeadraceError
from headrace.core.ports import Disk
from headrace.engine.producer import ProducerState
from headrace.engine.records import iterate_batches
from headrace.log import Log
from headrace.record import read_header

# How much may be appended between two notes: what an open has to walk at most.
NOTE_BYTES = 8 * 1024 * 1024
_NAME = "producers"


class ProducerNote:
    def __init__(self, disk: Disk, log: Log) -> None:
        self._disk = disk
        self._log = log
        self._path = f"{log.path}/{_NAME}"
        self._noted_bytes = 0

    def load(self) -> ProducerState:
        """From the note, and from the log behind it."""
        log = self._log
        producers, start = self._read()
        for data, position in iterate_batches(log, start, log.end_offset):
            header = read_header(data, position)
            if header.producer_id >= 0 and header.base_offset >= start and not header.is_control:
                producers.on_append(header, header.base_offset, header.max_timestamp_ms)
        self._noted_bytes = log.size_bytes
        return producers

    def _read(self) -> tuple[ProducerState, int]:
        log = self._log
        nothing = ProducerState(), log.start_offset
        try:
            file = self._disk.open(self._path, read_only=True)
        except FileNotFoundError:
            return nothing
        with contextlib.closing(file):
            content = file.read(file.size(), 0)
        offset = int.from_bytes(content[4:12], "big")
        if crc32c(content[4:]) != int.from_bytes(content[:4], "big"):
            return nothing
        if not log.start_offset <= offset <= log.end_offset:
            return nothing
        try:
            return ProducerState.decode(content[12:]), offset
        except HeadraceError:
            return nothing

    def write_if_due(self, producers: ProducerState) -> None:
        if self._log.size_bytes - self._noted_bytes >= NOTE_BYTES:
            self.write(producers)

    def write(self, producers: ProducerState) -> None:
        log = self._log
        if log.synced_end != log.end_offset or not log.end_offset:
            return
        self._noted_bytes = log.size_bytes
        content = log.end_offset.to_bytes(8, "big") + producers.encode()
        file = self._disk.open(self._path, create=True)
        with contextlib.closing(file):
            file.truncate(0)
            file.write(crc32c(content).to_bytes(4, "big") + content, 0)
