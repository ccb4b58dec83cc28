"""The rollup as arithmetic on DataFrames: no topic, no table, no clock.

    records --parse--> metrics --classify--> bad | late | on time
    on time --minutes--> partial minutes --merge--> minutes, 5 minutes, hours

An aggregate is count, sum, min, max and a KLL sketch of the values. All five can
be merged, so that the hour is made of its minutes and never of raw rows. Whoever
wants another quantile later asks the stored sketch.

With k = 512 the rank of a quantile is wrong by less than 0.6% in 99 of 100 cases,
and a sketch takes some 6 KB at most; up to k values it is exact.

Rejected: Spark's own watermark. It drops what is late without a word, and counts
that do not add up cannot be trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from headrace.pipelines.avro import AvroSchema, as_text, frame_problem, record_decoder

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SKETCH_K = 512
MINUTE_SECONDS = 60
MINUTE_US = MINUTE_SECONDS * 1_000_000
# Every resolution but the first is made of minutes.
RESOLUTIONS = {"1m": 60, "5m": 300, "1h": 3_600}
YEAR_1_SECONDS = -62_135_596_800
YEAR_10000_SECONDS = 253_402_300_800
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

_UNREADABLE = "value is not a metric"
METRIC_FIELDS = "series string, name string, labels map<string,string>, ts string, value string"
PARTIAL_SCHEMA = (
    "date string, window_start timestamp, series string, name string, labels map<string,string>, "
    "count long, sum double, min double, max double, sketch binary, batch long"
)
ROLLUP_SCHEMA = (
    "date string, window_start timestamp, window_end timestamp, series string, name string, "
    "labels map<string,string>, count long, sum double, mean double, min double, max double, "
    "p50 double, p95 double, p99 double, sketch binary"
)
LATE_SCHEMA = (
    "date string, topic string, partition int, offset long, timestamp timestamp, series string, "
    "name string, labels map<string,string>, ts timestamp, value double, watermark timestamp"
)
BAD_SCHEMA = (
    "date string, topic string, partition int, offset long, timestamp timestamp, key binary, "
    "payload binary, problem string"
)


def parse_json(records: DataFrame) -> DataFrame:
    """Records as the connector gives them, with a column `metric` beside; null
    where the value is not a JSON object, and `unreadable` says so."""
    # A cast and no decode(), which ends the query at bytes that are not UTF-8.
    text = F.try_validate_utf8(F.col("value").cast("string"))
    # An array or a bare number is JSON too, and gives a struct full of nulls.
    is_object = F.try_parse_json(text).isNotNull() & F.startswith(F.ltrim(text), F.lit("{"))
    metric = F.when(is_object, F.from_json(text, METRIC_FIELDS))
    return records.withColumns({"metric": metric, "unreadable": F.lit(_UNREADABLE)})


def parse_avro(records: DataFrame, schema: AvroSchema) -> DataFrame:
    """Like `parse_json`, for values in Avro."""
    decode = F.udf(_metric_of(record_decoder(schema)), METRIC_FIELDS, useArrow=True)
    unreadable = F.coalesce(frame_problem(schema), F.lit(_UNREADABLE))
    return records.withColumns({"metric": decode("value"), "unreadable": unreadable})


def _metric_of(
    decode: Callable[[bytes | None], dict[str, Any] | None],
) -> Callable[[bytes | None], dict[str, Any] | None]:
    """Texts for time and value, as JSON's parser gives them, so that one set of
    checks holds for both."""

    def metric(payload: bytes | None) -> dict[str, Any] | None:
        record = decode(payload)
        if record is None:
            return None
        found: dict[str, Any] = {
            name: as_text(record.get(name)) for name in ("series", "name", "ts", "value")
        }
        labels = record.get("labels")
        if isinstance(labels, dict):
            found["labels"] = {str(name): as_text(value) for name, value in labels.items()}
        return found

    return metric


def metrics(records: DataFrame, *, ahead_max_ms: int) -> DataFrame:
    """Parsed records as metrics: series, name, labels, ts, value, and `problem`
    with the first thing that is wrong, or null.

    A time ahead of the record's own by more than `ahead_max_ms` is wrong: one
    such row would close the windows of everybody else.
    """
    typed = records.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        F.col("value").alias("payload"),
        F.when(F.col("metric").isNull(), F.col("unreadable")).alias("unreadable"),
        F.coalesce("metric.name", "metric.series").alias("name"),
        F.col("metric.series").alias("given_series"),
        F.coalesce("metric.labels", F.create_map().cast("map<string,string>")).alias("labels"),
        F.col("metric.ts").alias("ts_text"),
        moment(F.col("metric.ts")).alias("ts"),
        F.col("metric.value").alias("value_text"),
        F.col("metric.value").try_cast("double").alias("value"),
    )
    # A record may bear any time, to which nothing can be added; `ts` is of a sane year.
    ahead = F.unix_micros("ts") - F.lit(ahead_max_ms * 1000) > F.unix_micros("timestamp")
    finite = ~F.isnan("value") & (F.abs("value") < float("inf"))
    problem = (
        F.when(F.col("payload").isNull(), "value is empty")
        .when(F.col("unreadable").isNotNull(), F.col("unreadable"))
        .when(F.coalesce(F.length("name"), F.lit(0)) == 0, "name is missing")
        .when(F.col("ts_text").isNull(), "ts is missing")
        .when(F.col("ts").isNull(), "ts is not a time")
        .when(ahead, "ts is in the future")
        .when(F.col("value_text").isNull(), "value is missing")
        .when(F.col("value").isNull(), "value is not a number")
        .when(~finite, "value is not finite")
    )
    return typed.withColumns(
        {"series": F.coalesce("given_series", series_of("name", "labels")), "problem": problem}
    ).drop("unreadable", "given_series", "ts_text", "value_text")


def moment(text: Column) -> Column:
    """A time as people write it: ISO 8601, or a number since 1970 in seconds or,
    from 100 thousand million on, in milliseconds; of the years 1 to 9999."""
    number = text.try_cast("double")
    seconds = F.when(F.abs(number) >= 1e11, number / 1000).otherwise(number)
    # A cast would overflow, and an error would end the query.
    sane = F.when(F.abs(seconds) < YEAR_10000_SECONDS, seconds)
    found = F.coalesce(F.timestamp_micros((sane * 1e6).cast("long")), text.try_cast("timestamp"))
    # Other years cannot be written as dates, by Delta's log for one.
    micros = F.unix_micros(found)
    is_year = (micros >= YEAR_1_SECONDS * 1_000_000) & (micros < YEAR_10000_SECONDS * 1_000_000)
    return F.when(is_year, found)


def series_of(name: str, labels: str) -> Column:
    """The series' identity: its name and its labels in order, `cpu{host=a}`. What
    separates them has a backslash before it where it is part of one: no two series
    look the same."""
    ordered = F.array_sort(F.map_entries(labels))
    pairs = F.transform(
        ordered, lambda pair: F.concat_ws("=", _escaped(pair["key"]), _escaped(pair["value"]))
    )
    escaped = _escaped(F.col(name))
    joined = F.concat(escaped, F.lit("{"), F.array_join(pairs, ","), F.lit("}"))
    return F.when(F.size(labels) > 0, joined).otherwise(escaped)


def _escaped(text: Column) -> Column:
    return F.regexp_replace(text, r"([\\{},=])", r"\\$1")


def classify(rows: DataFrame, watermark_us: int | None) -> DataFrame:
    """Adds `fate`: bad, late when the row's minute is closed already, or rolled."""
    closed = F.lit(False)
    if watermark_us is not None:
        closed = F.unix_micros(window_start(F.col("ts"), MINUTE_SECONDS)) <= F.lit(
            watermark_us - MINUTE_US
        )
    fate = F.when(F.col("problem").isNotNull(), "bad").when(closed, "late").otherwise("rolled")
    return rows.withColumn("fate", fate)


