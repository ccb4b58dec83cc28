"""The rollup's job: every row is counted once, whatever is repeated or killed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.conftest import NOON_MS, FolderTopic, metric

from headrace.core.errors import InvalidArgument
from headrace.pipelines.rollup.job import RollupJob, RollupSettings
from headrace.pipelines.rollup.reading import reconcile
from headrace.pipelines.running import follow
from headrace.pipelines.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parent.parent.parent / "docs" / "pipelines.md"
SERIES = ("cpu", "disk", "net")
MINUTE_MS = 60_000


@pytest.fixture
def topic(spark: SparkSession, tmp_path: Path) -> FolderTopic:
    """Three batches: the first hour, its late rows and bad rows, then a jump."""
    topic = FolderTopic(spark, tmp_path / "topic")
    topic.publish(_hour(NOON_MS), at_ms=NOON_MS + 60 * MINUTE_MS)
    mixed = [*_hour(NOON_MS, minutes=2), b"not json", b'{"name": "cpu"}']
    mixed += [metric("cpu", NOON_MS + 61 * MINUTE_MS, 1.0)]
    topic.publish(mixed, at_ms=NOON_MS + 61 * MINUTE_MS)
    topic.publish([metric("cpu", NOON_MS + 75 * MINUTE_MS, 2.0)], at_ms=NOON_MS + 75 * MINUTE_MS)
    return topic


def _hour(start_ms: int, minutes: int = 60) -> Iterator[bytes]:
    for minute in range(minutes):
        for number, series in enumerate(SERIES):
            for second in (1, 30):
                at_ms = start_ms + minute * MINUTE_MS + second * 1000
                yield metric(series, at_ms, float(100 * number + minute))


def _settings(tmp_path: Path, **changes: Any) -> RollupSettings:
    values = {
        "pipeline": "rollup",
        "servers": "127.0.0.1:1",
        "topic": "metrics",
        "lake": str(tmp_path / "lake"),
        "trigger": "once",
        "watermark": "5m",
    }
    return RollupSettings.from_mapping(values | changes)


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_counts_of_all_tables_add_up_to_what_came_in(
    spark: SparkSession, topic: FolderTopic, tmp_path: Path, format: str
) -> None:
    settings = _settings(tmp_path, format=format, compact_every=2)
    job = RollupJob(settings)
    outcome = follow(topic.stream(), job, settings)
    # The second batch comes when the watermark is at 54:59, so its rows are late.
    assert outcome == (3, 360 + 15 + 1, 360 + 1 + 1, 12, 2)
    found = reconcile(spark, settings)
    assert found.adds_up and found.rows_in == 376
    assert (found.rows_closed, found.rows_open) == (361, 1)
    hours = job.tables.rollups["1h"].read(spark).orderBy("series").collect()
    assert [(row.series, row["count"], row.min, row.max) for row in hours] == [
        ("cpu", 120, 0.0, 59.0),
        ("disk", 120, 100.0, 159.0),
        ("net", 120, 200.0, 259.0),
    ]
    fives = job.tables.rollups["5m"].read(spark)
    assert fives.where("series = 'cpu' and count = 10").count() == 12
    assert job.tables.bad.read(spark).count() == 2
    late = job.tables.late.read(spark).collect()
    assert len(late) == 12 and all(row.ts < row.watermark for row in late)
    _check_page(spark, job)


def _check_page(spark: SparkSession, job: RollupJob) -> None:
    """The query that the page shows: any quantile, from sketches that were stored."""
    [query] = re.findall(r"^```sql\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    job.tables.rollups["1h"].read(spark).createOrReplaceTempView("rollup_1h")
    [[found]] = spark.sql(query.replace("latency_ms", "disk")).collect()
    assert 157.0 <= found <= 159.0


def test_a_batch_that_fails_after_any_commit_is_counted_once(
    spark: SparkSession,
    topic: FolderTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process dies after the n-th commit to a table, for every n there is."""
    settings = _settings(tmp_path, retries=0)
    commits = 0
    dies_at = 1
    real = LakeTable._commit

    def commit(self: LakeTable, *arguments: Any) -> Any:
        nonlocal commits
        done = real(self, *arguments)
        commits += 1
        if commits == dies_at:
            raise ConnectionAbortedError("died here")
        return done

    monkeypatch.setattr(LakeTable, "_commit", commit)
    deaths = 0
    while True:
        commits = 0
        try:
            # A new job each time: all that a dead process knew is gone.
            follow(topic.stream(), RollupJob(settings), settings)
            break
        except Exception as error:
            assert "died here" in str(error)
            deaths += 1
            # Alternately early and late in what is left to do.
            dies_at = 2 if deaths % 2 else 1
    assert deaths >= 5
    found = reconcile(spark, settings)
    assert found.adds_up
    assert (found.rows_in, found.rows_closed, found.rows_open) == (376, 361, 1)
    assert (found.rows_late, found.rows_bad) == (12, 2)


def test_wrong_settings_name_the_key_and_the_remedy(tmp_path: Path) -> None:
    for changes, message in (
        ({"topic": ""}, "topic is missing; say which topic"),
        ({"servers": ""}, "servers is missing"),
        ({"path": "data/"}, "servers and path are both given"),
        ({"lake": ""}, "lake is missing"),
        ({"watermark": "soon"}, "watermark must be a duration such as 10m, not 'soon'"),
        ({"trigger": 5}, "trigger must be of type str"),
        ({"encoding": "avro"}, "avro_schema is missing"),
        ({"avro_schema": "x"}, "avro_schema is given but encoding is"),
        ({"publish_to": "metrics"}, "publish_to is the topic that is read"),
        ({"sketch_k": 100}, "sketch_k must be between 300 and 65535"),
        ({"watermrk": "5m"}, "unknown setting 'watermrk'; known are:"),
        ({"format": "iceberg"}, "format must be one of delta, parquet"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            _settings(tmp_path, **changes)
