"""A node's configuration as Kafka's clients read it: a view, never changed here.

Kafka's names are there for what its tools look at; our own settings have `headrace.`
before them. A node gets its settings from its file, environment and flags when it
starts, so every entry is read-only.
"""

from __future__ import annotations

from headrace.core.node_settings import NodeSettings
from headrace.core.settings import TopicSettings
from headrace.server.kafka.configs import PREFIX, Entry, Kind
from headrace.server.kafka.door import Call

_CHANGE = "given when the node starts"


def describe_broker(call: Call) -> list[Entry]:
    settings, topics = call.door.settings, TopicSettings()
    shown = {
        "advertised.listeners": f"PLAINTEXT://{call.door.advertised}",
        "auto.create.topics.enable": settings.auto_create_topics,
        "broker.id": call.service.node_id,
        "compression.type": "producer",
        "default.replication.factor": 1,
        "delete.topic.enable": True,
        "group.initial.rebalance.delay.ms": settings.rebalance_delay_ms,
        "listeners": f"PLAINTEXT://{call.door.address}",
        "log.cleanup.policy": topics.cleanup,
        "log.dirs": settings.data,
        "log.message.timestamp.type": "CreateTime",
        "log.retention.bytes": -1,
        "log.retention.ms": topics.retention_ms,
        "log.segment.bytes": topics.segment_bytes,
        "max.connections": settings.connections_max,
        "message.max.bytes": topics.record_bytes_max,
        "min.insync.replicas": 1,
        "node.id": call.service.node_id,
        "num.partitions": settings.partitions,
        "offsets.retention.minutes": settings.offsets_retention_ms // 60_000,
        "offsets.topic.replication.factor": 1,
        "process.roles": "broker,controller",
        "socket.request.max.bytes": settings.request_bytes_max,
        "transaction.max.timeout.ms": settings.transaction_timeout_max_ms,
        "transaction.partition.verification.enable": settings.transaction_version >= 2,
        "transactional.id.expiration.ms": settings.transactional_id_expiration_ms,
        "unclean.leader.election.enable": False,
    }
    entries = [_entry(name, value, value) for name, value in shown.items()]
    defaults = NodeSettings().to_mapping()
    for name, value in settings.to_mapping().items():
        entries.append(_entry(PREFIX + name, value, defaults[name]))
    return sorted(entries)


def _entry(name: str, value: object, default: object) -> Entry:
    kind = Kind.STRING
    if isinstance(value, bool):
        kind = Kind.BOOLEAN
    elif isinstance(value, int):
        kind = Kind.LONG
    return Entry(name, _show(value), True, value != default, _show(default), kind, _CHANGE)


def _show(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
