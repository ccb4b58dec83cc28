"""The metadata log: where the catalog comes from.

Catalog changes are appended here, synced, and only then part of the picture. One
change is one batch. When the log has grown, a snapshot begins a new segment and
the older ones go; the larger a snapshot is, the more there has to be to it before the next,
so that a change of a large catalog costs no more than one of a small.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from headrace.core.errors import CorruptLog, DiskFull
from headrace.core.ports import Disk
from headrace.engine.catalog import Catalog, CatalogEvent, TopicDeleted, apply, snapshot
from headrace.engine.records import iterate_batches
from headrace.log import Log, LogSettings
from headrace.record import build_values_batch, read_header, read_records

# A log is as large as this, and as two snapshots, before there is another.
SNAPSHOT_BYTES = 1024 * 1024

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[CatalogEvent] = msgspec.msgpack.Decoder(CatalogEvent)


class Metadata:
    def __init__(self, disk: Disk, now_ms: int, *, read_only: bool) -> None:
        self.log = Log.open(
            disk, "metadata", LogSettings(retention_ms=None, reserve=False), now_ms,
            read_only=read_only,
        )  # fmt: skip
        self.catalog = Catalog()
        # The number of the last reign that began here after another node's (`leadership`).
        self.reign = 0
        # Topics whose deletion is on record: their files may still be there.
        self.deleted: set[bytes] = set()
        self._snapshot: tuple[int, int] | None = None
        self._snapshot_bytes = 0
        for data, position in iterate_batches(self.log, self.log.start_offset, self.log.end_offset):
            header = read_header(data, position)
            for record in read_records(data[position : position + header.size_bytes], header):
                event = _decode(record.value or b"")
                self.catalog = apply(self.catalog, event)
                if isinstance(event, TopicDeleted):
                    self.deleted.add(event.id)

    def append(self, events: Sequence[CatalogEvent], now_ms: int) -> Catalog:
        """Write the events; the picture they make is returned and becomes
        `catalog`. It may be acted on once the log is synced."""
        changed = self.catalog
        for event in events:
            changed = apply(changed, event)
        self._write(events, now_ms)
        self.catalog = changed
        enough = max(SNAPSHOT_BYTES, 2 * self._snapshot_bytes)
        if self._snapshot is None and self.log.size_bytes > enough:
            # The change stands: that there is no room for this must not undo it.
            with contextlib.suppress(DiskFull):
                self.log.roll(now_ms)
                start, before = self.log.end_offset, self.log.size_bytes
                self._write(snapshot(changed), now_ms)
                self._snapshot = (start, self.log.end_offset)
                self._snapshot_bytes = self.log.size_bytes - before
        return changed

    def _write(self, events: Sequence[CatalogEvent], now_ms: int) -> None:
        batch = build_values_batch([_encoder.encode(event) for event in events], now_ms)
        self.log.append(batch, self.catalog.epoch, now_ms)

    def on_synced(self) -> None:
        if self._snapshot is not None and self.log.synced_end >= self._snapshot[1]:
            with contextlib.suppress(DiskFull):
                self.log.release(self._snapshot[0])
                self._snapshot = None


def _decode(data: bytes) -> CatalogEvent:
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise CorruptLog(
            f"a metadata record cannot be read ({error}); it may come from a newer Headrace"
        ) from error
