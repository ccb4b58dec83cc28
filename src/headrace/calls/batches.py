"""Record batches that a client made: appended as they are, after checks.

The checksum and the header are looked at, and the records gone over; where queues read the
topic, they are held to the limits of messages (`engine/contents.py`). What was compressed
stays compressed, unless the topic wants another codec (`engine/conversion.py`). Batches of
transactions are refused: who decides them has to be told of them first, which Kafka's
protocol does.

A producer that numbers its batches sends one again when it has no answer: what is
there already is known by its number and not stored twice. Several batches are one
call with one wait for the disk, and each has an answer of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from headrace.calls.served import Served
from headrace.core import limits
from headrace.core.errors import (
    CorruptBatch,
    DiskFull,
    HeadraceError,
    InvalidArgument,
    RecordTooLarge,
)
from headrace.core.values import PlacedBatch, Published
from headrace.engine.commit import Commit
from headrace.engine.contents import Checks, Found, Heavy, Light, known_of, look_into
from headrace.engine.conversion import (
    Spot,
    Unconverted,
    check_times,
    convert,
    is_as_it_came,
    is_to_open,
)
from headrace.engine.foreign import append_foreign
from headrace.engine.publish import check_open
from headrace.log.checkpoint import FULL
from headrace.record import BatchHeader, check_batch, read_header
from headrace.record.batch import HEADER_BYTES
from headrace.record.checking import HEADER_OVERHEAD, RECORD_OVERHEAD

# What was found in a batch, or why it is refused.
Outcome = Found | HeadraceError

# A record that may be published alone may be so in a batch of its own.
_BATCH_OVERHEAD = HEADER_BYTES + RECORD_OVERHEAD + HEADER_OVERHEAD * limits.HEADERS_MAX


class _Converting(Unconverted):
    """Into the bytes of the batch itself."""

    def look(self) -> Found:
        found = super().look()
        assert self.converted is not None and isinstance(self._batch, bytearray)
        if self.converted is not self._batch:
            self._batch[:] = self.converted
        return found


class BatchCalls(Served):
    def new_producer_id(self) -> int:
        """A number that no producer ever had."""
        with self._writing() as (now_ms, _):
            return self._broker.new_producer_id(now_ms)

    def publish_batch(
        self, topic: str, partition: int, batch: bytearray, known: Outcome | None = None
    ) -> Published:
        """The place of the batch's first record. The bytes are ours from now on:
        they are given their offsets in place. `known` is what is in it, or why it is
        refused, where somebody has looked."""

        def append(now_ms: int, commit: Commit) -> Published:
            return self._append(PlacedBatch(topic, partition, batch), known, now_ms, commit)

        published = self._write(append)
        self._notify_published()
        return published

    def publish_batches(
        self, batches: Sequence[PlacedBatch], known: Sequence[Outcome | None] = ()
    ) -> list[Published | HeadraceError]:
        """As `publish_batch`, for several: for each its place, or why it was refused."""

        def append(now_ms: int, commit: Commit) -> list[Published | HeadraceError]:
            outcomes: list[Published | HeadraceError] = []
            for placed, outcome in zip_longest(batches, known):
                try:
                    outcomes.append(self._append(placed, outcome, now_ms, commit))
                except HeadraceError as error:
                    outcomes.append(error.without_frames())
                except OSError as error:
                    if error.errno not in FULL:
                        raise
                    outcomes.append(DiskFull(f"the disk is full ({error.strerror})"))
            self._maintain(now_ms)
            return outcomes

        outcomes = self._write(append, waits=any(self._is_synced(each.topic) for each in batches))
        self._notify_published()
        return outcomes

    def look_into_batches(self, batches: Sequence[PlacedBatch]) -> list[Outcome | Heavy | None]:
        """What is in batches that are about to be published, or why they will be refused;
        None where the rest of the checks will say why."""
        light, spot = Light(), Spot()
        with self._reading() as now_ms:
            return [self._look_into(each, light, spot, now_ms) for each in batches]

    def _look_into(
        self, placed: PlacedBatch, light: Light, spot: Spot, now_ms: int
    ) -> Outcome | Heavy | None:
        topic, index, batch = placed
        found = self._broker.topics.catalog.topics.get(topic)
        if found is None or not 0 <= index < found.partitions:
            return None
        partition = self._broker.topics.partition(found, index)
        try:
            contents = look_into(batch, partition.scanner, partition.dedup, light, self._checks())
            if not is_as_it_came(found.settings) and not isinstance(contents, Heavy):
                header = read_header(batch)
                if is_to_open(found.settings, header) and not spot.takes(
                    batch, header, found.settings.compression
                ):
                    return _Converting(batch, header, found.settings, now_ms, contents)
        except HeadraceError as error:
            return error.without_frames()
        return contents

    def _checks(self) -> Checks:
        return Checks(self._broker.topics.check_records)

    def _append(
        self, placed: PlacedBatch, known: Outcome | None, now_ms: int, commit: Commit
    ) -> Published:
        topic, partition, batch = placed
        found = self._topic_to_write(topic, now_ms)
        place = self._broker.topics.partition(found, partition)
        check_open(found)
        if not batch:
            raise CorruptBatch("there is no record batch; send one of Kafka's format")
        header = check_batch(memoryview(batch))
        _check_header(header, len(batch))
        bytes_max = found.settings.record_bytes_max
        if header.size_bytes > bytes_max + _BATCH_OVERHEAD:
            raise RecordTooLarge(
                f"the batch has {header.size_bytes} bytes and this topic takes {bytes_max}; "
                "send smaller batches"
            )
        if isinstance(known, HeadraceError):
            raise known
        checks = self._checks()
        contents = known_of(known or (), place.scanner, place.dedup, checks) or look_into(
            batch, place.scanner, place.dedup, Light(), checks
        )
        if isinstance(contents, Heavy):
            # Whoever does not want to wait for it has looked before.
            contents = contents.look()
        # Its latest time is that of its records by now.
        header = read_header(batch)
        check_times(found.settings, header, now_ms)
        if not is_as_it_came(found.settings) and is_to_open(found.settings, header):
            # Whoever does not want to wait for this has done it before, too.
            batch[:] = convert(batch, header, found.settings, now_ms)
            header = read_header(batch)
        self._broker.check_space(header.size_bytes)
        taken = append_foreign(place, batch, header, contents, now_ms)
        appended = taken.appended
        commit.data.append((place, appended.next_offset))
        if taken.records:
            commit.published.append((place, taken.records, taken.size_bytes))
        return Published(partition, appended.first_offset, appended.duplicate)


def _check_header(header: BatchHeader, size: int) -> None:
    """What a producer may not send, though it is a batch."""
    if header.size_bytes != size:
        raise InvalidArgument("there is something behind the batch; send one batch at a time")
    if header.is_control:
        raise InvalidArgument("control batches are the node's own to write")
    if header.is_transactional:
        raise InvalidArgument("batches of transactions are published over Kafka's protocol")
    if not header.count or not header.is_dense:
        raise InvalidArgument(
            f"the batch has {header.count} records for {header.last_offset_delta + 1} offsets"
        )
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidArgument("a producer with an id numbers its records")
    if header.has_log_append_time or header.has_delete_horizon:
        raise InvalidArgument("the time of appending is not a producer's to set")
