"""The sidecar: scans on disk, so that a partition is not read again at open.

    attributes/<first offset>      blocks, back to back

    block    length   4 bytes, big-endian, of the body
             crc32c   4 bytes, of the body
             body     msgpack: [start, end, [row ...], [absent runs],
                      [[start, end, producer] ...]]

Only what lies below the log's synced end is written, so a block never describes
a record that a loss of power took away. It is never synced: what is missing or
damaged is scanned again from the log, and what is here is never more than that.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator

import msgspec
from crc32c import crc32c

from headrace.core.ports import Disk
from headrace.core.system_errors import is_full
from headrace.engine.runs import Runs
from headrace.engine.scan import Row, Scan

BUFFERED_OFFSETS_MAX = 65_536
BUFFERED_ROWS_MAX = 4_096
FILE_BYTES_MAX = 8 * 1024 * 1024

_FRAME = struct.Struct(">II")


class _Block(msgspec.Struct, array_like=True):
    start: int
    end: int
    rows: list[Row]
    absent: Runs
    transactional: list[tuple[int, int, int]] = []


_decoder = msgspec.msgpack.Decoder(_Block)
_encoder = msgspec.msgpack.Encoder()


class Damaged(Exception):
    """The files do not join up: scan the log again."""


class Sidecar:
    """Scans are added in order, without gaps."""

    def __init__(self, disk: Disk, path: str, *, read_only: bool) -> None:
        self._disk = disk
        self._path = path
        self._read_only = read_only
        self._names = disk.list(path)
        self._waiting: list[Scan] = []
        # New blocks go into a file of their own: never behind damage.
        self._size = FILE_BYTES_MAX
        # Up to where the scans reach, on disk or about to be.
        self.end = 0
        for block in self._blocks(self._names[-1]) if self._names else ():
            self.end = block.end
        self._buffer = _Block(self.end, self.end, [], [])

    @property
    def is_empty(self) -> bool:
        return not self._names and not self._waiting and self._buffer.end == self._buffer.start

    def _blocks(self, name: str) -> Iterator[_Block]:
        file = self._disk.open(f"{self._path}/{name}", read_only=True)
        try:
            data = file.read(file.size(), 0)
        finally:
            file.close()
        position = 0
        while position + _FRAME.size <= len(data):
            length, crc = _FRAME.unpack_from(data, position)
            position += _FRAME.size
            body = data[position : position + length]
            if len(body) != length or crc32c(body) != crc:
                return
            position += length
            try:
                yield _decoder.decode(body)
            except msgspec.DecodeError:
                return

    def begin(self, start: int) -> None:
        """Nothing on disk is of use: begin at this offset."""
        if not self._read_only:
            for name in self._names:
                self._disk.remove(f"{self._path}/{name}")
        self._names = []
        self._waiting = []
        self._buffer = _Block(start, start, [], [])
        self.end = start

    def add(self, scan: Scan) -> None:
        self._waiting.append(scan)
        self.end = scan.end

    def on_synced(self, synced_end: int) -> None:
        buffer = self._buffer
        taken = 0
        for scan in self._waiting:
            if scan.end > synced_end:
                break
            buffer.rows.extend(scan.rows)
            buffer.absent.extend(scan.absent)
            buffer.transactional.extend(scan.transactional)
            buffer.end = scan.end
            taken += 1
        del self._waiting[:taken]
        if (
            buffer.end - buffer.start >= BUFFERED_OFFSETS_MAX
            or len(buffer.rows) + len(buffer.transactional) >= BUFFERED_ROWS_MAX
        ):
            self.flush()

    def flush(self) -> None:
        """Write what is buffered. On a full disk it stays in memory: the next open finds
        it in the log again."""
        buffer = self._buffer
        if buffer.end == buffer.start or self._read_only:
            return
        body = _encoder.encode(buffer)
        is_new = self._size >= FILE_BYTES_MAX or not self._names
        name = f"{buffer.start:020d}" if is_new else self._names[-1]
        position = 0 if is_new else self._size
        try:
            self._write(name, _FRAME.pack(len(body), crc32c(body)) + body, position)
        except OSError as error:
            if not is_full(error):
                raise
            if is_new:
                # An empty file would look like one that lost its blocks.
                self._disk.remove(f"{self._path}/{name}")
            return
        if is_new:
            self._names.append(name)
        self._size = position + _FRAME.size + len(body)
        self._buffer = _Block(buffer.end, buffer.end, [], [])

    def _write(self, name: str, data: bytes, position: int) -> None:
        self._disk.make_directory(self._path)
        file = self._disk.open(f"{self._path}/{name}", create=True)
        try:
            file.write(data, position)
        finally:
            file.close()

    def scans(self, start: int) -> Iterator[Scan]:
        """Everything from `start` on, on disk and not. Damaged when there is
        less than was there once."""
        first = max(0, bisect_right(self._names, f"{start:020d}") - 1)
        reached: int | None = None
        for name in self._names[first:]:
            for block in self._blocks(name):
                if block.start > start if reached is None else block.start != reached:
                    # Files are not synced: one may be lost while later ones stay.
                    raise Damaged
                reached = block.end
                if block.end > start:
                    yield _scan_of(block)
        buffer = self._buffer
        if self._names and reached != buffer.start:
            raise Damaged
        if buffer.end > max(buffer.start, start):
            yield _scan_of(buffer)
        yield from (scan for scan in self._waiting if scan.end > start)

    def delete_before(self, offset: int) -> None:
        """Drop files that lie wholly below; a file ends where the next begins."""
        while len(self._names) > 1 and self._names[1] <= f"{offset:020d}":
            self._disk.remove(f"{self._path}/{self._names.pop(0)}")


def _scan_of(block: _Block) -> Scan:
    rows, transactional = tuple(block.rows), tuple(block.transactional)
    return Scan(block.start, block.end, rows, block.absent, None, transactional)
