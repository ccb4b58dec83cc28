"""Logs whose tables change: other columns, files for files, and drivers that meet."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from headrace.core.errors import InvalidArgument
from headrace.pipelines import delta_changes
from headrace.pipelines.datafiles import DataFile, TaskFiles, file_prefix
from headrace.pipelines.schema import arrow_schema, schema_of
from headrace.pipelines.table import LakeTable, open_table

MORNING = datetime(2026, 11, 15, 8, tzinfo=UTC)
FORMATS = ["delta", "parquet"]
ONE = "date string, at timestamp, n int"
TWO = f"{ONE}, name string"
WIDE = "date string, at timestamp, n long"


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "table"


def table_of(folder: Path, format: str, schema: str) -> LakeTable:
    return open_table(str(folder), format, schema, partition_by=("date",), time="at")


def rows(*numbers: int, **more: Any) -> list[dict[str, Any]]:
    return [{"date": f"2026-11-{15 + n % 2}", "at": MORNING, "n": n} | more for n in numbers]


def files(table: LakeTable, written: list[dict[str, Any]], prefix: str = "x") -> list[DataFile]:
    import pyarrow as pa

    schema = arrow_schema(table.schema)
    task = TaskFiles(table.location, table.shape, prefix, schema)
    task.add(pa.RecordBatch.from_pylist(written, schema=schema))
    return task.close()


def read(table: LakeTable) -> list[tuple[Any, ...]]:
    """As everybody reads it: by delta-rs, or the files that are named by our log."""
    names = [f.name for f in table.stored_schema() or () if f.name not in ("date", "at")]
    if (Path(table.location) / "_delta_log").exists():
        from deltalake import DeltaTable

        found = DeltaTable(table.location).to_pyarrow_table().to_pylist()
    else:
        opened = table_of(Path(table.location), "parquet", ONE)
        opened.schema = table.stored_schema() or StructType()
        found = opened.rows()
    return sorted(tuple(row[name] for name in names) for row in found)


def test_a_column_is_added_by_the_log_alone(folder: Path, format: str) -> None:
    table = table_of(folder, format, ONE)
    assert table.stored_schema() is None
    table.append_rows(rows(1, 2), "w", 0)
    assert table.stored_schema() == schema_of(ONE)
    assert table.log.replace((), (), seen={}, schema=schema_of(TWO))
    later = table_of(folder, format, TWO)
    assert later.stored_schema() == schema_of(TWO)
    later.append_rows(rows(3, name="c"), "w", 1)
    # One who began before goes on: the column that it does not know is null.
    table.append_rows(rows(4), "w", 2)
    assert read(later) == [(1, None), (2, None), (3, "c"), (4, None)]


def test_rows_that_do_not_fit_are_not_taken(folder: Path, format: str) -> None:
    table = table_of(folder, format, ONE)
    table.append_rows(rows(1), "w", 0)
    for schema, message in (
        (TWO, "new column name string"),
        (WIDE, "wider column n int to bigint"),
        (ONE.replace("int", "string"), "column 'n' is int in the table and string"),
    ):
        other = table_of(folder, format, schema)
        with pytest.raises(InvalidArgument, match=message):
            other._commit(files(table, rows(2)), "w", 1)
    assert read(table) == [(1,)] and table.last_batch("w") == 0


def test_files_and_columns_are_replaced_in_one_commit(folder: Path, format: str) -> None:
    table = table_of(folder, format, ONE)
    table.append_rows(rows(1, 2), "w", 0)
    before = _commits(folder)
    wide = table_of(folder, format, WIDE)
    new = files(wide, rows(1, 2**40))
    assert table.log.replace(new, table.files(), seen={"w": 3}, schema=schema_of(WIDE))
    assert _commits(folder) == before + 1
    assert read(wide) == [(1,), (2**40,)]
    assert wide.stored_schema() == schema_of(WIDE) and wide.last_batch("w") == 3
    # The writer's batches up to there are in, and rows of the old columns do not fit.
    assert wide.append_rows(rows(7), "w", 3).skipped
    with pytest.raises(InvalidArgument, match="is bigint in the table and int"):
        table.append_rows(rows(8), "w", 4)
    wide.append_rows(rows(9), "w", 4)
    assert read(wide) == [(1,), (9,), (2**40,)]


def test_a_part_of_the_files_is_replaced_while_the_columns_stay(folder: Path, format: str) -> None:
    table = table_of(folder, format, ONE)
    table.append_rows(rows(1, 2), "w", 0)
    odd = [file for file in table.files() if file.partition["date"] == "2026-11-16"]
    new = files(table, rows(11))
    assert not table.log.replace(new, odd, seen={"w": 0}, schema=schema_of(WIDE))
    assert table.log.replace(files(table, rows(11)), odd, seen={"w": 0}, schema=schema_of(ONE))
    assert read(table) == [(2,), (11,)]


def test_nothing_is_replaced_when_the_table_has_gone_on(folder: Path, format: str) -> None:
    table = table_of(folder, format, ONE)
    table.append_rows(rows(1), "w", 0)
    seen = table.files()
    table.append_rows(rows(2), "w", 1)
    assert not table.log.replace(
        files(table, rows(5)), seen, seen={"w": 0}, schema=schema_of(ONE)
    ), "a later batch is in"
    wide = table_of(folder, format, WIDE)
    assert not table.log.replace(
        files(wide, rows(5)), seen, seen={"w": 1}, schema=schema_of(WIDE)
    ), "a file would be of another type than the table says"
    # A compaction that takes the files away, and one that comes too late.
    merged = files(table, rows(1, 2), "compacted")
    late = files(table, rows(1, 2), "compacted")
    old = table.files()
    assert table.log.commit(merged, old, transaction=None, data_change=False)
    assert not table.log.commit(late, old, transaction=None, data_change=False)
    assert not table.log.replace(files(table, rows(5)), old, seen={}, schema=schema_of(ONE))
    assert read(table) == [(1,), (2,)]


def test_a_replacement_that_is_in_is_done_though_its_files_are_merged_already(
    folder: Path, meets: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer was lost; one of its files is still there, and no other commit has it."""
    table, other = table_of(folder, "delta", ONE), table_of(folder, "delta", ONE)
    table.append_rows(rows(1), "w", 0)
    new, old = files(table, rows(2, 3, 5)), table.files()
    assert len(new) == 2

    def first() -> None:
        assert other.log.replace(new, old, seen={"w": 0}, schema=schema_of(ONE))
        gone = [file for file in new if file.partition["date"] == "2026-11-16"]
        merged = files(other, rows(3, 5), "compacted")
        assert other.log.commit(merged, gone, transaction=None, data_change=False)

    meets.append(first)
    assert table.log.replace(new, old, seen={"w": 0}, schema=schema_of(ONE))
    assert read(table) == [(2,), (3,), (5,)]


