"""Options that other sources know: taken without effect, or refused, and why.

People come with the options of Spark's own Kafka source and of Kafka's Java client. One
that changes nothing about which rows are read or written is taken, with a warning that
it has no effect. One whose effect somebody counts on is refused, with what to use
instead; among these are all that Spark's source refuses.

Rejected: taking everything that begins with `kafka.`, as Kafka's client does with a line
in its log. A misspelled isolation level would be one of them.
"""

from __future__ import annotations

from typing import Final

_FETCHES: Final = "how records are fetched is decided here"
_CONNECTIONS: Final = "connections are kept by this source itself"
_NO_GROUP: Final = (
    "no consumer group is joined, and the checkpoint keeps the progress; to show it as a group's, "
    "set 'progressGroup'"
)
_RETRIES: Final = "what can pass is tried again for 'kafka.request.timeout.ms'"
_NO_METRICS: Final = "there is no Java client that could measure itself"
_WAITS_FOR_ALL: Final = "every write waits until all replicas have it, and is sent once"
_BATCHES: Final = "rows are sent as fast as they come, in batches of 'kafka.batch.size'"
_OF_A_STREAM: Final = "a batch read takes everything at once"

_CLIENT: Final = {
    **dict.fromkeys(
        (
            "kafka.client.dns.lookup",
            "kafka.connections.max.idle.ms",
            "kafka.metadata.max.age.ms",
            "kafka.metadata.recovery.strategy",
            "kafka.metadata.recovery.rebootstrap.trigger.ms",
            "kafka.receive.buffer.bytes",
            "kafka.reconnect.backoff.ms",
            "kafka.reconnect.backoff.max.ms",
            "kafka.send.buffer.bytes",
            "kafka.socket.connection.setup.timeout.ms",
            "kafka.socket.connection.setup.timeout.max.ms",
        ),
        _CONNECTIONS,
    ),
    **dict.fromkeys(("kafka.retry.backoff.ms", "kafka.retry.backoff.max.ms"), _RETRIES),
    **dict.fromkeys(
        (
            "kafka.auto.include.jmx.reporter",
            "kafka.enable.metrics.push",
            "kafka.metric.reporters",
            "kafka.metrics.num.samples",
            "kafka.metrics.recording.level",
            "kafka.metrics.sample.window.ms",
        ),
        _NO_METRICS,
    ),
}
_NO_EFFECT_READ: Final = _CLIENT | {
    **dict.fromkeys(
        (
            "groupIdPrefix",
            "kafka.group.id",
            "kafka.group.instance.id",
            "kafka.group.protocol",
            "kafka.group.remote.assignor",
            "kafka.auto.commit.interval.ms",
            "kafka.heartbeat.interval.ms",
            "kafka.max.poll.interval.ms",
            "kafka.partition.assignment.strategy",
            "kafka.session.timeout.ms",
        ),
        _NO_GROUP,
    ),
    **dict.fromkeys(
        (
            "kafka.allow.auto.create.topics",
            "kafka.check.crcs",
            "kafka.client.rack",
            "kafka.exclude.internal.topics",
            "kafka.fetch.max.wait.ms",
            "kafka.fetch.min.bytes",
            "kafka.max.poll.records",
            "kafkaConsumer.pollTimeoutMs",
        ),
        _FETCHES,
    ),
    **dict.fromkeys(
        ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafka.default.api.timeout.ms"),
        _RETRIES,
    ),
}
_NO_EFFECT: Final = {
    "a batch read": _NO_EFFECT_READ
    | dict.fromkeys(
        ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"), _OF_A_STREAM
    ),
    "a stream read": _NO_EFFECT_READ,
    "a read": _NO_EFFECT_READ,
    "a write": _CLIENT
    | dict.fromkeys(
        (
            "kafka.acks",
            "kafka.enable.idempotence",
            "kafka.max.in.flight.requests.per.connection",
        ),
        _WAITS_FOR_ALL,
    )
    | dict.fromkeys(("kafka.retries", "kafka.delivery.timeout.ms"), _RETRIES)
    | dict.fromkeys(
        (
            "kafka.buffer.memory",
            "kafka.compression.gzip.level",
            "kafka.compression.lz4.level",
            "kafka.compression.zstd.level",
            "kafka.linger.ms",
            "kafka.max.block.ms",
            "kafka.max.request.size",
            "kafka.metadata.max.idle.ms",
            "kafka.partitioner.adaptive.partitioning.enable",
            "kafka.partitioner.availability.timeout.ms",
        ),
        _BATCHES,
    ),
}

