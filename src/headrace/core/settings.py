"""What can be configured, with its default and its check.

Settings are frozen values. `from_mapping` takes what people type (strings from a
command line, numbers from JSON) and refuses what it does not know by name.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from headrace.core import limits
from headrace.core.errors import InvalidArgument

Durability = Literal["synced", "interval", "os"]
Retention = Literal["time", "acked"]
Cleanup = Literal["delete", "compact", "compact,delete"]
TimestampType = Literal["CreateTime", "LogAppendTime"]
Compression = Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]
Ordering = Literal["none", "key", "partition"]
OffsetReset = Literal["earliest", "latest", "error"]
Fate = Literal["drop", "dead-letter"]
Owed = Literal["keep", "dead-letter"]
Partitioner = Literal["sticky", "round-robin"]
Isolation = Literal["read_committed", "read_uncommitted"]

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


# Kept, because a lease over HTTP may come with settings each time, and a snapshot of a catalog
# has those of all its topics.
_hints_by_model: dict[type, dict[str, Any]] = {}


def _hints(model: type) -> dict[str, Any]:
    found = _hints_by_model.get(model)
    if found is None:
        found = _hints_by_model[model] = get_type_hints(model)
    return found


@dataclass(frozen=True, slots=True)
class SettingsModel:
    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        return cls().changed(values)

    def changed(self, values: Mapping[str, Any]) -> Self:
        """A copy with these values changed; raises InvalidArgument and names
        the setting when one is unknown or wrong."""
        hints = _hints(type(self))
        known = {}
        for name, value in values.items():
            if name not in hints:
                raise InvalidArgument(
                    f"unknown setting {name!r}; known are: {', '.join(sorted(hints))}"
                )
            known[name] = _coerce(name, hints[name], value)
        return replace(self, **known)

    @classmethod
    def check_type(cls, name: str, value: Any) -> None:
        """Raise InvalidArgument when this can be no value of the setting."""
        _coerce(name, _hints(cls)[name], value)

    def to_mapping(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _hints(type(self))}


# What of batches that clients made is gone over before they are appended: all records; all
# but those of compressed batches that lie behind the first 8 KiB; or nothing.
CheckedRecords = Literal["all", "beginning", "none"]


@dataclass(frozen=True, slots=True)
class TopicSettings(SettingsModel):
    """One topic. Times are in milliseconds; None means no limit."""

    durability: Durability = "synced"
    sync_interval_ms: int = 1_000

    segment_bytes: int = 64 * 1024 * 1024
    segment_ms: int = 7 * DAY_MS
    # None: nothing goes by itself, whatever retention says.
    cleanup: Cleanup | None = "delete"
    retention: Retention = "time"
    retention_ms: int | None = 7 * DAY_MS
    retention_bytes: int | None = None
    # What time and size retention do with messages that a queue group still
    # owes (unacked, leased or delayed): keep them, or dead-letter them.
    retention_owed: Owed = "keep"
    tombstone_ms: int = DAY_MS
    # How young a record is left alone by compaction, and how old one may get before it
    # is compacted in any case; else it is when this part of the log is not compacted yet.
    compaction_lag_min_ms: int = 0
    compaction_lag_max_ms: int | None = None
    dirty_ratio_min: float = 0.5

    # Kafka's default for a batch: a mebibyte and what lies before its length.
    record_bytes_max: int = 1024 * 1024 + 12
    # Whose time a record has, its producer's or that of appending; and how far a
    # producer's may lie ahead and back.
    timestamp_type: TimestampType = "CreateTime"
    timestamp_after_max_ms: int | None = HOUR_MS
    timestamp_before_max_ms: int | None = None
    # What is compressed otherwise is compressed anew; `producer` leaves it as it came.
    compression: Compression = "producer"
    # Where messages without a key go: with their neighbours, or in turn.
    partitioner: Partitioner = "sticky"
    ordering: Ordering = "none"
    dedup: bool = False
    dedup_window_ms: int = 5 * MINUTE_MS
    dead_letter_expired: bool = False
    # The part of messages whose whole history is kept; failures are in any case. None
    # keeps no history but what the state log has.
    trace_sample: float | None = 0.01

    def __post_init__(self) -> None:
        check_between("sync_interval_ms", self.sync_interval_ms, 1, HOUR_MS)
        check_between("segment_bytes", self.segment_bytes, 1024, limits.SEGMENT_BYTES_MAX)
        check_between("segment_ms", self.segment_ms, 1, None)
        check_between("retention_ms", self.retention_ms, 0, None)
        check_between("retention_bytes", self.retention_bytes, 0, None)
        check_between("tombstone_ms", self.tombstone_ms, 0, None)
        check_between("compaction_lag_min_ms", self.compaction_lag_min_ms, 0, None)
        check_between("compaction_lag_max_ms", self.compaction_lag_max_ms, 1, None)
        if (self.compaction_lag_max_ms or self.compaction_lag_min_ms) < self.compaction_lag_min_ms:
            raise InvalidArgument(
                f"compaction_lag_min_ms ({self.compaction_lag_min_ms}) is above "
                f"compaction_lag_max_ms ({self.compaction_lag_max_ms})"
            )
        check_between("dirty_ratio_min", self.dirty_ratio_min, 0, 1)
        check_between("record_bytes_max", self.record_bytes_max, 1, limits.RECORD_BYTES_MAX)
        check_between("timestamp_after_max_ms", self.timestamp_after_max_ms, 0, None)
        check_between("timestamp_before_max_ms", self.timestamp_before_max_ms, 0, None)
        check_between("dedup_window_ms", self.dedup_window_ms, 1, 7 * DAY_MS)
        check_between("trace_sample", self.trace_sample, 0, 1)

    @property
    def is_compacted(self) -> bool:
        return self.cleanup is not None and "compact" in self.cleanup

    @property
    def is_deleted(self) -> bool:
        """Whether old records go, by time, by size or when everybody is done."""
        return self.cleanup is not None and "delete" in self.cleanup


@dataclass(frozen=True, slots=True)
class GroupSettings(SettingsModel):
    """One queue group: how its messages are leased, retried and given up."""

    # `earliest`, `latest`, or what is not older than that: by_duration:PT1H.
    start: str = "earliest"
    visibility_ms: int = 30 * SECOND_MS
    max_attempts: int = 3
    backoff_ms: int = 1 * SECOND_MS
    backoff_factor: float = 2.0
    backoff_max_ms: int = 60 * SECOND_MS
    leases_per_consumer_max: int = 1_000
    # How many messages of one partition may be out at a time; None for any number.
    leases_per_partition_max: int | None = None
    starvation_ms: int = 30 * SECOND_MS
    # Whether messages of a transaction wait for its end, and go with an abort.
    isolation: Isolation = "read_committed"

    def __post_init__(self) -> None:
        check_start("start", self.start)
        check_between("visibility_ms", self.visibility_ms, 1, limits.VISIBILITY_MS_MAX)
        check_between("max_attempts", self.max_attempts, 1, limits.ATTEMPTS_MAX)
        check_between("backoff_ms", self.backoff_ms, 0, None)
        check_between("backoff_factor", self.backoff_factor, 1, 100)
        check_between("backoff_max_ms", self.backoff_max_ms, 0, None)
        leases_max = limits.LEASES_PER_CONSUMER_MAX
        check_between("leases_per_consumer_max", self.leases_per_consumer_max, 1, leases_max)
        check_between("leases_per_partition_max", self.leases_per_partition_max, 1, None)
        check_between("starvation_ms", self.starvation_ms, 1, None)

    def backoff_after_ms(self, attempt: int) -> int:
        """How long a message rests after its `attempt`-th failed delivery."""
        growth = self.backoff_factor ** min(attempt - 1, 64)
        return min(self.backoff_max_ms, int(self.backoff_ms * growth))


_BY_DURATION = re.compile(
    r"by_duration:P(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,9})(?:\.(?P<fraction>\d{1,9}))?S)?)?",
    re.ASCII,
)


def check_start(name: str, start: str) -> None:
    """Where a group begins: `earliest`, `latest` or as in `by_duration:PT1H`."""
    if start not in ("earliest", "latest"):
        try:
            start_age_ms(start)
        except InvalidArgument as error:
            raise InvalidArgument(f"{name}: {error}" if name != "start" else str(error)) from error


def start_age_ms(start: str) -> int:
    """How old a message may be where a group begins, of `by_duration:` and a duration of
    ISO 8601 in days, hours, minutes and seconds."""
    found = _BY_DURATION.fullmatch(start)
    if found is None or start.endswith(("P", "T")):
        raise InvalidArgument(
            f"start must be earliest, latest or as in by_duration:PT1H30M, not {start!r}"
        )
    units = (("days", DAY_MS), ("hours", HOUR_MS), ("minutes", MINUTE_MS), ("seconds", SECOND_MS))
    whole_ms = sum(int(found[name] or 0) * unit_ms for name, unit_ms in units)
    return whole_ms + int((found["fraction"] or "0").ljust(3, "0")[:3])


def check_between(name: str, value: float | None, low: float, high: float | None) -> None:
    if value is None:
        return
    # What is no number is within no bounds.
    if not value >= low or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"between {low} and {high}"
        raise InvalidArgument(f"{name} must be {bounds}, not {value}")


def _coerce(name: str, hint: Any, value: Any) -> Any:
    if get_origin(hint) in (types.UnionType, typing.Union):
        if value is None or (isinstance(value, str) and value.lower() in ("none", "")):
            return None
        hint = next(arg for arg in get_args(hint) if arg is not type(None))
    if get_origin(hint) is Literal:
        if value in get_args(hint):
            return value
        raise InvalidArgument(f"{name} must be one of {', '.join(get_args(hint))}, not {value!r}")
    if get_origin(hint) is dict:
        return _coerce_table(name, value)
    if get_origin(hint) is tuple:
        return _coerce_list(name, get_args(hint)[0], value)
    if hint is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
    elif hint is str and isinstance(value, str):
        return value
    elif hint in (int, float) and not isinstance(value, bool):
        try:
            if isinstance(value, str) or (hint is float and isinstance(value, int)):
                return hint(value)
        except ValueError:
            pass
        if isinstance(value, hint):
            return value
    raise InvalidArgument(f"{name} must be of type {hint.__name__}, not {value!r}")


def _coerce_table(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{name} must be a table of names and values, not {value!r}")
    return {
        str(key): str(each).lower() if isinstance(each, bool) else str(each)
        for key, each in value.items()
    }


def _coerce_list(name: str, kind: type[str] | type[int], value: Any) -> tuple[Any, ...]:
    what = "texts" if kind is str else "whole numbers"
    wrong = InvalidArgument(f"{name} must be a list of {what}, not {value!r}")
    if isinstance(value, str):
        try:
            return tuple(kind(part.strip()) for part in value.split(",") if part.strip())
        except ValueError:
            raise wrong from None
    if isinstance(value, list | tuple) and all(type(each) is kind for each in value):
        return tuple(value)
    raise wrong
