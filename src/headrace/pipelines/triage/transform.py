"""Triage as functions of DataFrames: dead letters in, groups and a trend out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from headrace.pipelines.triage.kinds import shape_of, signature_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SAMPLES = 3
SAMPLE_BYTES = 500
KIND = ("origin", "group", "reason", "signature", "shape")


def letters(records: DataFrame) -> DataFrame:
    """Records of a dead-letter topic, with what their headers tell as columns."""
    failed_ms = header("headrace-dlq-failed-at").try_cast("long")
    error = header("headrace-dlq-error")
    reason = F.coalesce(header("headrace-dlq-reason"), F.lit("unknown"))
    told = records.select(
        F.concat_ws(":", "topic", "partition", "offset").alias("id"),
        F.coalesce(header("headrace-dlq-topic"), F.col("topic")).alias("origin"),
        F.coalesce(header("headrace-dlq-group"), F.lit("")).alias("group"),
        reason.alias("reason"),
        error.alias("error"),
        F.coalesce(header("headrace-dlq-attempts").try_cast("int"), F.lit(0)).alias("attempts"),
        F.coalesce(header("headrace-redrives").try_cast("int"), F.lit(0)).alias("redrives"),
        F.coalesce(F.timestamp_millis(failed_ms), F.col("timestamp")).alias("failed_at"),
        "value",
    )
    shape = F.udf(shape_of, "string", useArrow=True)
    signature = F.udf(signature_of, "string", useArrow=True)
    return told.withColumns({"shape": shape("value"), "signature": signature("reason", "error")})


def header(name: str) -> Column:
    """A header's text; of several with one name the last."""
    found = F.filter("headers", lambda each: each["key"] == name)
    return F.try_validate_utf8(F.try_element_at(found, F.lit(-1))["value"].cast("string"))


def groups(told: DataFrame) -> DataFrame:
    """One row for each kind, the most frequent first, with its latest samples."""
    sample = F.struct(
        "failed_at", "id", "error", F.substring("value", 1, SAMPLE_BYTES).alias("value")
    )
    latest = F.slice(F.sort_array(F.collect_list(sample), asc=False), 1, SAMPLES)
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
