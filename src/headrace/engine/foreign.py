"""Batches that clients made, appended: in the node's time where that counts, and without
what is there already.

Delays, lives and the window of ids count from when the node took a message, whatever the
clock of its client says. A batch that holds any of them gets the time of appending, which
is in the log then, so that a restart and all replicas find the same. So does every batch
where the topic wants that (`timestamp_type`).

Of a batch with duplicates the rest is appended, as compaction would leave it: every record
keeps its distance from the first, and the producer its numbers.

    sent        a   b   c   d        b has an id that was published before
    appended    a   .   c   d        offsets 7, 9 and 10; the answer says 7

What is left out at the end takes no offset: there would be no record behind which a consumer
could come to the end of the partition, and its group would seem to lag for ever. Where
nothing is left, nothing is written, unless the producer numbers its batches: an empty one
has to say then up to where it has come, or the next one would be out of order. It takes one
offset, until the next record comes.

    numbers     20  21  22  23       of what was sent
    appended    a   .   c            c has 23, and a 21: what counts is which comes next

Rejected: refusing a batch with a duplicate. Its producer could only leave it out, or send
it again and again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from headrace.core.errors import RecordTooLarge
from headrace.engine.contents import LIGHT_BYTES, Contents, DedupId, Found, known_of
from headrace.engine.partition import Appended, Partition
from headrace.engine.runs import pairs, runs_of
from headrace.record import BatchHeader, cut_batch, read_header, stamp_append_time
from headrace.record.reader import read_block
from headrace.record.skipping import skip_to

# Numbers of producers begin again behind this.
_SEQUENCE_MASK: Final = 2**31 - 1


class Taken(NamedTuple):
    appended: Appended
    # Of what was written.
    records: int
    size_bytes: int
    # What all of it has for its time; -1 where records have those of their client.
    append_time_ms: int = -1


def append_foreign(
    partition: Partition,
    batch: bytearray | memoryview,
    header: BatchHeader,
    contents: Found,
    now_ms: int,
) -> Taken:
    """One checked batch and what is in it. `duplicate` of the answer says that nothing new
    was in it; its place is that of the first record then, where that was published before."""
    known = known_of(contents, partition.scanner, partition.dedup)
    if not known or not known[0].counts_from_append:
        if partition.topic.settings.timestamp_type == "CreateTime":
            return _append(partition, batch, header, contents, now_ms)
        stamp_append_time(batch, now_ms)
        return _append_stamped(partition, batch, contents, now_ms)
    partition.check_leading()
    if partition.producers.check(header, now_ms) is not None:
        # It was sent again because its answer was lost: told by its number, not by ids.
        return _append_stamped(partition, batch, contents, now_ms)
    [found] = known
    earlier = _find_duplicates(partition, header, found.ids, now_ms)
    if earlier:
        return _append_rest(partition, batch, header, found, earlier, now_ms)
    stamp_append_time(batch, now_ms)
    return _append_stamped(partition, batch, (found.at(now_ms),), now_ms)


def _append_stamped(
    partition: Partition, batch: bytearray | memoryview, contents: Found, now_ms: int
) -> Taken:
    """A batch that has the time of appending. One that is there already keeps the time that
    it was given then."""
    header = read_header(batch)
    taken = _append(partition, batch, header, contents, now_ms)
    appended = taken.appended
    if appended.duplicate:
        now_ms = partition.producers.time_of(header.producer_id, appended.first_offset)
    return taken._replace(append_time_ms=now_ms)


def _append(
    partition: Partition,
    batch: bytearray | memoryview,
    header: BatchHeader,
    contents: Found,
    now_ms: int,
) -> Taken:
    appended = partition.append(batch, header, now_ms, contents)
    if appended.duplicate:
        return Taken(appended, 0, 0)
    return Taken(appended, header.count, header.size_bytes)


def _find_duplicates(
    partition: Partition, header: BatchHeader, ids: Iterable[DedupId], now_ms: int
) -> dict[int, int | None]:
    """The places in the batch of records that were published before, and the offsets of
    the first ones; None for what is a duplicate of another in the batch."""
    earlier: dict[int, int | None] = {}
    seen: set[bytes] = set()
    for each in ids:
        first = partition.find_duplicate(each.id, now_ms, header.producer_id)
        if first is not None or each.id in seen:
            earlier[each.offset] = first
        seen.add(each.id)
    return earlier


def _append_rest(
    partition: Partition,
    batch: bytearray | memoryview,
    header: BatchHeader,
    found: Contents,
    earlier: dict[int, int | None],
    now_ms: int,
) -> Taken:
    firsts = [first for first in earlier.values() if first is not None]
    is_empty = len(earlier) == header.count
    if is_empty and header.producer_id < 0:
        # Their first ones are safe before this is answered.
        return Taken(Appended(firsts[0], max(firsts) + 1, True), 0, 0)
    if not is_empty and found.size_bytes > LIGHT_BYTES:
        # To make it anew would hold up everybody.
        raise RecordTooLarge(
            f"some records of the batch were published before, and it holds {found.size_bytes} "
            f"bytes: of one with more than {LIGHT_BYTES} none can be left out; send smaller batches"
        )
    extent = _extent(header, earlier)
    whole = header.with_append_time(now_ms)
    rest = _cut(batch, whole, earlier, extent)
    contents = (found.without(earlier, extent).at(now_ms),)
    # What was sent is what has to come next, by its numbers.
    appended = partition.append(rest, whole, now_ms, contents)
    if is_empty:
        appended = appended._replace(first_offset=firsts[0], duplicate=True)
    return Taken(appended, header.count - len(earlier), len(rest), now_ms)


def _extent(header: BatchHeader, dropped: Collection[int]) -> int:
    """How many offsets the rest of the batch takes; one where nothing is left of it."""
    kept = (place for place in reversed(range(header.count)) if place not in dropped)
    return next(kept, 0) + 1


def _cut(
    batch: bytearray | memoryview, header: BatchHeader, dropped: Collection[int], extent: int
) -> bytearray:
    """The batch without these of its records. It is not compressed again."""
    kept = runs_of(place for place in range(header.count) if place not in dropped)
    parts: list[bytes] = []
    if kept:
        block = read_block(batch, header)
        place = 0, -1, header.count
        for start, end in pairs(kept):
            first = place = skip_to(block, *place, start, len(block))
            place = skip_to(block, *place, end, len(block))
            parts.append(block[first[0] : place[0]])
    template = header._replace(last_offset_delta=extent - 1)
    if header.base_sequence >= 0:
        # Of the producer's numbers the last ones, so that its next batch follows.
        sequence = header.base_sequence + header.count - extent
        template = template._replace(base_sequence=sequence & _SEQUENCE_MASK)
    return cut_batch(parts, header.count - len(dropped), template)
