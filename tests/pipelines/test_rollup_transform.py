"""The rollup's arithmetic, on frames: parsing, fates, windows, quantiles."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

import fastavro
import pytest
from pyspark.sql import functions as F
from tests.pipelines.conftest import NOON, NOON_MS, metric, record, records

from headrace.core.errors import InvalidArgument
from headrace.pipelines.archive.transform import decode
from headrace.pipelines.avro import read_avro_schema
from headrace.pipelines.rollup import transform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AHEAD_MS = 600_000
MINUTE_US = 60_000_000
NOON_US = NOON_MS * 1000


def test_a_metric_has_a_series_of_its_name_and_its_labels_in_order(spark: SparkSession) -> None:
    value = metric("cpu", NOON_MS, 0.5, zone="b", host="a")
    frame = transform.metrics(
        transform.parse_json(records(spark, [record(value)])), ahead_max_ms=AHEAD_MS
    )
    [row] = frame.collect()
    assert (row.series, row.name, row.value, row.problem) == (
        "cpu{host=a,zone=b}",
        "cpu",
        0.5,
        None,
    )
    assert row.labels == {"zone": "b", "host": "a"}
    assert row.ts.timestamp() == NOON.timestamp()


def test_no_two_series_look_the_same(spark: SparkSession) -> None:
    alike = [
        metric("cpu", NOON_MS, 1, a="1", b="2"),
        metric("cpu", NOON_MS, 1, a="1,b=2"),
        metric("cpu", NOON_MS, 1, **{"a=1,b": "2"}),
        metric("cpu", NOON_MS, 1, a="1\\,b=2"),
        metric("cpu{a=1,b=2}", NOON_MS, 1),
        metric("cpu{a=1", NOON_MS, 1, b="2"),
    ]
    frame = transform.metrics(
        transform.parse_json(records(spark, [record(value) for value in alike])),
        ahead_max_ms=AHEAD_MS,
    )
    series = [row.series for row in frame.collect()]
    assert len(set(series)) == len(alike)
    assert series[:2] == ["cpu{a=1,b=2}", r"cpu{a=1\,b\=2}"]


def test_every_kind_of_bad_record_is_named(spark: SparkSession) -> None:
    bad = {
        b"not json": "value is not a metric",
        b"[1, 2]": "value is not a metric",
        b"17": "value is not a metric",
        b"": "value is not a metric",
        b"\xff\xfe{": "value is not a metric",
        b'{"ts": 1, "value": 1}': "name is missing",
        b'{"name": "", "ts": 1, "value": 1}': "name is missing",
        b'{"name": "a", "value": 1}': "ts is missing",
        b'{"name": "a", "ts": "noon", "value": 1}': "ts is not a time",
        b'{"name": "a", "ts": 1e300, "value": 1}': "ts is not a time",
        b'{"name": "a", "ts": "-0001-01-01T00:00:00Z", "value": 1}': "ts is not a time",
        b'{"name": "a", "ts": "+12026-01-01T00:00:00Z", "value": 1}': "ts is not a time",
        b'{"name": "a", "ts": 1}': "value is missing",
        b'{"name": "a", "ts": 1, "value": "high"}': "value is not a number",
        b'{"name": "a", "ts": 1, "value": "NaN"}': "value is not finite",
        b'{"name": "a", "ts": 1, "value": "Infinity"}': "value is not finite",
        b'{"name": "a", "ts": 1, "value": 1e999}': "value is not a number",
        metric("a", NOON_MS + AHEAD_MS + 1, 1.0): "ts is in the future",
    }
    rows = [record(value, offset=number) for number, value in enumerate(bad)]
    rows.append(record(None, offset=len(bad)))
    frame = transform.metrics(transform.parse_json(records(spark, rows)), ahead_max_ms=AHEAD_MS)
    found = {row.payload and bytes(row.payload): row.problem for row in frame.collect()}
    assert found == bad | {None: "value is empty"}


def test_a_record_may_bear_any_time(spark: SparkSession) -> None:
    frame = records(spark, [record(metric("a", NOON_MS, 1.0))]).withColumn(
        "timestamp", F.timestamp_micros(F.lit(2**63 - 1))
    )
    found = transform.metrics(transform.parse_json(frame), ahead_max_ms=AHEAD_MS)
    assert [row.problem for row in found.select("problem").collect()] == [None]


@pytest.mark.parametrize(
    "written",
    [NOON_MS, NOON_MS / 1000, NOON_MS // 1000, NOON.isoformat(), "2026-11-15T13:00:00+01:00"],
)
def test_a_time_may_be_written_in_several_ways(spark: SparkSession, written: object) -> None:
    value = json.dumps({"name": "a", "ts": written, "value": 1}).encode()
    frame = transform.metrics(
        transform.parse_json(records(spark, [record(value)])), ahead_max_ms=AHEAD_MS
    )
    [row] = frame.collect()
    assert row.problem is None
    assert row.ts.timestamp() == NOON.timestamp()


def test_a_row_is_late_from_the_moment_its_minute_is_closed(spark: SparkSession) -> None:
    # A minute is closed when the watermark reaches its end.
    values = [metric("a", NOON_MS + shift, 1.0) for shift in (-1, 0, 59_999, 60_000)]
    frame = transform.metrics(
        transform.parse_json(records(spark, [record(v, offset=n) for n, v in enumerate(values)])),
        ahead_max_ms=AHEAD_MS,
    )
    for watermark_us, late in ((NOON_US + MINUTE_US, 3), (NOON_US + MINUTE_US - 1, 1), (None, 0)):
        fates = [row.fate for row in transform.classify(frame, watermark_us).collect()]
        assert fates.count("late") == late
        assert fates.count("rolled") == len(values) - late


def test_an_hour_merged_from_its_minutes_is_what_the_raw_rows_say(spark: SparkSession) -> None:
    chance = random.Random(7)
    raw = [
        (NOON_MS + chance.randrange(3_600_000), chance.lognormvariate(3, 1)) for _ in range(12_000)
    ]
    rows = [record(metric("latency", at, value), offset=n) for n, (at, value) in enumerate(raw)]
    frame = transform.classify(
        transform.metrics(transform.parse_json(records(spark, rows)), ahead_max_ms=4_000_000),
        None,
    )
    # Two batches, so that each minute comes in two shares.
    shares = transform.minutes(frame.where("offset % 2 = 0"), 0).union(
        transform.minutes(frame.where("offset % 2 = 1"), 1)
    )
    end_us = NOON_US + 3600 * 1_000_000
    minutes = transform.merge(shares, 60, closed_after_us=None, closed_until_us=end_us).cache()
    [hour] = transform.merge(minutes, 3600, closed_after_us=None, closed_until_us=end_us).collect()
    values = sorted(value for _, value in raw)
    assert minutes.count() == 60
    assert (hour["count"], hour.min, hour.max) == (len(values), values[0], values[-1])
    assert hour["sum"] == pytest.approx(sum(values)) and hour.mean == pytest.approx(
        sum(values) / len(values)
    )
    for name, rank in transform.QUANTILES.items():
        found_rank = sum(value <= hour[name] for value in values) / len(values)
        assert abs(found_rank - rank) <= 0.01, name


def test_only_windows_between_the_two_watermarks_are_closed(spark: SparkSession) -> None:
    rows = [record(metric("a", NOON_MS + n * 60_000, float(n)), offset=n) for n in range(6)]
    frame = transform.classify(
        transform.metrics(transform.parse_json(records(spark, rows)), ahead_max_ms=AHEAD_MS), None
    )
    closed = transform.merge(
        transform.minutes(frame, 0),
        60,
        closed_after_us=NOON_US + 2 * MINUTE_US,
        closed_until_us=NOON_US + 4 * MINUTE_US,
    )
    found = sorted((row.min, row.date) for row in closed.collect())
    assert found == [(2.0, "2026-11-15"), (3.0, "2026-11-15")]


def test_metrics_in_avro_are_read_by_the_schema_that_they_are_of(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = {
        "type": "record",
        "name": "Metric",
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "labels", "type": {"type": "map", "values": "string"}},
            {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "value", "type": "double"},
        ],
    }
    path = tmp_path / "metric.avsc"
    path.write_text(json.dumps(schema))
    parsed = read_avro_schema(str(path)).record
    plain = io.BytesIO()
    fastavro.schemaless_writer(
        plain, parsed, {"name": "cpu", "labels": {"host": "a"}, "ts": NOON, "value": 0.5}
    )
    values = [
        plain.getvalue(), b"\0\0\0\0\7" + plain.getvalue(), b"\0\0\0\1\0" + plain.getvalue(),
        b"nonsense", None,
    ]  # fmt: skip
    rows = records(spark, [record(value, offset=number) for number, value in enumerate(values)])
    of_another = "value is not Avro; if it is framed, its schema has id {}, for avro_schema_ids"
    not_framed = "value is not framed as a schema registry does"
    for ids, problems in (
        ((), [None, of_another.format(7), of_another.format(256), "value is not a metric"]),
        ((7, 9), [not_framed, None, "value's schema has id 256, and avro_schema_ids is 7, 9",
                  not_framed]),
    ):  # fmt: skip
        avro = read_avro_schema(str(path), ids)
        frame = transform.metrics(transform.parse_avro(rows, avro), ahead_max_ms=AHEAD_MS)
        found = [(row.series, row.value, row.problem) for row in frame.orderBy("offset").collect()]
        good, nothing = ("cpu{host=a}", 0.5, None), (None, None)
        assert found == [
            *(good if problem is None else (*nothing, problem) for problem in problems),
            (*nothing, "value is empty"),
        ]
        # An archive says why, too.
        archived = decode(rows, "name STRING, value DOUBLE", avro).orderBy("offset").collect()
        problems[-1] = "value is not Avro" if not ids else not_framed
        assert [row.decode_error for row in archived] == [*problems, None]
    path.write_text('"string"')
    with pytest.raises(InvalidArgument, match="must describe a record"):
        read_avro_schema(str(path))