def window_start(time: Column, seconds: int) -> Column:
    length_us = seconds * 1_000_000
    micros = F.unix_micros(time)
    return F.timestamp_micros(micros - F.pmod(micros, F.lit(length_us)))


def minutes(rolled: DataFrame, batch: int, *, sketch_k: int = SKETCH_K) -> DataFrame:
    """One batch's share of each minute: the partial aggregates."""
    grouped = rolled.groupBy(
        window_start(F.col("ts"), MINUTE_SECONDS).alias("window_start"), "series"
    ).agg(
        F.any_value("name").alias("name"),
        F.any_value("labels").alias("labels"),
        F.count("*").alias("count"),
        F.sum("value").alias("sum"),
        F.min("value").alias("min"),
        F.max("value").alias("max"),
        F.kll_sketch_agg_double("value", F.lit(sketch_k)).alias("sketch"),
    )
    return grouped.withColumns({"batch": F.lit(batch).cast("long"), "date": date_of()})


def merge(
    parts: DataFrame,
    seconds: int,
    *,
    closed_after_us: int | None,
    closed_until_us: int,
    sketch_k: int = SKETCH_K,
) -> DataFrame:
    """Parts (partial minutes, or minutes) merged into windows of this length, of
    which those are kept whose end lies in (closed_after, closed_until]."""
    grouped = (
        parts.withColumn("window_start", window_start(F.col("window_start"), seconds))
        .groupBy("window_start", "series")
        .agg(
            F.any_value("name").alias("name"),
            F.any_value("labels").alias("labels"),
            F.sum("count").alias("count"),
            F.sum("sum").alias("sum"),
            F.min("min").alias("min"),
            F.max("max").alias("max"),
            F.kll_merge_agg_double("sketch", F.lit(sketch_k)).alias("sketch"),
        )
    )
    end_us = F.unix_micros("window_start") + F.lit(seconds * 1_000_000)
    kept = end_us <= F.lit(closed_until_us)
    if closed_after_us is not None:
        kept &= end_us > F.lit(closed_after_us)
    finished = grouped.where(kept).withColumns(
        {
            "window_end": F.timestamp_micros(end_us),
            "mean": F.col("sum") / F.col("count"),
            "date": date_of(),
        }
    )
    return finished.withColumns({name: quantile(rank) for name, rank in QUANTILES.items()})


