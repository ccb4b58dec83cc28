"""Kafka's configurations of a topic, and the settings that they are here.

All of Kafka 4's names are there, with Kafka's defaults, but for the size of a segment.
What has no meaning on one node with one disk is kept as it is given:

    min.insync.replicas     1; more is refused, since there is one replica
    remote.storage.enable   false; true is refused, as by a broker without such storage
    flush.messages, .ms     whatever a topic that syncs before it answers keeps anyway;
                            refused where the topic's durability would break it
    everything else         any value that Kafka takes
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

from headrace.core.errors import InvalidArgument
from headrace.core.settings import TopicSettings
from headrace.server.kafka.configs import Kept, Kind, Mapped, Table

# What Kafka writes for "no limit", in times and sizes.
UNLIMITED = "-1"
LONG_MAX = str(2**63 - 1)
# What Kafka writes for a topic that keeps everything.
NO_POLICY = ""

_THROTTLED = re.compile(r"(\*|[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)?")


def _cleanup(value: str) -> str:
    """Kafka takes the policies in any order. No policy at all is an empty value."""
    policies = {part.strip() for part in value.split(",")}
    if not policies <= {"compact", "delete"}:
        raise InvalidArgument("it is delete, compact, both or empty")
    return "compact,delete" if policies == {"compact", "delete"} else ",".join(sorted(policies))


def _compression(value: str) -> str:
    return "uncompressed" if value == "none" else value


def _refuse_level(value: str, levels: Container[int]) -> str | None:
    return None if int(value) in levels else "there is no such level"


def _refuse_flush_messages(value: str, settings: TopicSettings) -> str | None:
    if value == LONG_MAX or settings.durability == "synced":
        return None
    return (
        f"headrace.durability is {settings.durability}, which does not count messages; synced has "
        "each of them on disk"
    )


def _refuse_flush_ms(value: str, settings: TopicSettings) -> str | None:
    if value == LONG_MAX or settings.durability == "synced":
        return None
    if settings.durability == "os":
        return "headrace.durability is os, which leaves that to the system; set interval or synced"
    if settings.sync_interval_ms > int(value):
        return f"headrace.sync_interval_ms is {settings.sync_interval_ms}; set that"
    return None


def _refuse_replicas(value: str, settings: TopicSettings) -> str | None:
    return None if value in ("1", "+1") else "a node alone has one replica of everything"


def _refuse_remote(value: str, settings: TopicSettings) -> str | None:
    return None if value.lower() == "false" else "there is no remote storage"


def _refuse_throttled(value: str, settings: TopicSettings) -> str | None:
    return None if _THROTTLED.fullmatch(value) else "it is * or a list of partition:broker"


# What topics begin with, by the names that Kafka has for it on a broker.
BROKER_NAMES: Final = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
# Kafka shows no default below these: on a broker they are unset, and other names hold, such as
# log.retention.hours.
_UNSET_ON_BROKERS = ("flush.ms", "retention.ms", "segment.jitter.ms", "segment.ms")

_LEVEL = "means nothing: the node compresses at a level of its own"
_ALONE = "means nothing on one node"
_REMOTE = "means nothing: there is no remote storage"
_FILES = "means nothing: how files are laid out is not set"

TOPIC_CONFIGS: Table[TopicSettings] = Table(
    TopicSettings(),
    (
        Mapped(
            "cleanup.policy", "cleanup", Kind.LIST,
            "delete old segments, compact by key, both or, where it is empty, neither", NO_POLICY,
            _cleanup,
        ),
        Mapped("retention.ms", "retention_ms", Kind.LONG, "how long records are kept", UNLIMITED),
        Mapped(
            "retention.bytes", "retention_bytes", Kind.LONG, "how much of a partition is kept",
            UNLIMITED,
        ),
        Mapped("segment.bytes", "segment_bytes", Kind.INT, "when a new segment begins"),
        Mapped("segment.ms", "segment_ms", Kind.LONG, "how old a segment may be written to"),
        Mapped("max.message.bytes", "record_bytes_max", Kind.INT, "the largest batch"),
        Mapped(
            "delete.retention.ms", "tombstone_ms", Kind.LONG,
            "how long compaction keeps the sign that a key was deleted",
        ),
        Mapped(
            "min.compaction.lag.ms", "compaction_lag_min_ms", Kind.LONG,
            "how long compaction leaves a record alone",
        ),
        Mapped(
            "max.compaction.lag.ms", "compaction_lag_max_ms", Kind.LONG,
            "how long a record may wait for compaction", LONG_MAX,
        ),
        Mapped(
            "min.cleanable.dirty.ratio", "dirty_ratio_min", Kind.DOUBLE,
            "compaction starts when more than this part of a log is new",
        ),
        Mapped(
            "message.timestamp.type", "timestamp_type", Kind.STRING,
            "whose time records have: CreateTime, their producer's, or LogAppendTime",
        ),
        Mapped(
            "message.timestamp.after.max.ms", "timestamp_after_max_ms", Kind.LONG,
            "how far ahead of the node's time a record may be", LONG_MAX,
        ),
        Mapped(
            "message.timestamp.before.max.ms", "timestamp_before_max_ms", Kind.LONG,
            "how far behind the node's time a record may be", LONG_MAX,
        ),
        Mapped(
            "compression.type", "compression", Kind.STRING,
            "as which codec batches are stored; producer: as they came", translate=_compression,
        ),
    ),
    (),
    {
        "durability": "when an append counts: synced, interval or os",
        "sync_interval_ms": "how often durability=interval syncs",
        "retention": "time, or acked: gone once every group is done",
        "retention_owed": "what retention does with messages that a group still owes",
        "partitioner": "where messages without a key go: sticky or round-robin",
        "ordering": "none, key or partition: what waits for what in a queue",
        "dedup": "whether headrace-dedup-id is looked at",
        "dedup_window_ms": "how long a dedup id is remembered",
        "dead_letter_expired": "whether messages that expired become dead letters",
        "trace_sample": "the part of messages whose history is kept; nothing of it when empty",
    },
    constant=("ordering",),
    kept=(
        Kept(
            "compression.gzip.level", "-1", Kind.INT, _LEVEL,
            refuse=lambda value, _: _refuse_level(value, {-1, *range(1, 10)}),
        ),
        Kept(
            "compression.lz4.level", "9", Kind.INT, _LEVEL,
            refuse=lambda value, _: _refuse_level(value, range(1, 18)),
        ),
        Kept(
            "compression.zstd.level", "3", Kind.INT, _LEVEL,
            refuse=lambda value, _: _refuse_level(value, range(-131_072, 23)),
        ),
        Kept("file.delete.delay.ms", "60000", Kind.LONG, _FILES, 0),
        Kept(
            "flush.messages", LONG_MAX, Kind.LONG,
            "after how many records to sync at the latest; headrace.durability says when it is",
            1, _refuse_flush_messages,
        ),
        Kept(
            "flush.ms", LONG_MAX, Kind.LONG,
            "after how long to sync at the latest; headrace.durability says when it is",
            0, _refuse_flush_ms,
        ),
        Kept(
            "follower.replication.throttled.replicas", "", Kind.LIST, _ALONE,
            refuse=_refuse_throttled,
        ),
        Kept("index.interval.bytes", "4096", Kind.INT, _FILES, 0),
        Kept(
            "leader.replication.throttled.replicas", "", Kind.LIST, _ALONE,
            refuse=_refuse_throttled,
        ),
        Kept("local.retention.bytes", "-2", Kind.LONG, _REMOTE, -2),
        Kept("local.retention.ms", "-2", Kind.LONG, _REMOTE, -2),
        # From 4.1 on (KIP-966) brokers of Kafka set it for all topics when they start.
        Kept(
            "min.insync.replicas", "1", Kind.INT, _ALONE, 1, _refuse_replicas, is_set_for_all=True
        ),
        Kept("preallocate", "false", Kind.BOOLEAN, _FILES),
        Kept("remote.log.copy.disable", "false", Kind.BOOLEAN, _REMOTE),
        Kept("remote.log.delete.on.disable", "false", Kind.BOOLEAN, _REMOTE),
        Kept("remote.storage.enable", "false", Kind.BOOLEAN, _REMOTE, refuse=_refuse_remote),
        Kept("segment.index.bytes", "10485760", Kind.INT, _FILES, 4),
        Kept("segment.jitter.ms", "0", Kind.LONG, _FILES, 0),
        Kept("unclean.leader.election.enable", "false", Kind.BOOLEAN, _ALONE),
    ),
    default_names={
        **BROKER_NAMES,
        **dict.fromkeys(_UNSET_ON_BROKERS),
        **dict.fromkeys(
            (
                "follower.replication.throttled.replicas",
                "leader.replication.throttled.replicas",
                "remote.log.copy.disable",
                "remote.log.delete.on.disable",
                "remote.storage.enable",
            )
        ),
    },
)  # fmt: skip
