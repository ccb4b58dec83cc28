"""Kafka's configurations of a topic, and the settings that they are here."""

from __future__ import annotations

from headrace.core.settings import TopicSettings
from headrace.server.kafka.configs import Fixed, Kind, Mapped, Table, always

# What Kafka writes for "no limit", in times and sizes.
UNLIMITED = "-1"
LONG_MAX = str(2**63 - 1)


def _flush_messages(settings: TopicSettings) -> str:
    return "1" if settings.durability == "synced" else LONG_MAX


def _flush_ms(settings: TopicSettings) -> str:
    return str(settings.sync_interval_ms) if settings.durability == "interval" else LONG_MAX


_DURABILITY = "headrace.durability says when an append is on disk"
_ALONE = "a node alone has one replica of everything"
_CREATE_TIME = "records keep the time that their producer gave them"

TOPIC_CONFIGS: Table[TopicSettings] = Table(
    TopicSettings(),
    (
        Mapped("cleanup.policy", "cleanup", Kind.LIST, "delete old segments, or compact by key"),
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
    ),
    (
        Fixed("compression.type", always("producer"), Kind.STRING, "batches stay as they came"),
        Fixed("flush.messages", _flush_messages, Kind.LONG, _DURABILITY),
        Fixed("flush.ms", _flush_ms, Kind.LONG, _DURABILITY),
        Fixed("index.interval.bytes", always("4096"), Kind.INT, "it is a constant"),
        Fixed("message.timestamp.type", always("CreateTime"), Kind.STRING, _CREATE_TIME),
        Fixed("message.timestamp.after.max.ms", always(LONG_MAX), Kind.LONG, _CREATE_TIME),
        Fixed("message.timestamp.before.max.ms", always(LONG_MAX), Kind.LONG, _CREATE_TIME),
        Fixed("min.compaction.lag.ms", always("0"), Kind.LONG, "it is a constant"),
        Fixed("min.insync.replicas", always("1"), Kind.INT, _ALONE),
        Fixed("preallocate", always("false"), Kind.BOOLEAN, "space is reserved as it is needed"),
        Fixed("remote.storage.enable", always("false"), Kind.BOOLEAN, "there is none"),
        Fixed("segment.jitter.ms", always("0"), Kind.LONG, "it is a constant"),
        Fixed("unclean.leader.election.enable", always("false"), Kind.BOOLEAN, _ALONE),
    ),
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
)  # fmt: skip
