"""Small files of a table made into fewer large ones; what readers see stays the same.

    small files of one partition, as many as fit into one -> one group -> one file

A group is read and written by pyarrow as it is stored, whatever schema its caller
knows, so no column gets lost. It is one task where there is a Spark, and this process
where there is none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.core.errors import TableChanged
from headrace.core.wording import counted
from headrace.pipelines.datafiles import ANSWER, DataFile, Shape, TaskFiles, answer, answered
from headrace.pipelines.file_reading import read_batches, schema_of_files
from headrace.pipelines.store import Store
from headrace.pipelines.table_log import TableLog
from headrace.pipelines.z_order import check_order, in_z_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A file is small below half of this; as many as fit are merged into one of about this.
COMPACTED_BYTES = 128 * 1024 * 1024
_PREFIX = "compacted"

Rewrite = Callable[[Store, Shape, list[list[DataFile]], Sequence[str]], Iterator[list[DataFile]]]


def compact(
    store: Store,
    log: TableLog,
    shape: Shape,
    rewrite: Rewrite,
    *,
    size_max: int = COMPACTED_BYTES,
    order_by: Sequence[str] = (),
    advance: Callable[[int], None] = lambda files: None,
) -> int:
    """Merge the small files of each partition; how many files became fewer. With `order_by`
    all files, and rows in Z-order by these columns. Each group is committed as soon as it
    is written, and `advance` is told how many files it had.

    TableChanged when another process was first with a group; those before it are done.
    """
    files = log.files()
    groups = groups_of(files, size_max) if order_by else small_files(files, size_max)
    if not groups:
        return 0
    fewer = 0
    for group, written in zip(groups, rewrite(store, shape, groups, order_by), strict=True):
        if not log.commit(written, group, transaction=None, data_change=False):
            # It may be our own commit that we met, where its answer was lost.
            there = {file.path for file in log.files()}
            if not any(file.path in there for file in written):
                store.delete(file.path for file in written)
                raise TableChanged(f"{store.uri}: another process has taken out the same files")
        fewer += len(group) - len(written)
        advance(len(group))
    return fewer


def small_files(files: Sequence[DataFile], size_max: int) -> list[list[DataFile]]:
    """Groups of at least two files of one partition that fit into one."""
    small = [file for file in files if file.size < size_max // 2]
    return [group for group in groups_of(small, size_max) if len(group) > 1]


def groups_of(files: Sequence[DataFile], size_max: int) -> list[list[DataFile]]:
    """All of them, as many of one partition together as fit into one."""
    by_partition: dict[Any, list[DataFile]] = defaultdict(list)
    for file in sorted(files, key=lambda each: each.path):
        by_partition[tuple(file.partition.items())].append(file)
    groups: list[list[DataFile]] = []
    for there in by_partition.values():
        group: list[DataFile] = []
        size = 0
        for file in there:
            if group and size + file.size > size_max:
                groups.append(group)
                group, size = [], 0
            group.append(file)
            size += file.size
        groups.append(group)
    return groups


def rewrite_here(
    store: Store, shape: Shape, groups: list[list[DataFile]], order_by: Sequence[str] = ()
) -> Iterator[list[DataFile]]:
    """The new files of each group, written by this process; nothing is committed."""
    for group in groups:
        yield _rewrite(store, shape, group, order_by)


def rewrite_in_tasks(spark: SparkSession) -> Rewrite:
    """As `rewrite_here`, with a task for each group."""

    def rewrite(
        store: Store, shape: Shape, groups: list[list[DataFile]], order_by: Sequence[str] = ()
    ) -> Iterator[list[DataFile]]:
        numbers = spark.range(0, len(groups), 1, len(groups))
        rewriter = _rewriter(store, shape, groups, order_by)
        written: list[list[DataFile]] = [[] for _ in groups]
        for row in numbers.mapInArrow(rewriter, f"{ANSWER}, number long").collect():
            written[row.number].append(answered(row))
        yield from written

    return rewrite


def _rewriter(
    store: Store, shape: Shape, groups: list[list[DataFile]], order_by: Sequence[str]
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def rewrite(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = answer(_rewrite(store, shape, groups[number], order_by))
                numbers = pa.array([number] * found.num_rows, pa.int64())
                yield found.append_column("number", numbers)

    return rewrite


def _rewrite(
    store: Store, shape: Shape, group: list[DataFile], order_by: Sequence[str]
) -> list[DataFile]:
    import pyarrow as pa

    schema = schema_of_files(store, group)
    for name in order_by:
        check_order(name, schema, shape)
    for name in shape.partition_by:
        # As a text, which is what the log and the folder hold of it.
        schema = schema.append(pa.field(name, pa.string()))
    files = TaskFiles(store, shape, _PREFIX, schema)
    batches = read_batches(store, group, schema)
    written = files.write(in_z_order(batches, schema, order_by) if order_by else batches)
    before, after = (sum(file.rows for file in files) for files in (group, written))
    if before != after:
        store.delete(file.path for file in written)
        raise RuntimeError(
            f"{store.uri}: files with {counted(before, 'row')} would have become files with "
            f"{counted(after, 'row')}; nothing was changed"
        )
    return written
