"""A replay as functions of DataFrames: which records, and what becomes of them.

Conditions and expressions are SQL on a record's columns, and on `text`, which is the
value as text. Each record that is written again says in a header where it came from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipelines.replay.plan import Ranges

ORIGIN_HEADER = "headrace-replayed-from"


def within(records: DataFrame, ranges: Ranges) -> DataFrame:
    """The records of these ranges of offsets."""
    wanted = F.lit(False)
    for (topic, partition), (start, end) in sorted(ranges.items()):
        wanted |= (
            (F.col("topic") == topic)
            & (F.col("partition") == partition)
            & (F.col("offset") >= start)
            & (F.col("offset") < end)
        )
    return records.where(wanted)


def spans(records: DataFrame) -> Ranges:
    """For each partition the offsets from its first to behind its last record."""
    found = records.groupBy("topic", "partition").agg(
        F.min("offset").alias("start"), (F.max("offset") + 1).alias("end")
    )
    return {(row.topic, row.partition): (row.start, row.end) for row in found.collect()}


def between(records: DataFrame, start_ms: int | None, end_ms: int | None) -> DataFrame:
    """The records that were published from `start` on and before `end`."""
    if start_ms is not None:
        records = records.where(F.unix_millis("timestamp") >= start_ms)
    if end_ms is not None:
        records = records.where(F.unix_millis("timestamp") < end_ms)
    return records


def replayed(records: DataFrame, *, where: str, key: str, value: str) -> DataFrame:
    """What is written again, in the order of partitions and offsets; empty texts
    choose everything and change nothing."""
    seen = records.withColumn("text", F.try_validate_utf8(F.col("value").cast("string")))
    if where:
        seen = seen.where(F.expr(where))
    origin = F.encode(F.concat_ws(":", "topic", "partition", "offset"), "UTF-8")
    mark = F.array(F.struct(F.lit(ORIGIN_HEADER).alias("key"), origin.alias("value")))
    none = F.array().cast("array<struct<key:string,value:binary>>")
    return seen.orderBy("topic", "partition", "offset").select(
        (F.expr(key).cast("binary") if key else F.col("key")).alias("key"),
        (F.expr(value).cast("binary") if value else F.col("value")).alias("value"),
        F.concat(F.coalesce("headers", none), mark).alias("headers"),
    )
