"""Jobs whose lake is in S3: executors write there, and tasks read what Spark cannot."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from tests.pipelines.conftest import NOON, NOON_MS, FolderTopic, metric
from tests.pipelines.object_store import ObjectStore
from tests.spark.conftest import Topic

from headrace.cli.main import cli
from headrace.core.errors import InvalidArgument
from headrace.pipelines.archive.job import ArchiveSettings, raw_table
from headrace.pipelines.archive.reading import read_latest, read_typed, read_union
from headrace.pipelines.archive.rebuild import rebuild
from headrace.pipelines.file_reading import FILE, read_with_paths
from headrace.pipelines.registry import pipeline_named, settings_of
from headrace.pipelines.rollup.job import RollupJob, RollupSettings
from headrace.pipelines.rollup.reading import reconcile
from headrace.pipelines.running import follow
from headrace.pipelines.table import open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _run(values: dict[str, Any], **changes: Any) -> tuple[int, list[str]]:
    said: list[str] = []
    settings = settings_of(values["pipeline"], values | changes)
    code = pipeline_named(values["pipeline"]).run(settings, master=None, say=said.append)
    assert not any(values["storage"]["aws_secret_access_key"] in line for line in said)
    return code, said


def test_an_archive_in_s3_goes_on_where_it_was(
    spark: SparkSession, topic: Topic, tmp_path: Path, s3: ObjectStore
) -> None:
    lake = f"s3a://{s3.new_bucket()}/orders"
    values = {
        "pipeline": "archive", "servers": topic.node.bootstrap, "topic": topic.name,
        "lake": lake, "storage": s3.options, "checkpoint": str(tmp_path / "checkpoint"),
        "trigger": "once", "compact_every": 2, "partition_by": "hour",
        "value_format": "json", "value_schema": "id INT", "upsert": True, "key_columns": ["id"],
    }  # fmt: skip
    topic.publish([b'{"id": %d}' % n for n in range(40)])
    assert f"40 records archived in 1 batch to {lake}" in _run(values)[1]
    # Another type and a column more; the second batch is followed by a compaction.
    values["value_schema"] = "id BIGINT, name STRING"
    topic.publish([b'{"id": 5000000000, "name": "wide"}'] * 9 + [b"bad"])
    assert f"10 records archived in 1 batch to {lake}" in _run(values)[1]
    settings = settings_of("archive", values)
    assert isinstance(settings, ArchiveSettings)
    files = raw_table(settings).files()
    assert len(files) == len({file.partition["hour"] for file in files})
    _check_typed(spark, settings)
    topic.publish([b"live"] * 3)
    rows = read_union(spark, settings).select("partition", "offset", "value").collect()
    assert len(rows) == len({(row.partition, row.offset) for row in rows}) == 53
    assert sum(row.value == b'{"id": 7}' for row in rows) == 1
    common = {name: values[name] for name in ("servers", "topic", "lake", "storage")}
    report = tmp_path / "audit.html"
    audited = _run({"pipeline": "audit", "report": str(report), **common})
    assert audited == (0, [f"50 rows arrived, 0 missing, 0 duplicates, 0 hours changed: {report}"])
    again = Topic(topic.node, f"{topic.name}-again")
    again.create(1)
    replay = {
        "pipeline": "replay", "source": "lake", "to_topic": again.name,
        "state": str(tmp_path / "state.json"), "start": "2020-01-01T00:00:00+00:00", **common,
    }  # fmt: skip
    assert _run(replay)[1][-1].startswith(f"50 records read, 50 written to {again.name}, ")
    _check_status(values, tmp_path)


def _check_typed(spark: SparkSession, settings: ArchiveSettings) -> None:
    """Also after a rebuild, which writes the table anew."""
    expected = [(n, None) for n in range(40)] + [(5_000_000_000, "wide")] * 9
    for is_rebuilt in (False, True):
        if is_rebuilt:
            assert rebuild(spark, settings)[:2] == (49, 1)
        rows = read_typed(spark, settings).select("id", "name", "_hour").collect()
        assert sorted((row.id, row.name) for row in rows) == expected
        assert all(re.fullmatch(r"[0-2]\d", row["_hour"]) for row in rows)
        # The last row of each key, whose column became wider too.
        last = {(row.id, row.name) for row in read_latest(spark, settings).collect()}
        assert last == set(expected) and read_latest(spark, settings).count() == 41


def _check_status(values: dict[str, Any], tmp_path: Path) -> None:
    config = tmp_path / "archive.toml"
    storage = values["storage"]
    lines = [f"{k} = {json.dumps(v)}" for k, v in values.items() if k != "storage"]
    lines += ["[storage]", *(f"{name} = {json.dumps(value)}" for name, value in storage.items())]
    config.write_text("\n".join(lines))
    result = CliRunner().invoke(cli, ["pipeline", "status", "--config", str(config), "--json"])
    found = json.loads(result.stdout)
    assert (found["batches"], found["rows_in"], found["lag"]) == (2, 50, 3)
    assert storage["aws_secret_access_key"] not in result.output
    config.write_text("\n".join(lines).replace("bucket-", "no-bucket-"))
    result = CliRunner().invoke(cli, ["pipeline", "status", "--config", str(config)])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: there is no such bucket: s3://no-bucket-")
    assert result.stderr.count("\n") == 1


def test_a_rollup_in_s3_adds_up_over_two_runs(
    spark: SparkSession, tmp_path: Path, s3: ObjectStore
) -> None:
    topic = FolderTopic(spark, tmp_path / "topic")
    settings = RollupSettings.from_mapping(
        {
            "pipeline": "rollup", "servers": "127.0.0.1:1", "topic": "metrics",
            "lake": f"s3://{s3.new_bucket()}/metrics", "storage": s3.options,
            "checkpoint": str(tmp_path / "checkpoint"), "trigger": "once", "watermark": "1m",
            "compact_every": 2,
        }
    )  # fmt: skip
    for run in range(2):
        at_ms = NOON_MS + run * 600_000
        values = [metric("cpu", at_ms + n * 30_000, float(n)) for n in range(20)]
        topic.publish([*values, b"no metric"], at_ms=at_ms + 600_000)
        outcome = follow(topic.stream(), RollupJob(settings), settings)
        assert (outcome.batches, outcome.rows_in, outcome.rows_bad) == (1, 21, 1)
    found = reconcile(spark, settings)
    assert found.adds_up and found.rows_in == 42


def test_a_checkpoint_that_spark_cannot_keep_is_told_in_words(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = FolderTopic(spark, tmp_path / "topic")
    topic.publish([b"x"])
    settings = RollupSettings.from_mapping(
        {
            "pipeline": "rollup", "servers": "127.0.0.1:1", "topic": "metrics",
            "lake": str(tmp_path / "lake"), "checkpoint": "s3://bucket/checkpoint",
            "trigger": "once",
        }
    )  # fmt: skip
    with pytest.raises(InvalidArgument, match="knows no file system for checkpoint = 's3://buck"):
        follow(topic.stream(), RollupJob(settings), settings)


def test_spark_reads_partitions_of_every_kind(spark: SparkSession, tmp_path: Path) -> None:
    odd = ["DE", "a/b", "é x", "__HIVE_DEFAULT_PARTITION__", None, "q=1&%25*"]
    for name, values in (("short", odd), ("long", [*odd, "x" * 300])):
        rows = [(value, NOON, number) for number, value in enumerate(values)]
        frame = spark.createDataFrame(rows, "country string, at timestamp, n long")
        table = open_table(
            str(tmp_path / name), "delta", "country string, at timestamp, n long",
            partition_by=("country",), time="at",
        )  # fmt: skip
        for batch in range(2):
            assert table.append(frame, "w", batch).rows == len(values)
        assert table.compact(spark) == sum(2 for _ in values) - len(values)
        read = read_with_paths(spark, table.store, table.files(), table.schema).collect()
        assert {row.n: row.country for row in read} == dict(enumerate(values))
        assert {row[FILE] for row in read} == {file.path for file in table.files()}
        found = {row.n: row.country for row in table.read(spark).collect()}
        assert found == dict(enumerate(values))
    hours = open_table(
        str(tmp_path / "hours"), "delta", "date string, country string, at timestamp, n long",
        partition_by=("date", "hour"), time="at",
    )  # fmt: skip
    dated = frame.selectExpr("'2026-11-15' as date", "*")
    hours.append(dated, "w", 0)
    assert {tuple(file.partition.items()) for file in hours.files()} == {
        (("date", "2026-11-15"), ("hour", "12"))
    }
    assert hours.read(spark).columns == ["date", "country", "at", "n", "hour"]
    # As a reader opens it that does not know how it was written.
    days = open_table(
        str(tmp_path / "hours"), "delta", "date string, at timestamp, n long",
        partition_by=("date",), time="at",
    )  # fmt: skip
    assert days.read(spark).columns == ["date", "at", "n"]
    assert days.read(spark).count() == 7