_DESERIALIZED: Final = (
    "keys and values are given as bytes; decode them in Spark, or by 'valueFormat'"
)
_SERIALIZED: Final = "keys and values are written as the bytes that their columns have"
_PARTITIONER: Final = "a row goes where its key leads; say another place in a column 'partition'"
_INTERCEPTORS: Final = "there is no Java client that could call them"
# Also in Spark's own source, up to the interceptors of readers.
_REFUSED_READ: Final = {
    "kafka.auto.offset.reset": (
        "'startingOffsets' says where a query begins, and its checkpoint where it goes on"
    ),
    "kafka.key.deserializer": _DESERIALIZED,
    "kafka.value.deserializer": _DESERIALIZED,
    "kafka.enable.auto.commit": (
        "the checkpoint keeps the progress; to show it as a group's, set 'progressGroup'"
    ),
    "kafka.interceptor.classes": _INTERCEPTORS,
    "groupId": "the group that shows a stream's progress is set by 'progressGroup'",
}
_REFUSED: Final = {
    "a batch read": _REFUSED_READ,
    "a stream read": _REFUSED_READ,
    "a read": _REFUSED_READ,
    "a write": {
        "kafka.key.serializer": _SERIALIZED,
        "kafka.value.serializer": _SERIALIZED,
        "kafka.interceptor.classes": _INTERCEPTORS,
        "kafka.partitioner.class": _PARTITIONER,
        "kafka.partitioner.ignore.keys": _PARTITIONER,
        "kafka.transactional.id": "set 'exactlyOnce', and 'sinkId' to name the sink",
        "kafka.transaction.timeout.ms": "set 'transactionTimeout'",
    },
}
_SECURITY: Final = ("kafka.security", "kafka.sasl", "kafka.ssl")


def _lowered(tables: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {
        purpose: {name.lower(): why for name, why in table.items()}
        for purpose, table in tables.items()
    }


_NO_EFFECT_LOWER: Final = _lowered(_NO_EFFECT)
_REFUSED_LOWER: Final = _lowered(_REFUSED)


_WRITTEN: Final = {
    name.lower(): name
    for tables in (_NO_EFFECT, _REFUSED)
    for table in tables.values()
    for name in table
}


def why_no_effect(option: str, purpose: str) -> str | None:
    """Why the option changes nothing here; None when it does, or is not known."""
    lower = option.lower()
    found = _NO_EFFECT_LOWER[purpose].get(lower)
    if found is None and lower.startswith("kafka."):
        # One set of options often serves a reader and a writer.
        other = "a read" if purpose == "a write" else "a write"
        if lower in _NO_EFFECT_LOWER[other]:
            return f"it is not for {purpose}"
    return found


def why_refused(option: str, purpose: str) -> str | None:
    """What to do instead; None when the option is not refused here."""
    lower = option.lower()
    if lower.startswith(_SECURITY):
        return (
            "encryption and authentication are not there yet; leave it out and use a listener "
            "without them"
        )
    return _REFUSED_LOWER[purpose].get(lower)


def is_plain(option: str, value: str) -> bool:
    """Whether it asks for what is the case anyway: no encryption."""
    return option.lower() == "kafka.security.protocol" and value.strip().upper() == "PLAINTEXT"


def shown(option: str) -> str:
    """As the option is written. Spark gives a stream its options in lower case."""
    return _WRITTEN.get(option.lower(), option)


def foreign_names(purpose: str) -> list[str]:
    """Those without effect and those that are refused, in lower case."""
    return [*_NO_EFFECT_LOWER[purpose], *_REFUSED_LOWER[purpose]]
