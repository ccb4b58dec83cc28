"""Small files become few large ones, and then there is nothing more to do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.pipelines import datafiles
from headrace.pipelines.table import LakeTable, open_table

MORNING = datetime(2026, 11, 15, 8, tzinfo=UTC)


def table_of(folder: Path) -> LakeTable:
    return open_table(
        str(folder / "t"), "delta", "at timestamp, n long", partition_by=(), time="at"
    )


def append(table: LakeTable, batch: int, rows: int) -> None:
    numbers = range(batch * rows, (batch + 1) * rows)
    table.append_rows([{"at": MORNING + timedelta(seconds=n), "n": n} for n in numbers], "w", batch)


def test_files_of_many_narrow_rows_are_merged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What tasks put into one file at most is no bound for what is small in bytes."""
    monkeypatch.setattr(datafiles, "FILE_ROWS_MAX", 10)
    table = table_of(tmp_path)
    for batch in range(3):
        append(table, batch, 10)
    assert table.compact() == 2
    assert [file.rows for file in table.files()] == [30]
    files = table.files()
    assert table.compact() == 0 and table.files() == files
    assert sorted(row["n"] for row in table.rows()) == list(range(30))


def test_compaction_comes_to_an_end(tmp_path: Path) -> None:
    """Files of all sizes: each pass leaves fewer, or none is touched."""
    table = table_of(tmp_path)
    for batch in range(9):
        append(table, batch, 10 ** (batch % 4))
    size_max = 2 * max(file.size for file in table.files())
    while table.compact(size_max=size_max):
        pass
    files = table.files()
    assert sum(file.size < size_max // 2 for file in files) <= 1
    assert sum(file.rows for file in files) == sum(10 ** (batch % 4) for batch in range(9))
