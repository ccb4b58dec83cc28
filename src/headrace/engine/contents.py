"""What is in batches that clients made, found before they are appended.

Where a queue reads a topic, or duplicates are dropped, the records of a batch are held to
the limits of messages, and what has to be known of them is noted:

    bytes --> uncompressed --> within the limits? --> attributes, keys, ids --> append

Elsewhere nothing is noted, but a batch is gone over all the same (`Checks`), and refused
where it holds no records, or more than anybody here opens: a publish that was acknowledged
and that no consumer, stream, search or queue can read would be lost without a word.

A batch of kilobytes may hold a million records. One that holds little is looked into on
the spot. Another would keep everybody waiting for seconds, so it is for a thread
(`Heavy`); and what is noted of one batch has a bound, since the append, and all groups
that are shown it, go through that in one piece.

Rejected: a thread for every batch. The way there and back costs more than most have in
them, and what comes behind one has to wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from headrace.compiled import is_compiled
from headrace.core import limits
from headrace.core.errors import CorruptBatch, InvalidArgument, RecordTooLarge
from headrace.core.ports import Buffer
from headrace.core.settings import CheckedRecords
from headrace.engine.runs import Runs, pairs, runs_of
from headrace.engine.scan import Row, Scan, key_hash, rows_of
from headrace.record import BatchHeader, BatchParts, read_header, split_batches
from headrace.record.attribute_headers import DEDUP_ID, check_dedup_id
from headrace.record.attributes import block_may_have_attributes, iterate_attributes, later
from headrace.record.batch import HEADER_BYTES, correct_latest, sizes_and_codecs
from headrace.record.bounds import SMALL_BYTES, may_hold_more
from headrace.record.compression import HoldsTooMuch, decompress_beginning
from headrace.record.reader import read_block, read_raw_block
from headrace.record.record_limits import (
    KEYED,
    LIMITS,
    PART,
    UnsoundRecords,
    check_block,
    find_fault_in_plain,
    is_right,
    raise_fault,
)

if TYPE_CHECKING:
    from headrace.engine.dedup import DedupWindow
    from headrace.engine.scanner import Scanner

# What one call looks into on the spot, a few milliseconds: of compressed batches what they
# hold, and records that have to be decoded.
LIGHT_BYTES = 2 * 1024 * 1024
LIGHT_RECORDS = 2_000
# Of a compressed batch that no queue reads, and of all of them where nothing is compiled:
# most hold less.
BEGINNING_BYTES = 8 * 1024
_PLAIN_BYTES_MAX = limits.BATCH_BYTES_MAX if is_compiled() else BEGINNING_BYTES
_DEDUP_ID = DEDUP_ID.encode()


class ImpossibleId(InvalidArgument):
    """A record has an id against duplicates that its topic cannot take."""


class Checks(NamedTuple):
    """What batches are held to, whoever reads their topic."""

    # Whose records are gone over, to see that they can be read; of the others that is left
    # to their producers.
    records: CheckedRecords = "beginning"
    # Whether all of them need keys.
    keyed: bool = False


SOUND = Checks()


class Wanted(NamedTuple):
    """What a partition has to know of its records."""

    # Whether they are within the limits of messages; without it nothing is, but that
    # somebody can open them.
    limits: bool
    attributes: bool
    # Where the order is that of keys.
    keys: bool
    # Where duplicates are dropped.
    ids: bool
    checks: Checks = SOUND

    @property
    def rules(self) -> int:
        return (LIMITS if self.limits else 0) | (KEYED if self.checks.keyed else 0)


class DedupId(NamedTuple):
    id: bytes
    offset: int


class Contents(NamedTuple):
    """Of one batch. Offsets count from its first record, and times from when it is
    appended (`at`)."""

    wanted: Wanted
    rows: tuple[Row, ...] = ()
    keys: list[int] | None = None
    ids: tuple[DedupId, ...] = ()
    # Why there is no message in it, though its checksum is right.
    fault: str = ""
    # Uncompressed.
    size_bytes: int = 0
    # What was left out of it.
    absent: Runs = []  # noqa: RUF012  (never changed)

    @property
    def counts_from_append(self) -> bool:
        """Whether the time of appending has to be in it: of a delay, a life, or an id."""
        return bool(self.ids) or any(row.delay_ms or row.ttl_ms for row in self.rows)

    def at(self, time_ms: int) -> Contents:
        """Of the batch with this time (`stamp_append_time`)."""
        return self._replace(rows=tuple(_at(row, time_ms) for row in self.rows))

    def without(self, dropped: Collection[int], extent: int) -> Contents:
        """Of the batch that these records were left out of, which takes so many offsets."""
        rows: list[Row] = []
        for row in self.rows:
            kept = runs_of(each for each in range(row.start, row.end) if each not in dropped)
            rows += [row._replace(start=start, end=end) for start, end in pairs(kept)]
        keys = self.keys
        if keys is not None:
            keys = [0 if place in dropped else key for place, key in enumerate(keys[:extent])]
        return self._replace(
            rows=tuple(rows),
            keys=keys,
            ids=tuple(each for each in self.ids if each.offset not in dropped),
            absent=runs_of(sorted(place for place in dropped if place < extent)),
        )

    def scan(self, header: BatchHeader) -> Scan:
        """As `scan_batch` finds it, now that the batch has its offsets."""
        base, end = header.base_offset, header.next_offset
        if self.fault:
            keys = [0] * (end - base) if self.wanted.keys else None
            return Scan(base, end, (), [base, end], keys)
        rows = tuple(row._replace(start=row.start + base, end=row.end + base) for row in self.rows)
        transactional: tuple[tuple[int, int, int], ...] = ()
        if header.is_transactional:
            transactional = ((base, end, header.producer_id),)
        absent = [base + each for each in self.absent]
        return Scan(base, end, rows, absent, self.keys, transactional)


def _at(row: Row, time_ms: int) -> Row:
    if row.delay_ms:
        row = row._replace(deliver_at_ms=later(time_ms, row.delay_ms))
    if row.ttl_ms:
        row = row._replace(expires_at_ms=later(time_ms, row.ttl_ms))
    return row


# Of each batch of several.
Found = Sequence[Contents]


def wanted_of(scanner: Scanner | None, dedup: DedupWindow | None, checks: Checks = SOUND) -> Wanted:
    looks_for = (False, False) if scanner is None else scanner.looks_for
    return Wanted(scanner is not None or dedup is not None, *looks_for, dedup is not None, checks)


def known_of(
    contents: Found,
    scanner: Scanner | None,
    dedup: DedupWindow | None,
    checks: Checks | None = None,
) -> Found:
    """These, unless something else is wanted since they were looked for. Without `checks`
    they count whatever their batch was held to: it is accepted, and what is in it is known."""
    if not contents:
        return ()
    looked_for = contents[0].wanted
    wanted = wanted_of(scanner, dedup, looked_for.checks if checks is None else checks)
    return contents if looked_for == wanted else ()


class Heavy:
    """Batches that hold too much to be looked into on the spot. `look` may be called
    anywhere, while nobody else uses the bytes."""

    # The batch as its topic wants it, where `look` made another of it.
    converted: bytearray | memoryview | None = None

    def __init__(self, batches: Buffer, wanted: Wanted) -> None:
        self._batches = batches
        self._wanted = wanted

    def look(self) -> Found:
        """RecordTooLarge, UnsoundRecords as `look_into`."""
        if not self._wanted.limits and self._wanted.checks.records == "none":
            return _check_openable(self._batches, self._wanted)
        found = _look(self._batches, self._wanted, None)
        assert found is not None
        return found


class Light:
    """What one call may still look into on the spot."""

    # Of the class until they change: most calls look into little, and change nothing.
    bytes = LIGHT_BYTES
    records = LIGHT_RECORDS
    # How many were looked into.
    batches = 0
    # Whose headers did not say the latest time of their records, and do now.
    corrected = 0


def look_into(
    batches: Buffer,
    scanner: Scanner | None,
    dedup: DedupWindow | None,
    light: Light,
    checks: Checks = SOUND,
) -> Found | Heavy:
    """The contents of each of these dense batches; none where nothing is wanted of them
    but that they pass the checks. RecordTooLarge when a record is beyond what a message may
    be, or a batch beyond what is opened or noted; UnsoundRecords when one cannot be read, or
    lacks keys; ImpossibleId. Checksums are not checked. A header that does not say the latest
    time of its records is corrected in place, unless nobody is to look at them."""
    if scanner is not None or dedup is not None:
        wanted = wanted_of(scanner, dedup, checks)
        found = _look(batches, wanted, light)
        return Heavy(batches, wanted) if found is None else found
    if checks.records == "none":
        is_light = not _may_hold_too_much(batches, light)
    else:
        is_light = _check_records(batches, checks, light)
    return () if is_light else Heavy(batches, wanted_of(None, None, checks))


def _check_records(batches: Buffer, checks: Checks, light: Light) -> bool:
    """False when that would take long; UnsoundRecords."""
    bytes_max = limits.BATCH_BYTES_MAX if checks.records == "all" else _PLAIN_BYTES_MAX
    rules = KEYED if checks.keyed else 0
    fault, compressed, wrong = find_fault_in_plain(batches, rules, bytes_max)
    if fault:
        raise_fault(fault)
    for position, latest_ms in wrong:
        _correct(batches, latest_ms, position, light)
    return not compressed or _check_compressed(batches, compressed, checks, light)


def _check_compressed(
    batches: Buffer, compressed: list[tuple[int, int]], checks: Checks, light: Light
) -> bool:
    is_whole = checks.records == "all"
    with memoryview(batches) as view:
        for number, position in compressed:
            light.batches = number
            if light.bytes <= 0:
                return False
            header = read_header(view, position)
            bytes_max = light.bytes if is_whole else min(light.bytes, BEGINNING_BYTES)
            with view[position + HEADER_BYTES : position + header.size_bytes] as records:
                try:
                    block, is_all = decompress_beginning(header.codec, records, bytes_max)
                except HoldsTooMuch:
                    return False
                except CorruptBatch as error:
                    raise UnsoundRecords(str(error)) from error
                if not is_all and (
                    is_whole or may_hold_more(header.codec, records, limits.DECOMPRESSED_BYTES_MAX)
                ):
                    # What was uncompressed so far is spent.
                    light.bytes -= len(block)
                    return False
            rules = (KEYED if checks.keyed else 0) | (0 if is_all else PART)
            latest_ms = check_block(block, header.count, rules, header.base_timestamp_ms)
            if not is_right(header.max_timestamp_ms, latest_ms, rules):
                _correct(batches, latest_ms, position, light)
            light.bytes -= len(block)
    return True


def _correct(batches: Buffer, latest_ms: int, position: int, light: Light | None) -> None:
    assert not isinstance(batches, bytes)
    correct_latest(batches, latest_ms, position)
    if light is not None:
        light.corrected += 1


def _may_hold_too_much(batches: Buffer, light: Light) -> bool:
    """Whether one of them has to be opened to know. Almost every batch is small or plain,
    and one look at its length and its codec does."""
    if len(batches) <= SMALL_BYTES:
        return False
    with memoryview(batches) as view:
        for position, size, codec in sizes_and_codecs(view):
            if codec and size > SMALL_BYTES:
                with view[position + HEADER_BYTES : position + size] as records:
                    if may_hold_more(codec, records, limits.DECOMPRESSED_BYTES_MAX):
                        return True
            light.batches += 1
    return False


def _check_openable(batches: Buffer, wanted: Wanted) -> list[Contents]:
    """RecordTooLarge when one of them is beyond what is opened. What is no batch inside is
    its producer's, as it is where nobody looks."""
    found: list[Contents] = []
    view = memoryview(batches)
    for position, header in split_batches(batches):
        try:
            read_block(
                view[position : position + header.size_bytes], header, limits.DECOMPRESSED_BYTES_MAX
            )
        except HoldsTooMuch as error:
            raise _beyond(error) from error
        except CorruptBatch:
            pass
        found.append(Contents(wanted))
    return found


