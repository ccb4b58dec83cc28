"""Stability: how far the transactions of one partition are decided.

            first open        a marker above          high
            transaction       the high watermark      watermark
    --------|-----------------|-----------------------|----------
    stable  | last stable offset

A record is stable when it lies below every transaction that is open, and below every
one whose marker is not safe yet: until then a loss of power may leave it open after
all. What is stable and was not aborted is committed, and stays so.

Rejected: an own table of transactions beside the producers' state. A transaction is
open because of what its producer wrote, and both are lost, cut and brought back
together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headrace.core.errors import CorruptBatch, CorruptLog, DiskFull
from headrace.core.ports import Buffer
from headrace.engine.producer import DecidedTransaction, ProducerState
from headrace.log import AbortedTransaction, Log
from headrace.record import BatchHeader, build_control_batch, read_control, read_header
from headrace.record.control import ControlMarker


class Stability:
    def __init__(self, log: Log, producers: ProducerState) -> None:
        self._log = log
        self.producers = producers
        # Decided by markers that are not safe yet, in the order of these.
        self._unsafe: deque[DecidedTransaction] = deque()
        # The last that somebody asked for.
        self._header: BatchHeader | None = None

    def last_stable_offset(self, high_watermark: int) -> int:
        first = self.producers.first_open_offset
        if first is None and not self._unsafe:
            return high_watermark
        stable = high_watermark if first is None else min(first, high_watermark)
        for decided in self._unsafe:
            stable = min(stable, decided.first_offset)
        # Records may be deleted under an open transaction.
        return max(stable, min(self._log.start_offset, high_watermark))

    def is_published(self, offset: int, producer_id: int) -> bool:
        """Whether the record at this offset counts for this producer: it is not
        part of an aborted transaction, nor of somebody else's that is open."""
        if offset < self._log.start_offset:
            return True
        if self.producers.first_open_offset is None and not self._log.aborted:
            return True
        header = self._header_of(offset)
        if not header.is_transactional or header.producer_id == producer_id:
            return not self._log.aborted.has_aborted(header)
        opened = self.producers.open_of(header.producer_id)
        if opened is not None and opened.first_offset <= header.base_offset:
            return False
        return not self._log.aborted.has_aborted(header)

    def _header_of(self, offset: int) -> BatchHeader:
        """Of the batch that holds it; those who ask ask for its neighbours next."""
        known = self._header
        if known is None or not known.base_offset <= offset < known.next_offset:
            self._header = known = read_header(self._log.read(offset, 1))
        return known

    def write_marker(
        self,
        marker: ControlMarker,
        epoch: int,
        on_full: Callable[[], bool],
    ) -> bytearray:
        """Append the marker, whose own offset is not looked at, in the leader's
        epoch; returns the batch with its place in it. `on_full` makes room on a full
        disk, if it can: an undecided transaction keeps everybody from reading on."""
        now_ms = marker.timestamp_ms
        batch = marker_batch(marker)
        try:
            first, _ = self._log.append(batch, epoch, now_ms)
        except DiskFull:
            if not on_full():
                raise
            first, _ = self._log.append(batch, epoch, now_ms)
        decided = decide(self._log, self.producers, marker._replace(offset=first), now_ms)
        if decided is not None:
            self._unsafe.append(decided)
        return batch

    def on_high_watermark(self, high_watermark: int) -> None:
        while self._unsafe and self._unsafe[0].marker_offset < high_watermark:
            self._unsafe.popleft()

    def truncate_to(self, end: int, producers: ProducerState) -> None:
        """The log was cut, and this is what is known of the producers now."""
        self.producers = producers
        self._header = None
        self._unsafe = deque(each for each in self._unsafe if each.marker_offset < end)


def marker_batch(marker: ControlMarker) -> bytearray:
    """The batch of a marker, which has no place yet."""
    return build_control_batch(
        marker.kind,
        base_offset=0,
        leader_epoch=0,
        timestamp_ms=marker.timestamp_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
    )


def decide(
    log: Log, producers: ProducerState, marker: ControlMarker, now_ms: int
) -> DecidedTransaction | None:
    """What a marker in the log means for its producer and for the aborted index."""
    decided = producers.on_marker(marker, now_ms)
    if decided is not None and decided.is_aborted:
        segments = log.segment_list
        aborted = AbortedTransaction(
            decided.producer_id,
            decided.first_offset,
            decided.marker_offset,
            decided.last_stable_offset,
        )
        log.aborted.note(aborted, segments.bases[segments.number_of(marker.offset)])
    return decided


def replay_batch(log: Log, producers: ProducerState, batch: Buffer, header: BatchHeader) -> None:
    """The same from a batch that is read back."""
    if not header.is_control:
        producers.on_append(header, header.base_offset, header.max_timestamp_ms)
        return
    try:
        marker = read_control(batch, header)
    except CorruptBatch as error:
        raise CorruptLog(
            f"{log.path}: the marker at offset {header.base_offset} cannot be read ({error})"
        ) from error
    decide(log, producers, marker, header.max_timestamp_ms)
