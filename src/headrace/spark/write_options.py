"""What a user asked a writer for, and whether the columns fit.

key, value      BINARY or STRING; value has to be there
topic           STRING, unless option 'topic' names one for all rows
partition       INT; without it the key decides, as with every Kafka client
headers         ARRAY<STRUCT<key: STRING, value: BINARY>>
timestamp       TIMESTAMP; without it, the time of writing
priority        STRING or INT, delayMs, ttlMs BIGINT, deliverAt TIMESTAMP: for queues
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


class WriteOptions(NamedTuple):
    servers: tuple[str, ...]
    topic: str | None
    exactly_once: bool
    sink_id: str | None
    batch_id: int | None
    transaction_timeout_ms: int
    codec: Codec
    batch_bytes: int
    timeout_ms: int
    client_id: str


def parse_write_options(options: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    given = canonical(options, WRITE, "a write")
    exactly_once = flag(given, "exactlyOnce", False)
    for name in ("sinkId", "batchId", "transactionTimeout"):
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
    if duration(given, "transactionTimeout", TRANSACTION_TIMEOUT_MS) <= 0:
        raise InvalidOption("option 'transactionTimeout' is 0; give a task the time it takes")
    if exactly_once and "topic" not in given:
        raise InvalidOption(
            "option 'topic' is missing: exactly-once notes its progress beside a topic; name the "
            "one that is written to, or, with a topic column, one of them"
        )
    if choice(given, "kafka.acks", ("all", "-1")) not in ("all", "-1"):
        raise InvalidOption("option 'kafka.acks': a write that nobody confirmed is lost; leave it")
    codec = choice(given, "kafka.compression.type", ("none", "gzip", "snappy", "lz4", "zstd"))
    return WriteOptions(
        servers=parse_servers(given),
        topic=given.get("topic"),
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
    """InvalidOption for a column that no record has, or of a type that does not fit."""
    known = {name.lower(): name for name in COLUMN_TYPES}
    for field in schema.fields:
        name = known.get(field.name.lower())
        if name is None:
            raise InvalidOption(
                f"there is no place for column {field.name!r} in a record; drop it, or make it "
                "part of value (as with to_json), and keep to: " + ", ".join(COLUMN_TYPES)
            )
        found = field.dataType.simpleString()
        if found not in COLUMN_TYPES[name]:
            raise InvalidOption(
                f"column {field.name!r} is {found}; cast it to {' or '.join(COLUMN_TYPES[name])}"
            )
    names = [known[field.name.lower()] for field in schema.fields]
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