def test_a_commit_whose_answer_is_lost_is_known_to_be_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS asks again for a link whose answer it did not get, and meets its own."""
    real = os.link

    def link(*arguments: Any) -> None:
        real(*arguments)
        raise FileExistsError

    monkeypatch.setattr(os, "link", link)
    table = table_of(folder, "parquet", ONE)
    assert not table.append_rows(rows(1, 2), "w", 0).skipped
    assert table.log.replace(files(table, rows(3)), table.files(), seen={}, schema=schema_of(ONE))
    assert read(table) == [(3,)] and _commits(folder) == 2


def test_leftovers_of_a_replacement_that_was_killed_are_deleted(folder: Path) -> None:
    """From the folder of a table that is read without its log."""
    table = table_of(folder, "parquet", ONE)
    table.append_rows(rows(1), "w", 0)
    prefix = f"rebuilt-{file_prefix('w', 0)}"
    files(table, rows(1), prefix)
    done = files(table, rows(1), prefix)
    assert table.log.replace(done, table.files(), seen={"w": 0}, schema=schema_of(ONE))
    assert [str(p.relative_to(folder)) for p in folder.rglob("*.parquet")] == [done[0].path]


def test_columns_of_an_old_log_are_those_of_its_files(folder: Path) -> None:
    table = table_of(folder, "parquet", ONE)
    table.append_rows(rows(1), "w", 0)
    table.log.replace((), (), seen={}, schema=schema_of(TWO))
    table_of(folder, "parquet", TWO).append_rows(rows(2, name="b"), "w", 1)
    for path in (folder / "_headrace_log").iterdir():
        document = json.loads(path.read_text())
        document.pop("schema", None)
        path.write_text(json.dumps(document))
    old = table_of(folder, "parquet", ONE)
    assert old.log.schema() is None
    assert old.stored_schema() == schema_of(TWO)
    damaged = files(table_of(folder, "parquet", WIDE), rows(4))
    assert old.log.commit(damaged, (), transaction=None, data_change=True)
    with pytest.raises(InvalidArgument, match="contradict each other.*pipeline rebuild"):
        old.stored_schema()


@pytest.fixture
def meets(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What happens between looking at a Delta table and the first commit to it."""
    events: list[Any] = []
    real = delta_changes._commit

    def commit(*arguments: Any) -> None:
        while events:
            events.pop(0)()
        real(*arguments)

    monkeypatch.setattr(delta_changes, "_commit", commit)
    yield events
    assert not events


def test_a_batch_or_a_compaction_that_comes_between_ends_a_replacement(
    folder: Path, meets: list[Any]
) -> None:
    table, other = table_of(folder, "delta", ONE), table_of(folder, "delta", ONE)
    table.append_rows(rows(1), "w", 0)

    def check(schema: str, number: int) -> None:
        new = files(table_of(folder, "delta", schema), rows(5))
        meets.append(lambda: other.append_rows(rows(number + 1), "w", number))
        seen = {"w": number - 1}
        assert not table.log.replace(new, table.files(), seen=seen, schema=schema_of(schema))
        old = table.files()
        merged = files(table, rows(*range(1, number + 2)), "compacted")
        meets.append(lambda: other.log.commit(merged, old, transaction=None, data_change=False))
        assert not table.log.replace(new, old, seen={"w": number}, schema=schema_of(schema))

    check(ONE, 1)
    check(WIDE, 2)
    assert read(table) == [(1,), (2,), (3,)]


def test_a_batch_that_meets_a_replacement_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are in the table once: beside the new files, or not at all when the
    replacement has them."""
    from deltalake import DeltaTable

    table, other = table_of(folder, "delta", ONE), table_of(folder, "delta", ONE)
    table.append_rows(rows(1), "w", 0)
    real = DeltaTable.create_write_transaction
    events: list[Any] = []

    def commit(self: DeltaTable, *arguments: Any, **named: Any) -> None:
        while events:
            events.pop(0)()
        real(self, *arguments, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)
    old = table.files()
    new = files(table, rows(11))
    events.append(lambda: other.log.replace(new, old, seen={"w": 0}, schema=schema_of(ONE)))
    assert not table.append_rows(rows(2), "w", 1).skipped
    assert read(table) == [(2,), (11,)]
    old, new = table.files(), files(table, rows(11, 2, 3))
    events.append(lambda: other.log.replace(new, old, seen={"w": 2}, schema=schema_of(ONE)))
    assert table.append_rows(rows(3), "w", 2).skipped
    assert read(table) == [(2,), (3,), (11,)]


def _commits(folder: Path) -> int:
    return len(list(folder.glob("_*_log/*.json")))