def _look(batches: Buffer, wanted: Wanted, light: Light | None) -> list[Contents] | None:
    """None when they hold more than that."""
    found: list[Contents] = []
    view = memoryview(batches)
    for position, header in split_batches(batches):
        batch = view[position : position + header.size_bytes]
        if (wanted.keys or wanted.ids) and header.count > limits.BATCH_NOTES_MAX:
            raise _too_many("records", "whose order is that of keys, or that drops duplicates")
        if light is not None and header.codec and light.bytes <= 0:
            return None
        try:
            bytes_max = limits.DECOMPRESSED_BYTES_MAX if light is None else light.bytes
            block = read_block(batch, header, bytes_max)
        except HoldsTooMuch as error:
            if light is not None:
                # What was uncompressed so far is spent.
                light.bytes = 0
                return None
            raise _beyond(error) from error
        except CorruptBatch as error:
            raise UnsoundRecords(str(error)) from error
        latest_ms = check_block(block, header.count, wanted.rules, header.base_timestamp_ms)
        if latest_ms != header.max_timestamp_ms:
            _correct(batches, latest_ms, position, light)
        decodes = _decodes(block, wanted)
        if light is not None:
            light.bytes -= len(block) if header.codec else 0
            light.records -= header.count if decodes else 0
            if light.bytes < 0 or light.records < 0:
                return None
            light.batches += 1
        found.append(
            _contents(block, header, wanted) if decodes else Contents(wanted, size_bytes=len(block))
        )
    return found


