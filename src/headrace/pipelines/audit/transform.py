"""The audit as functions of DataFrames: what should be there against what is.

    topic:  offsets of each partition that the topic still has, below the seam
    lake:   rows of the archive's raw table, with the batch that brought them

`missing` is in the topic and not in the lake, `duplicates` is in the lake more than
once, `holes` are offsets that the lake skips: of those that the topic no longer has
nobody can say whether they were ever records (aborted and compacted ones are not).

Contents are compared by checksums: for each partition and hour the sum of a hash over each
record's offset, key, value, timestamp and headers, over the records that both sides have. A
sum does not depend on the order of rows, and unlike xor does not forget pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_YEAR_10000_US = 253_402_300_800_000_000
_HOUR_US = 3_600_000_000
# Quantiles are right to one part of so many; exact ones would have each delay of an hour in
# memory.
_RANK_PARTS = 10_000
PLACE = ("topic", "partition")


def arrived(lake: DataFrame) -> DataFrame:
    """For each partition: rows, how often an offset came again, first and last."""
    by_offset = lake.groupBy(*PLACE, "offset").agg(F.count("*").alias("times"))
    return by_offset.groupBy(*PLACE).agg(
        F.sum("times").alias("rows"),
        F.sum(F.col("times") - 1).alias("duplicates"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        (F.max("offset") - F.min("offset") + 1 - F.count("*")).alias("holes"),
    )


def missing(topic: DataFrame, lake: DataFrame) -> DataFrame:
    """Records of the topic that the lake does not have."""
    there = lake.select(*PLACE, "offset").distinct()
    return topic.select(*PLACE, "offset", "timestamp").join(there, [*PLACE, "offset"], "left_anti")


def published(topic: DataFrame) -> DataFrame:
    return topic.groupBy(*PLACE).agg(
        F.count("*").alias("rows"), F.min("offset").alias("first"), F.max("offset").alias("last")
    )


def latency(lake: DataFrame, batches: DataFrame) -> DataFrame:
    """By the hour of publishing: how long until a record could be read from the
    table, which is when its batch was done."""
    # Whoever publishes may write any time; of one that no calendar has there is no hour.
    at_us = F.unix_micros("timestamp")
    dated = lake.where((at_us >= 0) & (at_us < _YEAR_10000_US))
    waited = dated.join(F.broadcast(batches.select("batch", "done_at")), "batch").select(
        F.date_trunc("hour", "timestamp").alias("hour"),
        ((F.unix_micros("done_at") - F.unix_micros("timestamp")) / 1e6).alias("seconds"),
    )
    ranks = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return (
        waited.groupBy("hour")
        .agg(
            F.count("*").alias("rows"),
            *(
                F.percentile_approx("seconds", rank, _RANK_PARTS).alias(name)
                for name, rank in ranks.items()
            ),
            F.max("seconds").alias("longest"),
        )
        .orderBy("hour")
    )


def duplicates(lake: DataFrame) -> DataFrame:
    """The records that the lake has more than once, and how often."""
    times = lake.groupBy(*PLACE, "offset").agg(F.count("*").alias("times"))
    return times.where("times > 1").orderBy(*PLACE, "offset")


def contents(topic: DataFrame, lake: DataFrame) -> DataFrame:
    """By partition and hour of publishing, as the topic says it: the records that both sides
    have, and the checksum of either side. `hour` counts from 1970."""
    hour = F.floor(F.unix_micros("timestamp") / F.lit(_HOUR_US)).cast("long")
    ours = topic.select(*PLACE, "offset", hour.alias("hour"), _fingerprint().alias("in_topic"))
    theirs = lake.select(*PLACE, "offset", _fingerprint().alias("in_lake"))
    return (
        ours.join(theirs, [*PLACE, "offset"])
        .groupBy(*PLACE, "hour")
        .agg(
            F.count("*").alias("records"),
            F.sum("in_topic").alias("in_topic"),
            F.sum("in_lake").alias("in_lake"),
        )
        .orderBy(*PLACE, "hour")
    )


def _fingerprint() -> Column:
    """A number for what a record is. Hashes skip what is null, so that it is null is said
    beside; a long's sum would overflow, a decimal's does not."""
    headers = F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>"))
    told = F.transform(
        headers, lambda each: F.struct(each["key"], each["value"].isNull(), each["value"])
    )
    return F.xxhash64(
        "offset", F.col("key").isNull(), "key", F.col("value").isNull(), "value",
        F.unix_micros("timestamp"), F.size(headers), told,
    ).cast("decimal(20,0)")  # fmt: skip
