"""The archive when it is started again with another `value_schema`."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.pipelines.conftest import record, records

from headrace.core.errors import InvalidArgument
from headrace.pipelines.archive.job import ArchiveJob, ArchiveSettings
from headrace.pipelines.archive.reading import read_typed
from headrace.pipelines.archive.rebuild import rebuild

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = "id INT, total FLOAT, note STRING, who STRUCT<name: STRING>"
SECOND = "id BIGINT, total DOUBLE, who STRUCT<name: STRING, age: INT>, tags ARRAY<STRING>"


def job_of(tmp_path: Path, format: str, value_schema: str) -> ArchiveJob:
    values = {
        "pipeline": "archive", "servers": "127.0.0.1:1", "topic": "metrics", "format": format,
        "lake": str(tmp_path / "lake"), "value_format": "json", "value_schema": value_schema,
    }  # fmt: skip
    return ArchiveJob(ArchiveSettings.from_mapping(values))


def take(spark: SparkSession, job: ArchiveJob, batch: int, *values: dict[str, Any]) -> None:
    rows = [
        record(json.dumps(value).encode(), offset=100 * batch + number)
        for number, value in enumerate(values)
    ]
    job.ledger.write(job.take(records(spark, rows), batch, "query"))


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_the_typed_table_follows_the_settings_and_keeps_what_it_has(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    first = job_of(tmp_path, format, FIRST)
    take(spark, first, 0, {"id": 1, "total": 0.5, "note": "a", "who": {"name": "x"}}, {"id": 2})
    second = job_of(tmp_path, format, SECOND)
    assert [each.removeprefix(f"{tmp_path}/lake/typed: ") for each in second.prepare(spark)] == [
        "new column who.age int",
        "new column tags array<string>",
        "wider column id int to bigint",
        "wider column total float to double",
    ]
    assert job_of(tmp_path, format, SECOND).prepare(spark) == []
    later = {"id": 2**40, "total": 1e300, "note": "left out", "tags": ["t"]}
    take(spark, second, 1, later | {"who": {"name": "y", "age": 7}})
    # A driver of before does not damage the table: it is told so.
    with pytest.raises(InvalidArgument, match="column 'id' is bigint in the table and int"):
        take(spark, first, 2, {"id": 3})
    # The newest settings again, from the beginning: columns of the table are kept.
    take(spark, job_of(tmp_path, format, "tags ARRAY<STRING>"), 2, {"id": 4, "tags": []})
    expected = {
        0: (1, 0.5, "a", {"name": "x", "age": None}, None),
        1: (2, None, None, None, None),
        100: (2**40, 1e300, None, {"name": "y", "age": 7}, ["t"]),
        200: (None, None, None, None, []),
    }
    assert _typed(spark, second) == expected
    second.compact(spark)
    assert _typed(spark, second) == expected
    assert read_typed(spark, second.settings).rdd.getNumPartitions() == 1


def _typed(spark: SparkSession, job: ArchiveJob) -> dict[int, tuple[Any, ...]]:
    """By offset; our reader and delta-rs have to agree."""
    names = ("id", "total", "note", "who", "tags")
    rows = [row.asDict(recursive=True) for row in read_typed(spark, job.settings).collect()]
    found = {row["_offset"]: tuple(row[name] for name in names) for row in rows}
    assert len(found) == len(rows)
    if job.settings.format == "delta":
        from deltalake import DeltaTable, QueryBuilder

        table = DeltaTable(job.settings.table_path("typed"))
        by_rows = table.to_pyarrow_table().to_pylist()
        query = QueryBuilder().register("typed", table).execute("SELECT * FROM typed")
        for others in (by_rows, pa.table(query.read_all()).to_pylist()):
            assert {r["_offset"]: tuple(r[name] for name in names) for r in others} == found
    return found


def test_what_cannot_be_followed_is_refused_before_a_row_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = job_of(tmp_path, "delta", "id BIGINT, at STRUCT<day: DATE>")
    take(spark, first, 0, {"id": 1})
    before = first.raw.last_batch(first.ledger.writer)
    for value_schema, message in (
        ("id INT", r"typed: column 'id' is bigint in the table and int in the settings.*rebuild"),
        (
            "id STRING, at DATE",
            r"'id' is bigint .* and string .*'at' is struct<day:date> .* and da",
        ),
        ("Id BIGINT", "column 'id' .* 'Id' differs from it in upper and lower case only"),
        ("id BIGINT NOT NULL", "value_schema says NOT NULL of 'id'.*leave NOT NULL out"),
        ("at STRUCT<day: DATE NOT NULL>", "value_schema says NOT NULL of 'at.day'"),
        ("_offset BIGINT", "value_schema has a field '_offset'"),
    ):
        job = job_of(tmp_path, "delta", value_schema)
        with pytest.raises(InvalidArgument, match=message):
            take(spark, job, 1, {"id": 2})
        assert job.raw.last_batch(job.ledger.writer) == before == 0
    assert {"id", "at"} <= set(read_typed(spark, first.settings).columns)


def test_a_batch_that_was_half_done_with_other_columns_is_in_one_table_or_the_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise ConnectionAbortedError

    values = ({"id": 1}, {"id": 2**40}, {"id": 3, "n": "x"}, {"id": "x"})
    first, second = (job_of(tmp_path, "delta", f"id {kind}") for kind in ("INT", "BIGINT, n INT"))
    first.prepare(spark)
    assert first._bad is not None
    monkeypatch.setattr(first._bad, "append", killed)
    with pytest.raises(ConnectionAbortedError):
        take(spark, first, 0, *values)
    take(spark, second, 0, *values)
    assert [row["_offset"] for row in read_typed(spark, second.settings).collect()] == [0, 2]
    assert second._bad is not None
    bad = {row["offset"]: row["problem"] for row in second._bad.read(spark).collect()}
    assert bad == {
        1: "value did not fit the columns of before",
        3: "value is not JSON of the given columns",
    }


def test_a_date_that_names_no_folder_is_a_bad_record(spark: SparkSession, tmp_path: Path) -> None:
    """Delta writes it with a year of four digits; an error would end the archive."""
    settings = job_of(tmp_path, "delta", "id INT, born DATE").settings
    job = ArchiveJob(settings.changed({"partition_by": "born"}))
    dates = ["2026-11-15", "12026-11-15", None, "9999-12-31", "0001-01-01", "0000-01-01"]
    values = [{"id": n, "born": day} for n, day in enumerate(dates)]
    take(spark, job, 0, *values)
    found = {row["id"]: row["born"] for row in read_typed(spark, job.settings).collect()}
    assert found == {
        n: day and date.fromisoformat(day) for n, day in enumerate(dates) if n not in (1, 5)
    }
    assert job._bad is not None
    bad = {row["offset"]: row["problem"] for row in job._bad.read(spark).collect()}
    reason = "'born' is of no year from 1 to 9999, and the table is partitioned by it"
    assert bad == {1: reason, 5: reason}


def test_a_type_that_cannot_be_stored_is_refused_before_anything_is_made(
    spark: SparkSession, tmp_path: Path
) -> None:
    wrong = "id BIGINT, at TIMESTAMP_NTZ"
    message = "value_schema has a column 'at' of type timestamp_ntz, which cannot be stored"
    with pytest.raises(InvalidArgument, match=message):
        take(spark, job_of(tmp_path, "delta", wrong), 0, {"id": 1})
    assert not (tmp_path / "lake" / "raw").exists()
    first = job_of(tmp_path, "delta", "id BIGINT")
    take(spark, first, 0, {"id": 1})
    nested = "id BIGINT, who STRUCT<seen: ARRAY<TIMESTAMP_NTZ>>"
    for value_schema in (wrong, nested):
        with pytest.raises(InvalidArgument, match="timestamp_ntz.*, which cannot be stored"):
            job_of(tmp_path, "delta", value_schema).prepare(spark)
        with pytest.raises(InvalidArgument, match="timestamp_ntz.*, which cannot be stored"):
            rebuild(spark, job_of(tmp_path, "delta", value_schema).settings)
    assert read_typed(spark, first.settings).columns[-1] == "id"