def _decodes(block: bytes, wanted: Wanted) -> bool:
    return wanted.keys or wanted.ids or (wanted.attributes and block_may_have_attributes(block))


def _contents(block: bytes, header: BatchHeader, wanted: Wanted) -> Contents:
    # As if it were appended at offset 0 and at time 0.
    header = header._replace(base_offset=0).with_append_time(0)
    ids = tuple(_ids(block, header)) if wanted.ids else ()
    rows: tuple[Row, ...] = ()
    keys = None
    try:
        if wanted.attributes:
            if not wanted.ids and _DEDUP_ID in block and any(_ids(block, header)):
                raise ImpossibleId(
                    "this topic does not drop duplicates, so headrace-dedup-id means nothing in "
                    "it; leave it out, or set dedup=true for the topic"
                )
            rows = _rows(block, header)
        if wanted.keys:
            records = chain.from_iterable(read_raw_block(block, header))
            keys = [key_hash(record.key) for record in records]
    except CorruptBatch as error:
        return Contents(wanted, ids=ids, fault=str(error), size_bytes=len(block))
    return Contents(wanted, rows, keys, ids, size_bytes=len(block))


def _rows(block: bytes, header: BatchHeader) -> tuple[Row, ...]:
    rows: list[Row] = []
    for row in rows_of(iterate_attributes(block, header)):
        rows.append(row)
        if len(rows) > limits.BATCH_NOTES_MAX:
            raise _too_many("changes of attributes", "that is read by queues")
    return tuple(rows)


def _ids(block: bytes, header: BatchHeader) -> Iterator[DedupId]:
    """ImpossibleId for one that no other door would take."""
    parts = BatchParts(b"", header, block)
    while not parts.is_over:
        for record in parts.read():
            given = [value for name, value in record.headers if name == DEDUP_ID]
            if given:
                yield DedupId(_checked_id(given), record.offset)


def _checked_id(given: Sequence[bytes | None]) -> bytes:
    """The last one counts, as everywhere."""
    try:
        return [check_dedup_id(each) for each in given][-1]
    except InvalidArgument as error:
        raise ImpossibleId(f"headrace-dedup-id: {error}") from error


def _beyond(error: HoldsTooMuch) -> RecordTooLarge:
    return RecordTooLarge(f"{error}; send smaller batches")


def _too_many(what: str, where: str) -> RecordTooLarge:
    return RecordTooLarge(
        f"in one batch a topic {where} takes {limits.BATCH_NOTES_MAX} {what} at most; send "
        "smaller batches"
    )
