"""A lake kept in shape: few large files, and none that no table needs.

    optimize    small files of a partition become one, or all are put in a new order
    vacuum      files that no table has had for a week are deleted

Both look at the lake as it lies there: no pipeline's settings are needed, and one may
run on meanwhile. What another process changed first is looked at again.

Rejected: delta-rs's own optimize. It commits behind a commit that took out the same
files, and their rows are then in the table twice; here such a commit is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.core.errors import InvalidArgument
from headrace.pipelines.compaction import (
    COMPACTED_BYTES,
    compact,
    groups_of,
    rewrite_here,
    small_files,
)
from headrace.pipelines.datafiles import Shape
from headrace.pipelines.parquet_log import LOG_FOLDER
from headrace.pipelines.store import Store
from headrace.pipelines.table import again, log_of
from headrace.pipelines.table_log import TableLog

WEEK_HOURS = 7 * 24
# Which column of our tables has the time that their logs keep the range of.
_TIMES = {
    "raw": "timestamp",
    "typed": "_timestamp",
    "latest": "_timestamp",
    "bad": "timestamp",
    "partials": "window_start",
    "rollup_1m": "window_start",
    "rollup_5m": "window_start",
    "rollup_1h": "window_start",
    "late": "ts",
    "batches": "done_at",
}


class Table(NamedTuple):
    name: str
    format: str
    store: Store
    log: TableLog
    time_column: str


class Optimized(NamedTuple):
    name: str
    files_before: int
    files_after: int
    size_before: int
    size_after: int


class Cleaned(NamedTuple):
    name: str
    files: int
    size: int


def tables_of(lake: Store, only: Sequence[str] = ()) -> list[Table]:
    """The tables of a lake, by name; InvalidArgument when there is none, or not one that
    was asked for."""
    lake.check()
    found = []
    for item in sorted(lake.items()):
        if item.is_folder and not item.path.startswith("_"):
            store = lake.below(item.path)
            folders = {each.path for each in store.items() if each.is_folder}
            if "_delta_log" in folders or LOG_FOLDER in folders:
                format = "delta" if "_delta_log" in folders else "parquet"
                time = _TIMES.get(item.path, "")
                log = log_of(store, format, time)
                found.append(Table(item.path, format, store, log, time))
    names = [table.name for table in found]
    if not found:
        raise InvalidArgument(
            f"there is no table in {lake.uri}; name the folder that has a pipeline's tables, as "
            "in lake = ... of its settings"
        )
    for name in only:
        if name not in names:
            raise InvalidArgument(
                f"there is no table {name!r} in {lake.uri}; there are: {', '.join(names)}"
            )
    return [table for table in found if not only or table.name in only]


def optimize(
    table: Table,
    *,
    size_max: int = COMPACTED_BYTES,
    order_by: Sequence[str] = (),
    dry_run: bool = False,
    advance: Callable[[int], None] = lambda files: None,
) -> Optimized:
    """Merge small files; with `order_by`, put the rows of all files in Z-order by these
    columns. `advance` is told how many files were dealt with."""
    before = table.log.files()
    size_before = sum(file.size for file in before)
    if dry_run:
        groups = groups_of(before, size_max) if order_by else small_files(before, size_max)
        fewer = sum(len(group) - 1 for group in groups)
        return Optimized(table.name, len(before), len(before) - fewer, size_before, size_before)
    shape = Shape(table.log.partition_by() or (), table.time_column)

    def attempt() -> int:
        return compact(
            table.store,
            table.log,
            shape,
            rewrite_here,
            size_max=size_max,
            order_by=order_by,
            advance=advance,
        )

    again(attempt)
    after = table.log.files()
    return Optimized(
        table.name, len(before), len(after), size_before, sum(file.size for file in after)
    )


def vacuum(table: Table, *, retention_hours: int, dry_run: bool) -> Cleaned:
    done = table.log.vacuum(retention_hours, dry_run=dry_run)
    return Cleaned(table.name, len(done.paths), done.size)


def check_retention(hours: int, *, is_forced: bool) -> None:
    """InvalidArgument when files of transactions under way, or of readers that began
    before, might be deleted."""
    if hours < WEEK_HOURS and not is_forced:
        raise InvalidArgument(
            f"a retention of {hours} hours is less than a week: files of readers and writers that "
            "began before would be deleted; stop them and say --force, or keep a week"
        )
