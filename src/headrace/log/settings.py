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
    reserve: bool = True

    @classmethod
    def of(cls, topic: TopicSettings) -> LogSettings:
        return cls(
            segment_bytes=topic.segment_bytes,
            segment_ms=topic.segment_ms,
            retention_ms=topic.retention_ms,
            retention_bytes=topic.retention_bytes,
            compact=topic.cleanup == "compact",
            tombstone_ms=topic.tombstone_ms,
        )
