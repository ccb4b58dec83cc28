"""Configurations of groups: Kafka's names for what queue groups are told.

A group that is made on this wire begins as Kafka's do: at the end, without waiting for
transactions, with five deliveries, and what is released comes again at once. One that the
SDK made has the SDK's settings, and shows them here as set.
"""

from __future__ import annotations

from headrace.core import limits
from headrace.core.settings import GroupSettings
from headrace.server.kafka.configs import Fixed, Kind, Mapped, Table, always

# Kafka bounds what is out by partition, not by consumer.
SHARE_GROUP = GroupSettings(
    start="latest",
    isolation="read_uncommitted",
    max_attempts=5,
    backoff_ms=0,
    leases_per_consumer_max=limits.LEASES_PER_CONSUMER_MAX,
)
GROUP_CONFIGS: Table[GroupSettings] = Table(
    SHARE_GROUP,
    (
        Mapped("share.auto.offset.reset", "start", Kind.STRING, "where a new group begins"),
        Mapped(
            "share.record.lock.duration.ms", "visibility_ms", Kind.INT, "how long a lease lasts"
        ),
        Mapped(
            "share.delivery.count.limit", "max_attempts", Kind.INT,
            "how often a message is delivered before it is a dead letter",
        ),
        Mapped(
            "share.isolation.level", "isolation", Kind.STRING,
            "whether messages of a transaction wait for its end",
        ),
    ),
    (
        Fixed(
            "errors.deadletterqueue.topic.name", always(""), Kind.STRING,
            "dead letters go to the topic's own <topic>.dlq",
        ),
        Fixed(
            "errors.deadletterqueue.copy.record.enable", always("true"), Kind.BOOLEAN,
            "dead letters are whole copies",
        ),
    ),
    {
        "backoff_ms": "how long a message rests after its first failed delivery",
        "backoff_factor": "how much longer after each further one",
        "backoff_max_ms": "the longest such rest",
        "leases_per_consumer_max": "how many messages one consumer may hold",
        "starvation_ms": "after how long a waiting lane earns a message",
    },
)  # fmt: skip
