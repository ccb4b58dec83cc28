"""The archive when it is started again with another `value_schema`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.pipelines.conftest import record, records
from tests.pipelines.object_store import ObjectStore

from headrace.core.errors import InvalidArgument
from headrace.pipelines.archive.job import ArchiveJob, ArchiveSettings
from headrace.pipelines.archive.reading import read_typed
from headrace.pipelines.archive.rebuild import rebuild
from headrace.pipelines.store import Store

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


def _typed(
    spark: SparkSession,
    job: ArchiveJob,
    names: Sequence[str] = ("id", "total", "note", "who", "tags"),
) -> dict[int, tuple[Any, ...]]:
    """By offset; our reader and delta-rs have to agree."""
    rows = [row.asDict(recursive=True) for row in read_typed(spark, job.settings).collect()]
    found = {row["_offset"]: tuple(row[name] for name in names) for row in rows}
    assert len(found) == len(rows)
    if job.settings.format == "delta":
        from deltalake import DeltaTable, QueryBuilder

        store = Store(job.settings.table_path("typed"), job.settings.storage)
        table = DeltaTable(store.uri, storage_options=store.delta_options())
        by_rows = table.to_pyarrow_table().to_pylist()
        query = QueryBuilder().register("typed", table).execute("SELECT * FROM typed")
        for others in (by_rows, pa.table(query.read_all()).to_pylist()):
            theirs = {r["_offset"]: tuple(_plain(r[name]) for name in names) for r in others}
            assert theirs == found
    return found


def _plain(value: Any) -> Any:
    """Arrow has a map as a list of pairs."""
    is_map = isinstance(value, list) and value and isinstance(value[0], tuple)
    return dict(value) if is_map else value


NESTED = (
    "id BIGINT, old_name STRING, total DECIMAL(9, 2), parts ARRAY<STRUCT<a: INT>>, "
    "by_key MAP<STRING, STRUCT<a: INT>>"
)
# Another order, another name, and a field more in a list: files stay as they are.
ADDED = (
    "by_key MAP<STRING, STRUCT<a: INT>>, parts ARRAY<STRUCT<b: STRING, a: INT>>, "
    "total DECIMAL(9, 2), new_name STRING, id BIGINT"
)
# More digits, and a field more in a map: files are written anew.
REWRITTEN = ADDED.replace("(9, 2)", "(12, 3)").replace(
    "<a: INT>>, parts", "<b: INT, a: INT>>, parts"
)


@pytest.mark.parametrize("place", ["folder", "bucket"])
def test_lists_maps_decimals_and_names_are_followed_in_both_stores(
    spark: SparkSession, tmp_path: Path, s3: ObjectStore, place: str
) -> None:
    """In a folder Spark reads older files, and in a bucket pyarrow does."""
    where: dict[str, Any] = {}
    if place == "bucket":
        where = {"lake": f"s3://{s3.new_bucket()}/lake", "storage": s3.options, "checkpoint": "/c"}

    def job(value_schema: str) -> ArchiveJob:
        return ArchiveJob(job_of(tmp_path, "delta", value_schema).settings.changed(where))

    first = {
        "id": 1,
        "old_name": "o",
        "total": 1.25,
        "parts": [{"a": 1}],
        "by_key": {"k": {"a": 1}},
    }
    take(spark, job(NESTED), 0, first, {"id": 2})
    added, rewritten = job(ADDED), job(REWRITTEN)
    typed = added.settings.table_path("typed")
    assert [each.removeprefix(f"{typed}: ") for each in added.prepare(spark)] == [
        "new column parts.b string",
        "new column new_name string",
    ]
    second = {"id": 3, "new_name": "n", "total": 2.5, "parts": [{"b": "x", "a": 2}, {}]}
    take(spark, added, 1, second)
    nothing: tuple[Any, ...] = (None,) * 4
    expected = {
        0: (1, "o", Decimal("1.25"), [{"a": 1, "b": None}], {"k": {"a": 1}}, None),
        1: (2, *nothing, None),
        100: (3, None, Decimal("2.5"), [{"a": 2, "b": "x"}, {"a": None, "b": None}], None, "n"),
    }
    names = ("id", "old_name", "total", "parts", "by_key", "new_name")
    assert _typed(spark, added, names) == expected
    assert [each.removeprefix(f"{typed}: ") for each in rewritten.prepare(spark)] == [
        "wider column total decimal(9,2) to decimal(12,3)",
        "wider column by_key.b int",
    ]
    third = {"id": 4, "total": 123456789.125, "by_key": {"k": {"a": 4, "b": 5}}}
    take(spark, rewritten, 2, third)
    expected[0] = (*expected[0][:4], {"k": {"a": 1, "b": None}}, None)
    expected[200] = (4, None, Decimal("123456789.125"), None, {"k": {"a": 4, "b": 5}}, None)
    assert _typed(spark, rewritten, names) == expected
    rewritten.compact(spark)
    assert _typed(spark, rewritten, names) == expected


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
