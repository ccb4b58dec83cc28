"""The dedup window of a partition, as its log has it.

Ids are read from the records themselves, when they are appended and again at open:
there is no file that could say something else than the log. What a transaction wrote
counts for others once it is committed, so that an id whose record was aborted can be
published again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from headrace.core.limits import DEDUP_IDS_PER_PARTITION_MAX
from headrace.core.ports import Buffer
from headrace.core.settings import TopicSettings
from headrace.engine.contents import Contents
from headrace.engine.dedup import DedupWindow
from headrace.engine.records import iterate_batches
from headrace.engine.stability import Stability
from headrace.log import Log
from headrace.record import (
    BatchHeader,
    Record,
    read_attributes,
    read_header,
    read_parts,
    split_batches,
)


def load_window(log: Log, settings: TopicSettings, now_ms: int) -> DedupWindow | None:
    """What was published within the window; None where the topic has none. What has a time
    that is still to come, by a clock that was ahead, counts from now on."""
    if not settings.dedup:
        return None
    window = DedupWindow(settings.dedup_window_ms, DEDUP_IDS_PER_PARTITION_MAX)
    found = log.offset_for_timestamp(now_ms - settings.dedup_window_ms)
    if found is None:
        return window
    for data, position in iterate_batches(log, found[0], log.end_offset):
        header = read_header(data, position)
        if not header.is_control and not log.aborted.has_aborted(header):
            batch = data[position : position + header.size_bytes]
            for dedup_id, record in _ids_in(batch, header):
                window.remember(dedup_id, record.offset, min(record.timestamp_ms, now_ms))
    return window


def check_readable(batches: Buffer) -> None:
    """CorruptBatch when the records of one cannot be read: it must be refused before
    it is stored, since afterwards nobody could tell its ids."""
    view = memoryview(batches)
    for position, header in split_batches(batches):
        for _ in read_parts(view[position : position + header.size_bytes], header):
            pass


def remember_ids(
    window: DedupWindow,
    stability: Stability,
    batch: Buffer,
    header: BatchHeader,
    contents: Contents | None = None,
) -> None:
    """A batch was appended; `contents` are known where somebody has looked."""
    if contents is None:
        found = [(id, each.offset, each.timestamp_ms) for id, each in _ids_in(batch, header)]
    else:
        # Whoever knows them has given the batch its time.
        base, time_ms = header.base_offset, header.first_timestamp_ms
        found = [(each.id, base + each.offset, time_ms) for each in contents.ids]
    for dedup_id, offset, timestamp_ms in found:
        find_duplicate(window, stability, dedup_id, timestamp_ms, header.producer_id)
        window.remember(dedup_id, offset, timestamp_ms)


def find_duplicate(
    window: DedupWindow, stability: Stability, dedup_id: bytes, now_ms: int, producer_id: int
) -> int | None:
    """Where this id was published within the window, as this producer sees it."""
    offset = window.find(dedup_id, now_ms)
    if offset is None or stability.is_published(offset, producer_id):
        return offset
    window.forget(dedup_id)
    return None


def _ids_in(batch: Buffer, header: BatchHeader) -> Iterator[tuple[bytes, Record]]:
    for record in chain.from_iterable(read_parts(batch, header)):
        if record.headers:
            dedup_id = read_attributes(record.headers, record.timestamp_ms).dedup_id
            if dedup_id is not None:
                yield dedup_id, record
