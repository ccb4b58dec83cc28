"""The state log: a partition's companion, where outcomes are written.

    append ... append          deltas, one batch for one call
    [begin .. columns .. end]  a snapshot, from which older segments can go
    append ...

An event that somebody waits for takes effect when it is synced; until then it is
in `waiting`. A snapshot may be taken meanwhile: it holds the waiting events again,
behind its columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.engine.records import iterate_batches
from headrace.engine.state import (
    Event,
    MessageEvent,
    SnapshotEnd,
    SnapshotPartition,
    decode_event,
    encode_event,
)
from headrace.log import Log
from headrace.record import build_values_batch, read_header, read_records

if TYPE_CHECKING:
    from headrace.engine.queue import QueueView

# A snapshot is due after this much, or several times its own size.
SNAPSHOT_BYTES_MIN = 4 * 1024 * 1024
SNAPSHOT_FACTOR = 4
BATCH_BYTES = 4 * 1024 * 1024


class Waiting(NamedTuple):
    end: int
    view: QueueView
    event: MessageEvent


class StateLog:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.waiting: deque[Waiting] = deque()
        self._bytes = 0
        self._bytes_due = SNAPSHOT_BYTES_MIN
        # Start and end of the last snapshot, until it is synced.
        self._snapshot: tuple[int, int] | None = None

    def append(self, events: Sequence[Event], epoch: int, now_ms: int) -> int:
        """One batch; returns the log's end behind it."""
        batch = build_values_batch([encode_event(event) for event in events], now_ms)
        self._bytes += len(batch)
        return self.log.append(batch, epoch, now_ms)[1]

    def replay(self) -> Iterator[Event]:
        """Every event that counts, in order. What lies between a snapshot's
        begin and end comes once the end was seen."""
        snapshot: list[Event] | None = None
        for event in self._events():
            match event:
                case SnapshotPartition():
                    snapshot = [event]
                case SnapshotEnd():
                    yield from snapshot or ()
                    yield event
                    snapshot = None
                case _ if snapshot is not None:
                    snapshot.append(event)
                case _:
                    yield event

    def _events(self) -> Iterator[Event]:
        log = self.log
        for data, position in iterate_batches(log, log.start_offset, log.end_offset):
            header = read_header(data, position)
            self._bytes += header.size_bytes
            batch = data[position : position + header.size_bytes]
            for record in read_records(batch, header):
                yield decode_event(record.value or b"")

    def is_snapshot_due(self) -> bool:
        return self._bytes >= self._bytes_due and self._snapshot is None

    def write_snapshot(self, parts: Sequence[Event], epoch: int, now_ms: int) -> None:
        """Replaces everything before it, once it is synced."""
        self.log.roll(now_ms)
        start = self.log.end_offset
        self._bytes = 0
        batch: list[Event] = []
        size = 0
        for event in [*parts, *(waiting.event for waiting in self.waiting), SnapshotEnd(now_ms)]:
            batch.append(event)
            size += len(encode_event(event))
            if size >= BATCH_BYTES:
                self.append(batch, epoch, now_ms)
                batch, size = [], 0
        end = self.append(batch, epoch, now_ms) if batch else self.log.end_offset
        self._bytes_due = max(SNAPSHOT_BYTES_MIN, SNAPSHOT_FACTOR * self._bytes)
        self._bytes = 0
        self._snapshot = (start, end)

    def on_synced(self) -> None:
        """Older segments go once the snapshot that replaces them is on disk."""
        if self._snapshot is not None and self.log.synced_end >= self._snapshot[1]:
            self.log.release(self._snapshot[0])
            self._snapshot = None
