"""Files are read as far as they are wanted: columns, stretches, older files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.pipelines.datafiles import DataFile
from headrace.pipelines.file_reading import Bounds, file_groups, read_batches, schema_of_files
from headrace.pipelines.schema import arrow_schema, schema_of
from headrace.pipelines.table import LakeTable, open_table

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp() * 1_000_000)
SCHEMA = "partition int, offset long, timestamp timestamp, value string"


def _table(folder: Path, column: str) -> LakeTable:
    """Partitions 0 and 1 with the offsets 0 to 9, a minute each."""
    table = open_table(str(folder / "t"), "delta", SCHEMA, partition_by=(column,), time="timestamp")
    rows = [
        {"partition": p, "offset": n, "timestamp": NOON + timedelta(minutes=n), "value": "v"}
        for n in range(10)
        for p in (0, 1)
    ]
    table.append_rows(rows, "w", 0)
    return table


@pytest.mark.parametrize("column", ["value", "partition"])
@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ([], 20),
        ([{"offset": (3, 5)}], 4),
        ([{"offset": (8, None)}, {"offset": (None, 1)}], 6),
        ([{"partition": (0, 1), "offset": (0, 2)}, {"partition": (1, 2), "offset": (9, 10)}], 3),
        ([{"partition": (7, 8), "offset": (0, 2)}], 0),
        ([{"timestamp": (NOON_US + 60_000_000, NOON_US + 120_000_000)}], 2),
        # Nothing is known of such a column, so all rows may be meant.
        ([{"unknown": (0, 1)}], 20),
    ],
)
def test_rows_out_of_bounds_are_not_read(
    tmp_path: Path, column: str, bounds: list[Bounds], expected: int
) -> None:
    table = _table(tmp_path, column)
    batches = read_batches(table.store, table.files(), arrow_schema(table.schema), bounds)
    assert sum(batch.num_rows for batch in batches) == expected


def test_only_the_columns_that_are_wanted_are_read(tmp_path: Path) -> None:
    table = _table(tmp_path, "partition")
    wanted = arrow_schema(schema_of("offset long, partition int"))
    rows = pa.Table.from_batches(read_batches(table.store, table.files(), wanted)).to_pylist()
    assert sorted((row["partition"], row["offset"]) for row in rows) == [
        (p, n) for p in (0, 1) for n in range(10)
    ]


def test_a_file_that_is_older_than_a_column_has_nulls_there(tmp_path: Path) -> None:
    table = _table(tmp_path, "partition")
    newer = arrow_schema(schema_of("offset long, added struct<a:long>"))
    rows = [row for batch in read_batches(table.store, table.files(), newer) for row in
            batch.to_pylist()]  # fmt: skip
    assert len(rows) == 20 and all(row["added"] is None for row in rows)
    assert schema_of_files(table.store, table.files()).names == ["offset", "timestamp", "value"]


def test_files_are_shared_out_among_tasks() -> None:
    files = [DataFile(f"{n}", 10, 1, {}, None, None, {}) for n in range(10)]
    groups = file_groups(files, 4)
    assert len(groups) == 5 and [file for group in groups for file in group] == files
    assert len(file_groups(files, 1)) == 1
    assert len(file_groups(files, 100)) == 10
    big = [file._replace(size=2**30) for file in files]
    assert len(file_groups(big, 1)) == 10
