"""What a user asked a writer for, and whether the columns fit.

key, value      BINARY or STRING; value has to be there
topic           STRING; option 'topic', where it is set, counts instead
partition       INT; without it the key decides, as with every Kafka client
headers         ARRAY<STRUCT<key: STRING, value: BINARY>>
timestamp       TIMESTAMP; without it, the time of writing
priority        STRING or INT, delayMs, ttlMs BIGINT, deliverAt TIMESTAMP: for queues

As in Spark's own sink, other columns are left out. One whose name differs from one of
these by a letter is a mistake, unless that one is there too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql.types import StructType

from headrace.client.kafka.cluster import TIMEOUT_MS
from headrace.client.kafka.producing import TRANSACTION_TIMEOUT_MS
from headrace.core.errors import InvalidOption
from headrace.record import Codec
from headrace.spark.option_table import WRITE, canonical
from headrace.spark.option_values import choice, duration, flag, number
from headrace.spark.options import parse_servers
from headrace.spark.warnings_once import warn_once

# A Kafka broker takes batches of at most a little more than this unless told otherwise.
BATCH_BYTES: Final = 1_000_000
_BATCH_BYTES_MAX: Final = 64 * 1024 * 1024

# It becomes part of a group's and of a transactional id's name.
_SINK_ID_CHARACTERS_MAX: Final = 200

_HEADERS: Final = "array<struct<key:string,value:binary>>"
COLUMN_TYPES: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": (_HEADERS,),
    "timestamp": ("timestamp",),
    "priority": ("string", "int"),
    "delayMs": ("bigint", "int"),
    "ttlMs": ("bigint", "int"),
    "deliverAt": ("timestamp",),
}

# What a DataFrame that was read from a topic brings along.
_OF_THE_SOURCE: Final = frozenset(("offset", "timestampType", "decoded", "decodeError"))


class WriteOptions(NamedTuple):
    servers: tuple[str, ...]
    # Where all rows go. None: the column `topic` says where each goes.
    topic: str | None
    # Beside which topic exactly-once notes its progress.
    marker_topic: str | None
    exactly_once: bool
    sink_id: str | None
    batch_id: int | None
    transaction_timeout_ms: int
    codec: Codec
    batch_bytes: int
    timeout_ms: int
    client_id: str


def parse_write_options(
    options: Mapping[str, str], *, is_stream: bool, is_quiet: bool = False
) -> WriteOptions:
    """InvalidOption for what makes no sense; a warning for what has no effect, unless
    `is_quiet`."""
    given = canonical(options, WRITE, "a write", is_quiet=is_quiet)
    exactly_once = flag(given, "exactlyOnce", False)
    for name in ("sinkId", "batchId", "markerTopic", "transactionTimeout"):
        if name in given and not exactly_once:
            raise InvalidOption(
                f"option {name!r} is of use with exactly-once only; set 'exactlyOnce' to true, or "
                "leave it out"
            )
    if "batchId" in given and is_stream:
        raise InvalidOption("option 'batchId' is given by Spark in a stream; leave it out")
    if "batchId" in given and "sinkId" not in given:
        raise InvalidOption("option 'batchId' counts the batches of a sink; name that by 'sinkId'")
    if not 0 < len(given.get("sinkId", "x")) <= _SINK_ID_CHARACTERS_MAX:
        raise InvalidOption(
            f"option 'sinkId' has {len(given['sinkId'])} characters; give it 1 to "
            f"{_SINK_ID_CHARACTERS_MAX}, the same ones in every run"
        )
    if "sinkId" in given and "batchId" not in given and not is_stream:
        raise InvalidOption(
            "option 'batchId' is missing: a batch of sink "
            f"{given['sinkId']!r} that was written is not written again, so each needs a number "
            "of its own; set it, or leave 'sinkId' out and the write is a sink of its own"
        )
    if duration(given, "transactionTimeout", TRANSACTION_TIMEOUT_MS) <= 0:
        raise InvalidOption("option 'transactionTimeout' is 0; give a task the time it takes")
    topic = given.get("topic", "").strip() or None
    if "topic" in given and topic is None:
        raise InvalidOption("option 'topic' is empty; name the topic that is written to")
    marker_topic = given.get("markerTopic", "").strip() or topic
    if exactly_once and marker_topic is None:
        raise InvalidOption(
            "exactly-once notes its progress beside a topic: set option 'topic' to the one that "
            "all rows go to or, with a column 'topic', 'markerTopic' to one of those that it names"
        )
    # As in Spark's own sink, headers are written where there is such a column.
    flag(given, "includeHeaders", False)
    codec = choice(given, "kafka.compression.type", ("none", "gzip", "snappy", "lz4", "zstd"))
    return WriteOptions(
        servers=parse_servers(given),
        topic=topic,
        marker_topic=marker_topic,
        exactly_once=exactly_once,
        sink_id=given.get("sinkId"),
        batch_id=number(given, "batchId", 0),
        transaction_timeout_ms=duration(given, "transactionTimeout", TRANSACTION_TIMEOUT_MS),
        codec=Codec[codec.upper()],
        batch_bytes=number(given, "kafka.batch.size", 1_000, _BATCH_BYTES_MAX) or BATCH_BYTES,
        timeout_ms=number(given, "kafka.request.timeout.ms", 1, 2**31 - 1) or TIMEOUT_MS,
        client_id=given.get("kafka.client.id", "headrace-spark"),
    )


def check_columns(options: WriteOptions, schema: StructType) -> None:
    """InvalidOption for a column of a type that does not fit, or that seems misspelled; a
    warning for those that are left out."""
    known = {name.lower(): name for name in COLUMN_TYPES}
    _check_others(schema, known)
    fields = [field for field in schema.fields if field.name.lower() in known]
    for field in fields:
        name = known[field.name.lower()]
        found = field.dataType.simpleString()
        if found not in COLUMN_TYPES[name]:
            raise InvalidOption(
                f"column {field.name!r} is {found}; cast it to {' or '.join(COLUMN_TYPES[name])}"
            )
    names = [known[field.name.lower()] for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise InvalidOption(f"there are two columns {name!r}, whatever their case; drop one")
    there = set(names)
    if "value" not in there:
        raise InvalidOption("there is no column 'value'; name one so, or null for tombstones")
    if "topic" not in there and options.topic is None:
        raise InvalidOption(
            "no topic to write to: set option 'topic', or add a column 'topic' to the rows"
        )
    if {"delayMs", "deliverAt"} <= there:
        raise InvalidOption("columns 'delayMs' and 'deliverAt' contradict each other; keep one")


def _check_others(schema: StructType, known: dict[str, str]) -> None:
    """Those that no record has a place for."""
    names = [field.name for field in schema.fields]
    there = {name.lower() for name in names}
    others = [name for name in names if name.lower() not in known]
    for name in others:
        for near in known.keys() - there:
            if is_slip(name.lower(), near):
                raise InvalidOption(
                    f"there is no place for column {name!r} in a record; did you mean "
                    f"{known[near]!r}? Rename it, or drop it"
                )
    told = sorted(set(others) - _OF_THE_SOURCE)
    if told:
        warn_once(
            f"there is no place for columns {', '.join(told)} in a record, so they are not "
            "written; drop them, or make them part of value (as with to_json)"
        )


def is_slip(name: str, other: str) -> bool:
    """Whether one letter was added, left out, replaced, or swapped with its neighbour."""
    if name == other or abs(len(name) - len(other)) > 1:
        return False
    start = next(
        (n for n, pair in enumerate(zip(name, other, strict=False)) if pair[0] != pair[1]), None
    )
    if start is None:
        return True
    a, b = name[start:], other[start:]
    return a[1:] == b or b[1:] == a or a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
