"""Records as changes of rows: which row, and what became of it. Functions of DataFrames.

    value           key of the record         change
    a row           its bytes, or columns     the row has these values now
    null            its bytes, or columns     the row is deleted (a tombstone)

and with `changes = "debezium"`, where values are change events, as they are or in the
wrapper {"schema": ..., "payload": ...} of Kafka Connect's JsonConverter:

    op c, u, r      the row is `after`
    op d            the row `before` is deleted; a tombstone may follow and changes nothing
    op t            the table was emptied

A row is named by the record's key, or by columns: of the value, and where it has none (a
tombstone, a delete without `before`), of the record's key in JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.pipelines.archive import transform
from headrace.pipelines.archive.transform import DECODE_ERROR, DECODED
from headrace.pipelines.rollup.transform import YEAR_1_SECONDS, YEAR_10000_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headrace.pipelines.avro import AvroSchema

# Columns of decoded records that are added here.
OP = transform.OP
CHANGED_AT = transform.CHANGED_AT
ROW_KEY = "row_key"
# Of changes: whether the row is gone.
DELETED = "_deleted"
RECORD_KEY = ("_key",)
_ROW_OPS = ("c", "u", "r")


class Emptied(NamedTuple):
    """A record after which nothing of before is in the table."""

    topic: str
    partition: int
    offset: int
    at_us: int


def decode_events(records: DataFrame, columns: str, avro_schema: AvroSchema | None) -> DataFrame:
    """Like `transform.decode`, for change events: also adds `change_op` and `changed_at`."""
    row = StructType.fromDDL(columns)
    event = StructType(
        [
            StructField("before", row),
            StructField("after", row),
            StructField("op", StringType()),
            StructField("ts_ms", LongType()),
        ]
    )
    wrapped = StructType([*event, StructField("payload", event)])
    found, error = transform.parsed(records, wrapped, avro_schema)
    bare = F.struct(*(found[name].alias(name) for name in event.fieldNames()))
    found = F.coalesce(found["payload"], bare)
    op = found["op"]
    error = F.coalesce(
        error,
        F.when(
            F.col("value").isNotNull() & ~F.coalesce(op.isin(*_ROW_OPS, "d", "t"), F.lit(False)),
            "value is not a change event",
        ),
        F.when(op.isin(*_ROW_OPS) & found["after"].isNull(), "change event has no row `after`"),
    )
    values = F.when(op == "d", found["before"]).when(op.isin(*_ROW_OPS), found["after"])
    return records.withColumns(
        {
            DECODED: F.when(error.isNull(), values),
            DECODE_ERROR: error,
            OP: op,
            CHANGED_AT: _time(found["ts_ms"]),
        }
    )


def _time(millis: Column) -> Column:
    """Null for what is no time of the years 1 to 9999: the change itself is still right."""
    is_time = (millis >= YEAR_1_SECONDS * 1000) & (millis < YEAR_10000_SECONDS * 1000)
    # Beyond what a timestamp holds Spark would end the query.
    return F.timestamp_millis(F.when(is_time, millis))


def with_row_keys(records: DataFrame, key_columns: Sequence[str]) -> DataFrame:
    """Adds `row_key`, a struct, to decoded records; those without one are bad."""
    is_event = OP in records.columns
    if not key_columns:
        key = F.struct(_record_key(is_event).alias(RECORD_KEY[0]))
        lacking = F.when(F.col("key").isNull(), "record has no key")
    else:
        key = _columns_key(records, key_columns)
        lacking = F.coalesce(
            *(
                F.when(key[name].isNull(), f"record has no value for the key column {name!r}")
                for name in key_columns
            )
        )
    if is_event:
        lacking = F.when(F.col(OP).isNull() | (F.col(OP) != "t"), lacking)
    return records.withColumns(
        {ROW_KEY: key, DECODE_ERROR: F.coalesce(F.col(DECODE_ERROR), lacking)}
    )


def _record_key(is_event: bool) -> Column:
    if not is_event:
        return F.col("key")
    # With or without the wrapper it is the same row.
    text = F.try_validate_utf8(F.col("key").cast("string"))
    inner = F.when(
        F.get_json_object(text, "$.schema").isNotNull(), F.get_json_object(text, "$.payload")
    )
    plain = F.coalesce(inner, F.get_json_object(text, "$"), text)
    return F.coalesce(F.encode(plain, "UTF-8"), F.col("key"))


def _columns_key(records: DataFrame, names: Sequence[str]) -> Column:
    decoded = records.schema[DECODED].dataType
    assert isinstance(decoded, StructType)
    types = StructType([StructField(name, decoded[name].dataType) for name in names])
    text = F.try_validate_utf8(F.col("key").cast("string"))
    key = F.from_json(text, StructType([*types, StructField("payload", types)]))
    return F.struct(
        *(
            F.coalesce(F.col(DECODED)[name], key["payload"][name], key[name]).alias(name)
            for name in names
        )
    )


def changes_of(records: DataFrame) -> DataFrame:
    """The changes of rows in good records: columns as in `typed`, the key's from
    `row_key`, and `_deleted`. Records that empty the table are left out."""
    deleted = F.col("value").isNull()
    good = F.col(DECODE_ERROR).isNull()
    if OP in records.columns:
        good &= ~F.coalesce(F.col(OP) == "t", F.lit(False))
        deleted |= F.coalesce(F.col(OP) == "d", F.lit(False))
    rows = records.where(good).withColumn(DELETED, deleted)
    typed = transform.typed_columns(records)
    key = records.schema[ROW_KEY].dataType
    assert isinstance(key, StructType)
    chosen = {name: F.col(ROW_KEY)[name] for name in key.names}
    return rows.select(
        *(chosen.get(name, column).alias(name) for name, column in typed.items()), DELETED
    )


def emptied(records: DataFrame) -> list[Emptied]:
    """The last record of each partition that empties the table."""
    if OP not in records.columns:
        return []
    found = records.where(F.col(DECODE_ERROR).isNull() & (F.col(OP) == "t"))
    place = F.struct("offset", F.unix_micros("timestamp").alias("at_us"))
    last = found.groupBy("topic", "partition").agg(F.max(place).alias("last")).collect()
    return [
        Emptied(row.topic, row.partition, row["last"]["offset"], row["last"]["at_us"])
        for row in last
    ]


def last_by_key(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """One row for each key: of one partition the one with the greatest offset. A key
    should be in one partition; of several, the latest by the records' timestamps."""
    place = [name for name in ("_topic", "_partition") if name not in keys]
    row = F.struct(*changes.columns)
    of_partition = changes.groupBy(*keys, *place).agg(F.max_by(row, "_offset").alias("_row"))
    order = F.struct("_row._timestamp", *(f"_row.{name}" for name in place))
    last = of_partition.groupBy(*keys).agg(F.max_by("_row", order).alias("_row"))
    return last.select("_row.*")


def survives(rows: DataFrame, cuts: Sequence[Emptied]) -> DataFrame:
    """The rows that came after the table was emptied: by their offset in the partition
    of that record, by their timestamp in the others."""
    at_us = F.unix_micros("_timestamp")
    for topic, partition, offset, cut_us in cuts:
        here = F.col("_partition") == partition
        earlier = F.when(here, F.col("_offset") < offset).otherwise(at_us < cut_us)
        rows = rows.where((F.col("_topic") != topic) | ~earlier)
    return rows
