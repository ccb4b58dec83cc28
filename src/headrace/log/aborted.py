"""Which transactions of a log were aborted, and where they lie.

    00000000000000004096.txnindex    entries, back to back, as Kafka lays them out

    entry    version 0 i16 | producer id i64 | first offset i64 | last offset i64
             | last stable offset i64                                     34 bytes

An entry lies with the segment that holds the marker, and its last offset is the
marker's. Its last stable offset is the one that the marker brought: everything below
was decided then, so a search that wants no more than that ends there.

Kafka's layout has no checksum, and a segment without entries has no file, so a file
alone proves nothing. Whoever keeps a log keeps a `summary` beside it, under a checksum
of its own, and gives it back at the next open; a file that does not match its line is
made again, with all others, by walking the log's headers.

Rejected: syncing the files together with the markers. They are derived from the log,
and an abort would cost a second sync.
"""

from __future__ import annotations

import contextlib
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.core.errors import CorruptBatch
from headrace.core.ports import Disk
from headrace.log.segment import Segment, segment_name
from headrace.log.segment_index import TRANSACTION_INDEX_SUFFIX, read_index
from headrace.record.batch import BatchHeader
from headrace.record.control import ControlKind
from headrace.record.reader import read_control

ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0
# Parts of sealed segments that stay in memory once somebody asked for them.
_LOADED_MAX: Final = 8


class AbortedTransaction(NamedTuple):
    """Everything of this producer from the first offset to the marker is void."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class PartSummary(NamedTuple):
    """What one segment's file has to hold to be believed."""

    base_offset: int
    entries: int
    crc: int


class _Part:
    """The entries of one segment: in memory, or believed to be in its file."""

    __slots__ = ("count", "crc", "entries", "saved")

    def __init__(self, entries: bytearray | None, count: int, crc: int, saved: int) -> None:
        self.entries = entries
        self.count = count
        self.crc = crc
        self.saved = saved


