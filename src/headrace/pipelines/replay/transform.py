"""A replay as functions of DataFrames: which records, and what becomes of them.

Conditions and expressions are SQL on a record's columns, and on `text`, which is the
value as text. Each record that is written again says in a header where it came from.

    records --chosen--> all that were looked at, and beside each what it becomes
            --written--> those that are written, in the order of partitions and offsets
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipelines.replay.plan import Ranges

ORIGIN_HEADER = "headrace-replayed-from"
_HEADERS = "array<struct<key:string,value:binary>>"


class Looked(NamedTuple):
    """How many records were looked at, how many of them are written, and how long the
    keys and values of these are."""

    read: int
    written: int
    bytes: int
    # The greatest partition that one of those is of; None when there is none.
    partition: int | None


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


def chosen(
    records: DataFrame, *, where: str, key: str, value: str, keep: Collection[str]
) -> DataFrame:
    """Every record, with `is_chosen` and `again`, what it becomes; empty texts choose
    everything and change nothing. `keep` names what a record keeps of its own besides
    its value: timestamp, key, headers, partition."""
    seen = records.withColumn("text", F.try_validate_utf8(F.col("value").cast("string")))
    is_chosen = F.coalesce(F.expr(where).cast("boolean"), F.lit(False)) if where else F.lit(True)
    seen = seen.withColumn("is_chosen", is_chosen)
    origin = F.encode(F.concat_ws(":", "topic", "partition", "offset"), "UTF-8")
    mark = F.array(F.struct(F.lit(ORIGIN_HEADER).alias("key"), origin.alias("value")))
    none = F.array().cast(_HEADERS)
    own_key = F.col("key") if "key" in keep else F.lit(None)
    own_headers = F.coalesce("headers", none) if "headers" in keep else none
    columns = [
        (F.expr(key) if key else own_key).cast("binary").alias("key"),
        (F.expr(value) if value else F.col("value")).cast("binary").alias("value"),
        F.concat(own_headers, mark).alias("headers"),
    ]
    columns += [F.col(name) for name in ("timestamp", "partition") if name in keep]
    # An expression is asked of the chosen alone: `where` may be there to spare it the others.
    again = F.when(F.col("is_chosen"), F.struct(*columns))
    return seen.select("topic", "partition", "offset", "is_chosen", again.alias("again"))


def looked_at(records: DataFrame) -> Looked:
    """The numbers of what `chosen` made."""
    size = F.coalesce(F.length("again.key"), F.lit(0)) + F.coalesce(
        F.length("again.value"), F.lit(0)
    )
    row = records.agg(
        F.count("*"),
        F.count_if("is_chosen"),
        F.coalesce(F.sum(size.cast("long")), F.lit(0)),
        F.max(F.when(F.col("is_chosen"), F.col("partition"))),
    ).first()
    assert row is not None
    return Looked(*row)


def written(records: DataFrame) -> DataFrame:
    """What is written again of what `chosen` made."""
    return records.where("is_chosen").orderBy("topic", "partition", "offset").select("again.*")
