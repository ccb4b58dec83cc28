"""What a log needs to know of its topic's settings."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.settings import DAY_MS, TopicSettings


@dataclass(frozen=True, slots=True)
class LogSettings:
    """None means no limit. `reserve` asks the disk for space ahead of its use."""

    segment_bytes: int = 64 * 1024 * 1024
    segment_ms: int = 7 * DAY_MS
    index_interval_bytes: int = 4096
    retention_ms: int | None = 7 * DAY_MS
    retention_bytes: int | None = None
    compact: bool = False
    tombstone_ms: int = DAY_MS
    # When compaction may and must work; see `TopicSettings`.
    compaction_lag_min_ms: int = 0
    compaction_lag_max_ms: int | None = None
    dirty_ratio_min: float = 0
    reserve: bool = True

    @classmethod
    def of(cls, topic: TopicSettings) -> LogSettings:
        segment_ms = topic.segment_ms
        if topic.is_compacted and topic.compaction_lag_max_ms is not None:
            # What is written to is not compacted.
            segment_ms = min(segment_ms, topic.compaction_lag_max_ms)
        return cls(
            segment_bytes=topic.segment_bytes,
            segment_ms=segment_ms,
            retention_ms=topic.retention_ms,
            retention_bytes=topic.retention_bytes,
            compact=topic.is_compacted,
            tombstone_ms=topic.tombstone_ms,
            compaction_lag_min_ms=topic.compaction_lag_min_ms,
            compaction_lag_max_ms=topic.compaction_lag_max_ms,
            dirty_ratio_min=topic.dirty_ratio_min,
        )