def ended(windows: DataFrame, after_us: int | None, until_us: int) -> DataFrame:
    """The windows whose end lies in (after, until]."""
    end_us = F.unix_micros("window_end")
    kept = end_us <= F.lit(until_us)
    if after_us is not None:
        kept &= end_us > F.lit(after_us)
    return windows.where(kept)


def published(closed: dict[str, DataFrame]) -> DataFrame:
    """Windows as records: the series as the key, JSON without the sketch as value."""
    rows = [
        windows.select(
            F.col("series").cast("binary").alias("key"),
            F.to_json(
                F.struct(
                    F.lit(name).alias("resolution"),
                    "window_start", "window_end", "series", "name", "labels",
                    "count", "sum", "mean", "min", "max", *QUANTILES,
                )
            ).cast("binary").alias("value"),
        )
        for name, windows in closed.items()
    ]  # fmt: skip
    return reduce(lambda one, other: one.unionByName(other), rows)


def quantile(rank: float) -> Column:
    """A quantile of the stored sketch, also one that nobody thought of before."""
    return F.kll_sketch_get_quantile_double("sketch", F.lit(rank))


def date_of(column: str = "window_start") -> Column:
    """The day in UTC, whatever the session's time zone."""
    days = F.floor(F.unix_micros(column) / F.lit(86_400_000_000))
    return F.date_from_unix_date(days.cast("int")).cast("string")


def late_rows(rows: DataFrame, watermark_us: int | None) -> DataFrame:
    watermark = F.timestamp_micros(F.lit(watermark_us).cast("long"))
    late = rows.where(F.col("fate") == "late")
    return late.withColumns({"watermark": watermark, "date": date_of("ts")})


def bad_rows(rows: DataFrame) -> DataFrame:
    return rows.where(F.col("fate") == "bad").withColumn("date", date_of("timestamp"))
