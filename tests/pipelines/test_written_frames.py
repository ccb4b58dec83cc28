"""Rows of DataFrames become files of a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from headrace.pipelines.datafiles import OPEN_FILES_MAX
from headrace.pipelines.table import open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_task_writes_one_file_for_each_value_of_a_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also of more values than it has files open, in rows of several Arrow batches."""
    customers = OPEN_FILES_MAX + 8
    schema = "customer string, at timestamp, n long"
    table = open_table(str(tmp_path / "t"), "delta", schema, partition_by=("customer",), time="at")
    rows = spark.range(0, 30_000, 1, 1).select(
        (F.col("id") % customers).cast("string").alias("customer"),
        F.timestamp_seconds("id").alias("at"),
        F.col("id").alias("n"),
    )
    assert table.append(rows, "w", 0).files == customers
    found = table.rows()
    assert sorted(row["n"] for row in found) == list(range(30_000))
    assert all(row["customer"] == str(row["n"] % customers) for row in found)
