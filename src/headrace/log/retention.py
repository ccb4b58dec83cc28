"""Which segments have outlived their topic's limits. Decides; deletes nothing.

A segment is as old as its youngest record, by the record's own timestamp, so that
replicas agree on it and copying a log does not make it young again. Segments go
from the old end only: a log has no holes.
"""

from __future__ import annotations

from headrace.log.segment import Segment
from headrace.log.settings import LogSettings


def count_expired(
    sealed: list[Segment],
    active_bytes: int,
    settings: LogSettings,
    now_ms: int,
    keep_from: int,
) -> int:
    """How many of the sealed segments, from the oldest on, may go."""
    within = 0
    while within < len(sealed) and sealed[within].next_offset <= keep_from:
        within += 1
    count = _expired_by_time(sealed[:within], settings.retention_ms, now_ms)
    if settings.retention_bytes is not None:
        left = active_bytes + sum(segment.size_bytes for segment in sealed[count:])
        # A segment goes when what remains is still as large as was asked for.
        while count < within and left - sealed[count].size_bytes >= settings.retention_bytes:
            left -= sealed[count].size_bytes
            count += 1
    return count


def is_active_expired(active: Segment, settings: LogSettings, now_ms: int, keep_from: int) -> bool:
    """Whether all of the active segment is past its time, so that it should be
    closed and go: a quiet topic would keep its last records for ever."""
    return (
        active.size_bytes > 0
        and active.next_offset <= keep_from
        and _expired_by_time([active], settings.retention_ms, now_ms) == 1
    )


def _expired_by_time(segments: list[Segment], retention_ms: int | None, now_ms: int) -> int:
    if retention_ms is None:
        return 0
    count = 0
    for number, segment in enumerate(segments):
        timestamp_ms = segment.max_timestamp_ms
        if timestamp_ms < 0:
            # Nobody said when: it goes with the next one that has a time.
            continue
        if timestamp_ms + retention_ms >= now_ms:
            break
        count = number + 1
    return count
