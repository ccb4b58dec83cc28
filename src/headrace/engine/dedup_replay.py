"""The dedup window of a partition, as its log has it.

Ids are read from the records themselves, when they are appended and again at open:
there is no file that could say something else than the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.limits import DEDUP_IDS_PER_PARTITION_MAX
from headrace.core.settings import TopicSettings
from headrace.engine.dedup import DedupWindow
from headrace.engine.records import iterate_batches
from headrace.log import Log
from headrace.record import Record, read_attributes, read_header, read_records


def load_window(log: Log, settings: TopicSettings, now_ms: int) -> DedupWindow | None:
    """What was published within the window; None where the topic has none."""
    if not settings.dedup:
        return None
    window = DedupWindow(settings.dedup_window_ms, DEDUP_IDS_PER_PARTITION_MAX)
    found = log.offset_for_timestamp(now_ms - settings.dedup_window_ms)
    if found is None:
        return window
    for data, position in iterate_batches(log, found[0], log.end_offset):
        header = read_header(data, position)
        if not header.is_control:
            batch = data[position : position + header.size_bytes]
            remember_ids(window, read_records(batch, header))
    return window


def remember_ids(window: DedupWindow, records: Sequence[Record]) -> None:
    for record in records:
        if record.headers:
            dedup_id = read_attributes(record.headers, record.timestamp_ms).dedup_id
            if dedup_id is not None:
                window.remember(dedup_id, record.offset, record.timestamp_ms)