class AbortedIndex:
    """The aborted transactions of one log."""

    def __init__(
        self, disk: Disk, path: str, segments: Callable[[], Iterable[Segment]], *, read_only: bool
    ) -> None:
        self._disk = disk
        self._path = path
        self._segments = segments
        self._read_only = read_only
        # By base offset, ascending, and only where there is an entry.
        self._parts: dict[int, _Part] = {}
        self._loaded: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    # Growing.

    def note(self, aborted: AbortedTransaction, base_offset: int) -> None:
        """A marker was written to the segment with this base offset. Entries come
        in the order of their markers."""
        entries = self._entries_of(base_offset)
        if entries and _last_in(entries)(len(entries) // ENTRY.size - 1) >= aborted.last_offset:
            # The files had to be made again, and the log had this one already.
            return
        entry = ENTRY.pack(_VERSION, *aborted)
        part = self._parts.setdefault(base_offset, _Part(entries, 0, 0, 0))
        entries += entry
        part.count += 1
        part.crc = crc32c(entry, part.crc)

    # Asking.

    def between(self, first: int, end: int) -> list[AbortedTransaction]:
        """Those that have a record in this range, or might: they begin below
        `end`, and their marker lies at or above `first`."""
        found: list[AbortedTransaction] = []
        if not self._parts or first >= end:
            return found
        bases = list(self._parts)
        for base in bases[max(0, bisect_right(bases, first) - 1) :]:
            entries = memoryview(self._entries_of(base))
            low = bisect_left(range(len(entries) // ENTRY.size), first, key=_last_in(entries))
            for _, *fields in ENTRY.iter_unpack(entries[low * ENTRY.size :]):
                aborted = AbortedTransaction(*fields)
                if aborted.first_offset < end:
                    found.append(aborted)
                if aborted.last_stable_offset >= end:
                    return found
        return found

    def has_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of this batch, which is decided, are void."""
        return (
            bool(self._parts)
            and header.is_transactional
            and not header.is_control
            and covers(
                self.between(header.base_offset, header.next_offset),
                header.producer_id,
                header.base_offset,
            )
        )

    def _entries_of(self, base: int) -> bytearray:
        """Those of one segment, to be added to only if there were any before."""
        part = self._parts.get(base)
        if part is None:
            return bytearray()
        if part.entries is None:
            size = part.count * ENTRY.size
            content = read_index(self._disk, self._file_path(base))[:size]
            if len(content) != size or crc32c(content) != part.crc:
                self.rebuild()
                return self._entries_of(base)
            part.entries = bytearray(content)
            self._on_loaded(base)
        return part.entries

    def _on_loaded(self, base: int) -> None:
        """Let an older part go that can be read again."""
        self._loaded.append(base)
        if len(self._loaded) > _LOADED_MAX:
            part = self._parts.get(self._loaded.pop(0))
            if part is not None and part.saved == part.count:
                part.entries = None

    def rebuild(self) -> None:
        """Find every entry in the log itself."""
        self._parts.clear()
        self._loaded.clear()
        for base, aborted in find_aborted(self._segments()):
            self.note(aborted, base)

    # Lasting.

    def summary(self) -> list[PartSummary]:
        return [PartSummary(base, part.count, part.crc) for base, part in self._parts.items()]

    def adopt(self, summary: Iterable[PartSummary]) -> None:
        """Begin with what an earlier run has saved. The files are read, and held
        against their lines, when somebody asks."""
        self._parts = {
            line.base_offset: _Part(None, line.entries, line.crc, line.entries) for line in summary
        }

    def save(self) -> None:
        """Bring the files up to date. Not synced."""
        if self._read_only:
            return
        for base, part in self._parts.items():
            if part.entries is None or part.saved == part.count:
                continue
            with contextlib.closing(self._disk.open(self._file_path(base), create=True)) as file:
                start = part.saved * ENTRY.size
                # An earlier run may have got further before it was cut off.
                file.truncate(start)
                file.write(part.entries[start:], start)
            part.saved = part.count

    # Keeping up with the log.

    def truncate_to(self, end: int) -> None:
        """The log is about to be cut: markers at and above `end` go, and with them
        the file of the segment that is cut."""
        for base in [base for base in self._parts if base >= end]:
            del self._parts[base]
        if self._parts:
            base = next(reversed(self._parts))
            entries = self._entries_of(base)
            left = bisect_left(range(len(entries) // ENTRY.size), end, key=_last_in(entries))
            self._put(base, bytes(entries[: left * ENTRY.size]))

    def forget_below(self, base_offset: int) -> None:
        """Segments below this one are gone."""
        for base in [base for base in self._parts if base < base_offset]:
            del self._parts[base]

    def replace(self, bases: Sequence[int], base: int, kept: Sequence[AbortedTransaction]) -> None:
        """One segment took the place of these, and holds no more than this."""
        for old in bases:
            self._parts.pop(old, None)
        self._put(base, b"".join(ENTRY.pack(_VERSION, *aborted) for aborted in kept))

    def _put(self, base: int, entries: bytes) -> None:
        self._parts.pop(base, None)
        if entries:
            count = len(entries) // ENTRY.size
            self._parts[base] = _Part(bytearray(entries), count, crc32c(entries), 0)
            self._parts = dict(sorted(self._parts.items()))
        elif not self._read_only:
            self._disk.remove(self._file_path(base))

    def _file_path(self, base: int) -> str:
        return f"{self._path}/{segment_name(base)}{TRANSACTION_INDEX_SUFFIX}"


def covers(aborted: Iterable[AbortedTransaction], producer_id: int, offset: int) -> bool:
    """Whether a transactional record of this producer at this offset is void."""
    return any(
        entry.producer_id == producer_id and entry.first_offset <= offset <= entry.last_offset
        for entry in aborted
    )


def find_aborted(segments: Iterable[Segment]) -> Iterator[tuple[int, AbortedTransaction]]:
    """Every aborted transaction that these segments, from the first on, have records
    of, with the base offset of the segment that holds its marker."""
    open_from: dict[int, int] = {}
    for segment in segments:
        for position, header in segment.walk(0):
            if not header.is_transactional:
                continue
            if not header.is_control:
                open_from.setdefault(header.producer_id, header.base_offset)
                continue
            first = open_from.pop(header.producer_id, None)
            if first is not None and _is_abort(segment, position, header):
                stable = min(open_from.values(), default=header.next_offset)
                yield (
                    segment.base_offset,
                    AbortedTransaction(header.producer_id, first, header.last_offset, stable),
                )


def _is_abort(segment: Segment, position: int, header: BatchHeader) -> bool:
    try:
        return read_control(segment.read_batch(position, header), header).kind is ControlKind.ABORT
    except CorruptBatch as error:
        raise segment.corrupt(position, str(error)) from error


def _last_in(entries: bytearray | memoryview) -> Callable[[int], int]:
    def last_offset(number: int) -> int:
        return int(ENTRY.unpack_from(entries, number * ENTRY.size)[3])

    return last_offset
