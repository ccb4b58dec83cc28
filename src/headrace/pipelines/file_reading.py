"""Rows of data files, read by pyarrow: on the driver, and in tasks where Spark cannot.

    driver      files of the table -> groups of about the same size
    task i      group i -> record batches, with the columns that are in the paths

Only columns of the schema are read, and only row groups that can have rows within the
bounds: Spark cannot push its conditions down into a task. A file that is older than a
column has nulls there.
"""

from __future__ import annotations

import operator
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from headrace.pipelines.partitioning import partition_array
from headrace.pipelines.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headrace.pipelines.datafiles import DataFile
    from headrace.pipelines.store import Store

# As Spark cuts files of its own.
GROUP_BYTES = 128 * 1024 * 1024
BATCH_ROWS = 10_000
# The column that names a row's file, where it is asked for.
FILE = "_file"


# Of columns of numbers or times: from, and before; None is open. Rows of any of several.
Bounds = Mapping[str, tuple[int | None, int | None]]


def read_tasks(
    spark: SparkSession,
    store: Store,
    files: Sequence[DataFile],
    schema: StructType,
    bounds: Sequence[Bounds] = (),
) -> DataFrame:
    """The files' rows, read by one task for each group."""
    groups = file_groups(files, spark.sparkContext.defaultParallelism)
    reader = _reader(store, groups, arrow_schema(schema).serialize().to_pybytes(), bounds)
    return spark.range(0, len(groups), 1, len(groups)).mapInArrow(reader, schema)


def read_with_paths(
    spark: SparkSession, store: Store, files: Sequence[DataFile], schema: StructType
) -> DataFrame:
    """The files' rows, each with the path of its file in the column FILE."""
    from pyspark.sql.types import StringType, StructField, StructType

    groups = file_groups(files, spark.sparkContext.defaultParallelism)
    reader = _reader(
        store, groups, arrow_schema(schema).serialize().to_pybytes(), (), with_paths=True
    )
    columns = StructType([*schema.fields, StructField(FILE, StringType())])
    return spark.range(0, len(groups), 1, len(groups)).mapInArrow(reader, columns)


def file_groups(files: Sequence[DataFile], tasks: int) -> list[list[DataFile]]:
    """At least so many groups where there are so many files, of up to GROUP_BYTES unless
    one file is larger."""
    size_max = min(GROUP_BYTES, max(1, sum(file.size for file in files) // max(1, tasks)))
    groups: list[list[DataFile]] = []
    size = 0
    for file in files:
        if not groups or size + file.size > size_max:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return groups


def _reader(
    store: Store,
    groups: list[list[DataFile]],
    schema_bytes: bytes,
    bounds: Sequence[Bounds],
    *,
    with_paths: bool = False,
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def read(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        schema = pa.ipc.read_schema(pa.py_buffer(schema_bytes))
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if with_paths:
                    for file in groups[number]:
                        for rows in read_batches(store, [file], schema, bounds):
                            paths = pa.repeat(pa.scalar(file.path), rows.num_rows)
                            yield rows.append_column(FILE, paths)
                else:
                    yield from read_batches(store, groups[number], schema, bounds)

    return read


def read_batches(
    store: Store,
    files: Iterable[DataFile],
    schema: pa.Schema,
    bounds: Sequence[Bounds] = (),
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    filesystem, root = store.filesystem()
    with store.explained():
        for file in files:
            yield from _batches_of(filesystem, root, file, schema, bounds, batch_rows)


def _batches_of(
    filesystem: FileSystem,
    root: str,
    file: DataFile,
    schema: pa.Schema,
    bounds: Sequence[Bounds],
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.dataset as ds

    stored = pa.schema([field for field in schema if field.name not in file.partition])
    there = [each for each in bounds if _may_have(file, each)]
    if bounds and not there:
        return
    dataset = ds.dataset(
        [posixpath.join(root, file.path)], schema=stored, filesystem=filesystem, format="parquet"
    )
    # Little is read ahead: several tasks share one machine's memory.
    batches = dataset.to_batches(
        filter=_condition(there, stored),
        batch_size=batch_rows,
        batch_readahead=2,
        fragment_readahead=1,
    )
    for batch in batches:
        if batch.num_rows:
            columns = [
                partition_array(file.partition[field.name], field.type, batch.num_rows)
                if field.name in file.partition
                else batch.column(field.name)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _may_have(file: DataFile, bounds: Bounds) -> bool:
    """By what the file's folder says."""
    for name, (low, high) in bounds.items():
        if name in file.partition:
            text = file.partition[name]
            if text is None or not _is_within(int(text), low, high):
                return False
    return True


def _is_within(value: int, low: int | None, high: int | None) -> bool:
    return (low is None or value >= low) and (high is None or value < high)


def _condition(several: Sequence[Bounds], stored: pa.Schema) -> Any:
    """None when all rows may be meant."""
    import pyarrow as pa
    import pyarrow.compute as pc

    alternatives = []
    for bounds in several:
        parts = []
        for name, (low, high) in bounds.items():
            if name in stored.names:
                kind = stored.field(name).type
                parts += [pc.field(name) >= pa.scalar(low, kind)] if low is not None else []
                parts += [pc.field(name) < pa.scalar(high, kind)] if high is not None else []
        if not parts:
            return None
        alternatives.append(reduce(operator.and_, parts))
    return reduce(operator.or_, alternatives) if alternatives else None


def schema_of_files(store: Store, files: Iterable[DataFile], *, widen: bool = True) -> pa.Schema:
    """What all of them can be read as: every column that one has, of the wider type.
    ArrowException when types of one column differ, or with `widen` contradict each other."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    filesystem, root = store.filesystem()
    schemas = []
    with store.explained():
        for file in files:
            path = posixpath.join(root, file.path)
            found = pq.read_schema(path, filesystem=filesystem).remove_metadata()
            if found not in schemas:
                schemas.append(found)
    return pa.unify_schemas(schemas, promote_options="permissive" if widen else "default")
