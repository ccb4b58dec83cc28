"""Logs of tables without Spark: what counts as part of a table, and who was first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.errors import InvalidArgument
from headrace.pipelines.datafiles import DataFile, Shape, TaskFiles, file_prefix
from headrace.pipelines.file_reading import read_batches
from headrace.pipelines.ledger import Done, Ledger, check_written, writers_of
from headrace.pipelines.table import TableLog, open_log, open_table

SHAPE = Shape(("date",), "at")
SCHEMA = pa.schema([("date", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])
MORNING = datetime(2026, 11, 15, 8, tzinfo=UTC)
FORMATS = ["delta", "parquet"]


@pytest.fixture(params=FORMATS)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> TableLog:
    log = open_log(str(tmp_path / "table"), request.param, "at")
    log.create(SCHEMA, SHAPE)
    return log


def _write(folder: Path, numbers: range, batch: int, writer: str = "w") -> list[DataFile]:
    files = TaskFiles(str(folder / "table"), SHAPE, file_prefix(writer, batch), SCHEMA)
    rows = [{"date": f"2026-11-{15 + n % 2}", "at": MORNING, "n": n} for n in numbers]
    files.add(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    return files.close()


def test_a_batch_is_taken_once_and_the_second_time_refused(log: TableLog, tmp_path: Path) -> None:
    assert log.commit(_write(tmp_path, range(4), 0), (), transaction=("w", 0), data_change=True)
    assert log.last_batch("w") == 0 and log.last_batch("other") is None
    # Another process that saw the table as it was before batch 1.
    assert log.commit(_write(tmp_path, range(4, 8), 1), (), transaction=("w", 1), data_change=True)
    assert sum(file.rows for file in log.files()) == 8
    assert {file.partition["date"] for file in log.files()} == {"2026-11-15", "2026-11-16"}


@pytest.mark.parametrize("format", FORMATS)
def test_of_two_drivers_with_the_same_batch_one_is_refused(tmp_path: Path, format: str) -> None:
    first = open_log(str(tmp_path / "table"), format, "at")
    first.create(SCHEMA, SHAPE)
    second = open_log(str(tmp_path / "table"), format, "at")
    assert second.last_batch("w") is None
    for number, (log, wanted) in enumerate(((first, True), (second, False))):
        files = _write(tmp_path, range(number, 4), 0)
        assert log.commit(files, (), transaction=("w", 0), data_change=True) is wanted
    assert sum(file.rows for file in open_log(str(tmp_path / "table"), format, "at").files()) == 4


def test_of_two_compactions_of_the_same_files_one_is_refused(log: TableLog, tmp_path: Path) -> None:
    log.commit(_write(tmp_path, range(6), 0), (), transaction=("w", 0), data_change=True)
    old = log.files()
    log.commit(_write(tmp_path, range(6), 0, "c"), old, transaction=None, data_change=False)
    again = _write(tmp_path, range(6), 0, "c")
    assert not log.commit(again, old, transaction=None, data_change=False)
    assert sum(file.rows for file in log.files()) == 6


def test_files_that_are_replaced_are_no_longer_part(log: TableLog, tmp_path: Path) -> None:
    log.commit(_write(tmp_path, range(6), 0), (), transaction=("w", 0), data_change=True)
    old = log.files()
    merged = _write(tmp_path, range(6), 0, writer="compaction")
    log.commit(merged, old, transaction=None, data_change=False)
    assert {file.path for file in log.files()} == {file.path for file in merged}
    assert log.last_batch("w") == 0


def test_the_times_of_a_file_come_back_as_they_were(log: TableLog, tmp_path: Path) -> None:
    files = _write(tmp_path, range(1), 0)
    log.commit(files, (), transaction=("w", 0), data_change=True)
    [found] = log.files()
    expected = int(MORNING.timestamp() * 1_000_000)
    assert (found.low_us, found.high_us, found.size) == (expected, expected, files[0].size)


def test_times_that_no_calendar_has_are_taken_too(log: TableLog, tmp_path: Path) -> None:
    [file] = _write(tmp_path, range(1), 0)
    far = [file._replace(low_us=-(2**62), high_us=0), file._replace(low_us=0, high_us=2**63 - 1)]
    for number, each in enumerate(far):
        assert log.commit([each], (), transaction=("w", number), data_change=True)
    assert log.last_batch("w") == 1 and len(log.files()) == 1


def test_leftovers_of_a_killed_attempt_are_deleted_from_the_folder(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "table"), "parquet", "at")
    log.create(SCHEMA, SHAPE)
    killed = _write(tmp_path, range(4), 0)
    others = _write(tmp_path, range(4), 0, writer="somebody else")
    done = _write(tmp_path, range(4), 0)
    log.commit(done, (), transaction=("w", 0), data_change=True)
    there = {str(p.relative_to(tmp_path / "table")) for p in tmp_path.rglob("*.parquet")}
    assert there == {file.path for file in (*done, *others)}
    assert not there & {file.path for file in killed}


def test_plain_parquet_is_refused_where_there_are_no_links(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match='format = "delta" takes object stores'):
        open_log("s3://bucket/table", "parquet", "at")


@pytest.mark.parametrize("format", FORMATS)
def test_a_ledger_is_read_back_and_refuses_another_checkpoint(tmp_path: Path, format: str) -> None:
    def done(batch: int, **changes: Any) -> Done:
        values: dict[str, Any] = {
            "writer": "w", "batch": batch, "query": "q", "rows_in": 5, "rows_out": 3,
            "rows_late": 1, "rows_bad": 1, "watermark_us": 7, "ends": {"t/0": batch},
            "started_at": MORNING, "done_at": MORNING,
        }  # fmt: skip
        return Done(**(values | changes))

    ledger = Ledger(str(tmp_path), format, "w")
    assert ledger.last() is None
    for batch in range(3):
        ledger.write(done(batch))
    Ledger(str(tmp_path), format, "other").write(done(9, writer="other"))
    again = Ledger(str(tmp_path), format, "w")
    assert again.last() == done(2) and again.has(2) and not again.has(3)
    assert again.totals() == (3, 15, 9, 3, 3)
    again.check_query("q", "here")
    with pytest.raises(InvalidArgument, match="another checkpoint than 'here'"):
        again.check_query("another", "here")
    check_written(str(tmp_path), format, "w")
    with pytest.raises(InvalidArgument, match="nothing of the archive 'x', only of 'other', 'w'"):
        check_written(str(tmp_path), format, "x")
    with pytest.raises(InvalidArgument, match="run the archive first"):
        check_written(str(tmp_path / "elsewhere"), format, "w")


@pytest.mark.parametrize("is_compacted", [False, True])
def test_of_a_ledger_no_more_is_read_than_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_compacted: bool
) -> None:
    """It has a row for each batch that ever was, and each has the ends of all partitions."""
    read: list[tuple[int, list[str]]] = []

    def reading(*arguments: Any) -> Iterator[Any]:
        for batch in read_batches(*arguments):
            read.append((batch.num_rows, batch.schema.names))
            yield batch

    ledger = Ledger(str(tmp_path), "delta", "w")
    for batch in range(9):
        ledger.write(Done("w", batch, "q", 1, 1, 0, 0, None, {"t/0": batch}, MORNING, MORNING))
    if is_compacted:
        assert ledger._table.compact() == 8
    monkeypatch.setattr("headrace.pipelines.table.read_batches", reading)
    again = Ledger(str(tmp_path), "delta", "w")
    last = again.last()
    assert last is not None and (last.batch, last.ends) == (8, {"t/0": 8})
    assert sum(rows for rows, _ in read) == 1
    read.clear()
    assert again.totals().batches == 9 and writers_of(str(tmp_path), "delta") == ["w"]
    assert read and not any("ends" in names for _, names in read)


@pytest.mark.parametrize("format", FORMATS)
def test_rows_of_the_driver_make_a_table_without_a_job(tmp_path: Path, format: str) -> None:
    table = open_table(
        str(tmp_path / "few"), format, "at timestamp, n long", partition_by=(), time="at"
    )
    assert table.append_rows([{"at": MORNING, "n": 1}], "w", 0).rows == 1
    assert table.append_rows([{"at": MORNING, "n": 1}], "w", 0).skipped
    assert [row["n"] for row in table.rows()] == [1]
