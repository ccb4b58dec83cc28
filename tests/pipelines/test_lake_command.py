"""`headrace lake`: tables stay as they are while their files become fewer."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable
from tests.pipelines.object_store import ObjectStore

from headrace.cli.main import cli
from headrace.pipelines import maintenance
from headrace.pipelines.datafiles import TaskFiles, file_prefix
from headrace.pipelines.ledger import Done, Ledger
from headrace.pipelines.maintenance import tables_of
from headrace.pipelines.schema import arrow_schema
from headrace.pipelines.store import Store
from headrace.pipelines.table import LakeTable, open_table

MORNING = datetime(2026, 11, 15, 8, tzinfo=UTC)
MORNING_US = int(MORNING.timestamp() * 1_000_000)
SCHEMA = "date string, topic string, partition int, offset long, timestamp timestamp, value binary"
DAY_SECONDS = 86_400


def _raw(lake: str, format: str = "delta", storage: dict[str, str] | None = None) -> LakeTable:
    return open_table(
        f"{lake}/raw", format, SCHEMA, partition_by=("date",), time="timestamp", storage=storage
    )


def _rows(batch: int, count: int = 10) -> list[dict[str, Any]]:
    return [
        {
            "date": f"2026-11-{15 + n % 2}", "topic": "t", "partition": n % 3,
            "offset": batch * count + n, "timestamp": MORNING + timedelta(minutes=batch, seconds=n),
            "value": b"v%d" % n,
        }
        for n in range(count)
    ]  # fmt: skip


def _fill(lake: str, format: str = "delta", storage: dict[str, str] | None = None) -> LakeTable:
    """Six batches, and their rows in the ledger."""
    table = _raw(lake, format, storage)
    ledger = Ledger(lake, format, "archive-t", storage)
    for batch in range(6):
        done = table.append_rows(_rows(batch), "archive-t", batch)
        ledger.write(Done("archive-t", batch, "q", 10, 10, 0, 0, None, done.ends, MORNING, MORNING))
    return table


def _lake(*words: str) -> Result:
    return CliRunner().invoke(cli, ["lake", *words])


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["offset"]))


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_optimize_makes_few_files_of_many_and_changes_no_row(tmp_path: Path, format: str) -> None:
    lake = str(tmp_path / "lake")
    table = _fill(lake, format)
    rows = _sorted(table.rows())
    result = _lake("optimize", lake, "--dry-run")
    assert result.stdout.splitlines() == ["batches: 6 files would be 1", "raw: 12 files would be 2"]
    assert len(table.files()) == 12
    result = _lake("optimize", lake)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("batches: 6 files became 1, ")
    assert lines[1].startswith("raw: 12 files became 2, ")
    assert _sorted(table.rows()) == rows
    # What the ledger and the seam rely on.
    assert table.last_batch("archive-t") == 5
    assert table.append_rows(_rows(5), "archive-t", 5).skipped
    ledger = Ledger(lake, format, "archive-t")
    last = ledger.last()
    assert last is not None and ledger.totals().batches == 6
    assert (last.batch, last.ends) == (5, {"t/0": 60, "t/1": 58, "t/2": 59})
    # A merged file has the range of times of those that it was made of.
    assert {(file.low_us, file.high_us) for file in table.files()} == {
        (MORNING_US, MORNING_US + 5 * 60_000_000 + 8_000_000),
        (MORNING_US + 1_000_000, MORNING_US + 5 * 60_000_000 + 9_000_000),
    }
    assert sum(file.rows for file in table.files()) == 60
    shown = json.loads(_lake("tables", lake, "--json").stdout)
    assert [(each["table"], each["rows"], each["files"]) for each in shown] == [
        ("batches", 6, 1),
        ("raw", 60, 2),
    ]
    # There is nothing left to do.
    again = _lake("optimize", lake, "--table", "raw")
    assert again.stdout.startswith("raw: 2 files became 2, ")


def test_optimize_keeps_columns_that_only_some_files_have(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    wide = open_table(
        f"{lake}/typed", "delta", "_date string, _timestamp timestamp, id long, name string",
        partition_by=("_date",), time="_timestamp",
    )  # fmt: skip
    narrow = open_table(
        f"{lake}/typed", "delta", "_date string, _timestamp timestamp, id long",
        partition_by=("_date",), time="_timestamp",
    )  # fmt: skip
    base = {"_date": "2026-11-15", "_timestamp": MORNING}
    wide.append_rows([base | {"id": 1, "name": "one"}], "w", 0)
    narrow.append_rows([base | {"id": 2}], "w", 1)
    # Also where the process that compacts knows the narrow one.
    assert narrow.compact() == 1
    assert sorted((row["id"], row["name"]) for row in wide.rows()) == [(1, "one"), (2, None)]


def test_z_order_sorts_what_conditions_ask_for(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    table = _fill(lake)
    rows = _sorted(table.rows())
    result = _lake("optimize", lake, "--table", "raw", "--z-order", "partition,offset")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("raw: 12 files became 2, ")
    found = table.rows()
    assert found != rows and _sorted(found) == rows
    assert table.last_batch("archive-t") == 5
    one = _lake("optimize", lake, "--table", "raw", "--z-order", "offset")
    assert one.exit_code == 0
    offsets = [row["offset"] for row in table.rows() if row["date"] == "2026-11-15"]
    assert offsets == sorted(offsets)
    for words, message in (
        (("--z-order", "offset"), "say which one with --table"),
        (("--table", "raw", "--z-order", "ofset"), "there is no column 'ofset'"),
        (("--table", "raw", "--z-order", "date"), "'date' is the same in all rows of a file"),
        (("--table", "wrong"), "there is no table 'wrong'"),
    ):
        refused = _lake("optimize", lake, *words)
        assert refused.exit_code == 2 and message in refused.stderr, refused.stderr


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_vacuum_deletes_what_no_table_has_and_only_after_a_week(
    tmp_path: Path, format: str
) -> None:
    lake = str(tmp_path / "lake")
    table = _fill(lake, format)
    rows = _sorted(table.rows())
    batch = pa.RecordBatch.from_pylist(_rows(9), schema=arrow_schema(table.schema))
    for number in range(2):
        files = TaskFiles(
            table.store, table.shape, file_prefix("killed", number), arrow_schema(table.schema)
        ).write([batch])
        for file in files:
            path = tmp_path / "lake" / "raw" / file.path
            age = DAY_SECONDS * (8 if number else 6)
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - age))
    before = len(list((tmp_path / "lake" / "raw").rglob("*.parquet")))
    result = _lake("vacuum", lake, "--table", "raw", "--dry-run")
    assert result.exit_code == 0 and result.stdout.startswith("raw: 2 files would be deleted, ")
    assert len(list((tmp_path / "lake" / "raw").rglob("*.parquet"))) == before
    short = _lake("vacuum", lake, "--retention", "5d")
    assert short.exit_code == 2 and "less than a week" in short.stderr
    assert _lake("vacuum", lake, "--table", "raw").stdout.startswith("raw: 2 files deleted, ")
    forced = _lake("vacuum", lake, "--table", "raw", "--retention", "5d", "--force")
    assert forced.stdout.startswith("raw: 2 files deleted, ")
    assert _sorted(table.rows()) == rows
    if format == "delta":
        assert DeltaTable(f"{lake}/raw").count() == 60


def test_optimize_and_a_pipeline_at_once_keep_each_row_once(tmp_path: Path) -> None:
    """A pipeline appends, compacts and drops while a lake is optimized, and another time."""
    lake = str(tmp_path / "lake")
    _fill(lake)
    failures: list[BaseException] = []
    begin = threading.Barrier(3)

    def guarded(work: Any) -> None:
        try:
            begin.wait()
            work()
        except BaseException as error:
            failures.append(error)

    def pipeline() -> None:
        table = _raw(lake)
        for batch in range(6, 16):
            table.append_rows(_rows(batch), "archive-t", batch)
            if batch % 3 == 0:
                table.compact()

    def optimize() -> None:
        for _ in range(4):
            for table in tables_of(Store(lake)):
                maintenance.optimize(table)

    threads = [
        threading.Thread(target=guarded, args=(work,)) for work in (pipeline, optimize, optimize)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert sorted(row["offset"] for row in _raw(lake).rows()) == list(range(160))
    assert DeltaTable(f"{lake}/raw").count() == 160


def test_a_lake_in_s3_is_found_by_the_settings_of_its_pipeline(
    s3: ObjectStore, tmp_path: Path
) -> None:
    lake = f"s3://{s3.new_bucket()}/orders"
    table = _fill(lake, storage=s3.options)
    config = tmp_path / "archive.toml"
    storage = "".join(f"{name} = {json.dumps(value)}\n" for name, value in s3.options.items())
    config.write_text(f'lake = "{lake}"\n[storage]\n{storage}')
    result = _lake("optimize", "--config", str(config))
    assert result.exit_code == 0, result.output
    assert "raw: 12 files became 2, " in result.stdout
    assert len(table.rows()) == 60
    assert (
        "raw: 0 files would be deleted"
        in _lake("vacuum", "--config", str(config), "--dry-run").stdout
    )
    forced = _lake("vacuum", "--config", str(config), "--retention", "0s", "--force")
    assert "raw: 12 files deleted, " in forced.stdout
    assert len(table.rows()) == 60
    there = [item for item in Store(lake, s3.options).items(recursive=True) if "raw" in item.path]
    assert sum(item.path.endswith(".parquet") and "_delta" not in item.path for item in there) == 2


def test_a_lake_that_is_not_there_is_told(tmp_path: Path) -> None:
    for words, message in (
        ((), "no lake is named"),
        ((str(tmp_path),), "there is no table in"),
        ((str(tmp_path / "nowhere"),), "there is no table in"),
        (("s3:///x",), "names no bucket"),
    ):
        result = _lake("optimize", *words)
        assert result.exit_code == 2 and message in result.stderr, result.output
