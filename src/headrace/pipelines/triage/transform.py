"""Triage as functions of DataFrames: dead letters in, groups and a trend out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from headrace.core.values import DEAD_LETTER_SUFFIX
from headrace.pipelines.triage.kinds import shape_of, signature_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAMPLES = 3
SAMPLE_BYTES = 500
LETTER_SCHEMA = (
    "id string, origin string, group string, reason string, error string, attempts int, "
    "redrives int, failed_at timestamp, value binary"
)
KIND = ("origin", "group", "reason", "signature", "shape")


def letters(view: DataFrame, topic: str) -> DataFrame:
    """The connector's view of the topic's dead letters, as they are told of here."""
    place = F.concat_ws(
        ":", F.lit(f"{topic}{DEAD_LETTER_SUFFIX}"), "letterPartition", "letterOffset"
    )
    return view.select(
        place.alias("id"),
        F.col("topic").alias("origin"),
        F.col("groupName").alias("group"),
        "reason",
        "error",
        "attempts",
        "redrives",
        F.col("failedAt").alias("failed_at"),
        "value",
    )


def with_kinds(letters: DataFrame) -> DataFrame:
    """Dead letters with the shape of their payload and the signature of their error."""
    shape = F.udf(shape_of, "string", useArrow=True)
    signature = F.udf(signature_of, "string", useArrow=True)
    return letters.withColumns({"shape": shape("value"), "signature": signature("reason", "error")})


def groups(told: DataFrame) -> DataFrame:
    """One row for each kind, the most frequent first, with its latest samples."""
    sample = F.struct(
        "failed_at", "id", "error", F.substring("value", 1, SAMPLE_BYTES).alias("value")
    )
    # No more than these are kept of a kind, however many letters it has.
    latest = F.max_by(sample, F.struct("failed_at", "id"), SAMPLES)
    return (
        told.groupBy(*KIND)
        .agg(
            F.count("*").alias("letters"),
            F.min("failed_at").alias("first_at"),
            F.max("failed_at").alias("last_at"),
            F.max("attempts").alias("attempts"),
            F.max("redrives").alias("redrives"),
            latest.alias("samples"),
        )
        .orderBy(F.desc("letters"), *KIND)
    )


def trend(told: DataFrame, seconds: int) -> DataFrame:
    """How many letters in each stretch of time."""
    length_us = seconds * 1_000_000
    micros = F.unix_micros("failed_at")
    start = F.timestamp_micros(micros - F.pmod(micros, F.lit(length_us)))
    return told.groupBy(start.alias("start")).agg(F.count("*").alias("letters")).orderBy("start")
