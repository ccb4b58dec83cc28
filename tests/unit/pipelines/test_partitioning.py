"""Tables in folders of other kinds than days, and values that no folder is named after."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headrace.core.errors import InvalidArgument
from headrace.pipelines.archive.job import ArchiveSettings
from headrace.pipelines.evolving import check_table, evolve_table
from headrace.pipelines.partitioning import folder_of, is_in_its_folder, partition_columns
from headrace.pipelines.rollup.job import RollupSettings
from headrace.pipelines.settings import StreamSettings
from headrace.pipelines.table import LakeTable, open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MORNING = datetime(2026, 11, 15, 8, tzinfo=UTC)
SCHEMA = "country string, at timestamp, n long"
ODD = [
    "plain", "a/b", "x y ", "é 日本", "q=1&r?#%", "__HIVE_DEFAULT_PARTITION__", "long " * 200,
    "日" * 400, None, "a:b*c[d]{e}^'\"\\", ".", "..", "tab\tline\n", "~", "+", "%2F", "a" * 300,
]  # fmt: skip


def _table(folder: Path, format: str, column: str = "country", schema: str = SCHEMA) -> LakeTable:
    return open_table(str(folder), format, schema, partition_by=(column,), time="at")


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_every_value_of_a_partition_comes_back_as_it_was(tmp_path: Path, format: str) -> None:
    table = _table(tmp_path / "t", format)
    rows = [{"country": v, "at": MORNING, "n": n} for n, v in enumerate(ODD)]
    for batch in range(2):
        table.append_rows(rows, "w", batch)
    expected = sorted((n, v) for n, v in enumerate(ODD) for _ in range(2))

    def found(rows: list[dict[str, Any]]) -> list[tuple[int, str | None]]:
        return sorted((row["n"], row["country"]) for row in rows)

    assert found(table.rows()) == expected
    if format == "delta":
        # The reader of Delta itself.
        theirs = pa.table(DeltaTable(str(tmp_path / "t")).scan().read_all()).to_pylist()
        assert found(theirs) == expected
    assert table.compact() == len(ODD) and len(table.files()) == len(ODD)
    assert found(table.rows()) == expected


def test_folders_are_named_as_hive_names_them() -> None:
    assert folder_of({"date": "2026-11-15", "hour": "08"}) == "date=2026-11-15/hour=08"
    assert folder_of({"k": "a/b=c%"}) == "k=a%2Fb%3Dc%25"
    assert folder_of({"k": None}) == "k=__HIVE_DEFAULT_PARTITION__"
    long = folder_of({"k": "/" * 300}), folder_of({"k": "/" * 301})
    assert len(set(long)) == 2 and all(len(each) <= 200 for each in long)
    assert is_in_its_folder("k=a%2Fb/part-1.parquet", {"k": "a/b"})
    assert not is_in_its_folder(f"{long[0]}/part-1.parquet", {"k": "/" * 300})
    assert is_in_its_folder("part-1.parquet", {})


def test_numbers_and_nothing_are_partitions_too(tmp_path: Path) -> None:
    table = _table(tmp_path / "t", "delta", "n")
    rows = [{"country": "DE", "at": MORNING, "n": n} for n in (1, 2, None)]
    table.append_rows(rows, "w", 0)
    assert {file.partition["n"] for file in table.files()} == {"1", "2", None}
    assert sorted(row["n"] or 0 for row in table.rows()) == [0, 1, 2]
    theirs = pa.table(DeltaTable(str(tmp_path / "t")).scan().read_all()).to_pylist()
    assert sorted(row["n"] or 0 for row in theirs) == [0, 1, 2]


def test_the_ends_of_a_topic_are_known_however_its_table_is_partitioned(tmp_path: Path) -> None:
    schema = "topic string, partition int, offset long, at timestamp"
    rows = [{"topic": "t", "partition": p, "offset": 7 + p, "at": MORNING} for p in (0, 1)]
    for column in ("topic", "partition", "offset"):
        table = _table(tmp_path / column, "delta", column, schema)
        assert table.append_rows(rows, "w", 0).ends == {"t/0": 8, "t/1": 9}


def test_a_column_that_cannot_name_folders_is_refused(tmp_path: Path) -> None:
    for column, message in (
        ("contry", "the table does not have; it has country, at, n"),
        ("at", "which is timestamp; folders can be named after texts"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            _table(tmp_path / "t", "delta", column)


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_another_partitioning_than_the_table_has_is_refused(tmp_path: Path, format: str) -> None:
    row = {"country": "DE", "at": MORNING, "n": 1}
    _table(tmp_path / "t", format).append_rows([row], "w", 0)
    with pytest.raises(InvalidArgument, match="is partitioned by country and not by n; set"):
        _table(tmp_path / "t", format, "n").append_rows([row], "w", 1)


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_table_of_another_partitioning_does_not_get_new_columns(
    tmp_path: Path, format: str
) -> None:
    """Files that are written for the settings would be lost to readers of the table."""
    row = {"country": "DE", "at": MORNING, "n": 1}
    table = _table(tmp_path / "t", format)
    table.append_rows([row], "w", 0)
    columns = table.stored_schema()
    for schema in (f"{SCHEMA}, name string", SCHEMA):
        other = _table(tmp_path / "t", format, "n", schema)
        with pytest.raises(InvalidArgument, match="is partitioned by country and not by n; set"):
            check_table(other)
        with pytest.raises(InvalidArgument, match="is partitioned by country and not by n; set"):
            evolve_table(other, cast("SparkSession", None), writers=["w"])
    assert table.stored_schema() == columns


def test_what_partition_by_may_say() -> None:
    assert partition_columns("day", "date") == ("date",)
    assert partition_columns("hour", "_date") == ("_date", "_hour")
    assert partition_columns("none", "date") == ()
    settings = StreamSettings(partition_by="country")
    assert settings.partition_columns("date", ["date", "country"]) == ("country",)
    assert settings.partition_columns("date", ["date"]) == ("date",)
    values = {"servers": "x:1", "topic": "t", "lake": "lake"}
    typed = {"value_format": "json", "value_schema": "id BIGINT, country STRING"}
    typed["value_schema"] += ", at STRUCT<day_of: DATE, n: INT>, total DECIMAL(9, 2), `a b`: INT"
    for choice in ("hour", "none", "topic", "country", "total", "a b"):
        assert ArchiveSettings.from_mapping(values | typed | {"partition_by": choice})
    # A word of the schema is not a column of the table, and `Country` would be no column of it.
    for wrong, message in (
        ("contry", "'contry', which no table of the pipeline has"),
        ("BIGINT", "'BIGINT', which no table of the pipeline has"),
        ("day_of", "'day_of', which no table of the pipeline has"),
        ("Country", "'Country', and the table has 'country'; write it so"),
        ("Topic", "'Topic', and the table has 'topic'; write it so"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            ArchiveSettings.from_mapping(values | typed | {"partition_by": wrong})
    with pytest.raises(InvalidArgument, match="partition_by is for the archive"):
        RollupSettings.from_mapping(values | {"partition_by": "hour"})


def test_many_partitions_at_once_do_not_keep_all_their_files_open(tmp_path: Path) -> None:
    table = _table(tmp_path / "t", "delta", "n")
    rows = [{"country": "DE", "at": MORNING + timedelta(hours=n), "n": n} for n in range(100)]
    assert table.append_rows(rows, "w", 0).files == 100
    assert sorted(row["n"] for row in table.rows()) == list(range(100))
