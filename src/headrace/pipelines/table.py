"""A table in the lake: Parquet files, and a log that says which ones count.

    append(frame, batch)     executors write files, the log takes them all or none
    read(start, end)         the files that the log names, as a DataFrame
    compact() drop()         files are replaced or taken out, again by the log

The log remembers, for each writer, the last batch it took. A batch that comes
again after a crash is skipped, so a row is in the table once whatever was killed.

    format     log                          read by
    delta      _delta_log, by delta-rs      everything that knows Delta Lake
    parquet    _headrace_log, ours          everything that reads a folder of Parquet
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace.core.errors import InvalidArgument
from headrace.pipelines.datafiles import DataFile, Shape, TaskFiles, file_prefix, write_files
from headrace.pipelines.schema import arrow_schema, schema_of, spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# A file is small below this; as many as fit are merged into one of about this.
COMPACTED_BYTES = 128 * 1024 * 1024


class TableLog(Protocol):
    """Which files are part of the table, and what each writer committed last."""

    def create(self, schema: pa.Schema, shape: Shape) -> None:
        """Begin the table unless it exists."""

    def exists(self) -> bool: ...

    def files(self) -> list[DataFile]: ...

    def last_batch(self, writer: str) -> int | None: ...

    def commit(
        self,
        add: Sequence[DataFile],
        remove: Sequence[DataFile],
        *,
        transaction: tuple[str, int] | None,
        data_change: bool,
        columns: StructType | None = None,
    ) -> bool:
        """All of it or nothing. False when the writer's batch was there already, or a
        file to remove is no longer part of the table. InvalidArgument when rows of
        these columns do not fit the table."""

    def schema(self) -> StructType | None:
        """The table's columns; None when there is no table, or its log does not say."""

    def replace(
        self,
        add: Sequence[DataFile],
        remove: Sequence[DataFile],
        *,
        seen: Mapping[str, int],
        schema: StructType,
    ) -> bool:
        """Put files in the place of others, and the schema in the place of the table's,
        in one commit. Then each writer in `seen` has that batch in the table. False, and
        nothing has changed, when one of them has a later batch, or the table has not the
        files that it should have: those to remove, and no others when columns change
        that there are."""

    def clean(self) -> None:
        """Delete files that were taken out long ago."""


class Appended(NamedTuple):
    rows: int
    files: int
    # Whether the batch had been taken before, and nothing was done.
    skipped: bool
    ends: dict[str, int]


class LakeTable:
    def __init__(self, location: str, log: TableLog, schema: StructType, shape: Shape) -> None:
        self.location = location
        # The columns of rows that are written. The table may have more.
        self.schema = schema
        self.shape = shape
        self._log = log

    @property
    def log(self) -> TableLog:
        return self._log

    def stored_schema(self) -> StructType | None:
        """The columns that the table has; None when it is not there."""
        if not self._log.exists():
            return None
        return self._log.schema() or self._schema_of_files()

    def last_batch(self, writer: str) -> int | None:
        return self._log.last_batch(writer) if self._log.exists() else None

    def append(self, frame: DataFrame, writer: str, batch: int) -> Appended:
        """Add the frame's rows as the writer's batch, or skip it when it is in."""
        if self.has(writer, batch):
            return Appended(0, 0, True, {})
        self._log.create(arrow_schema(self.schema), self.shape)
        ordered = frame.select(*self.schema.fieldNames())
        files = write_files(ordered, self.location, self.shape, file_prefix(writer, batch))
        return self._commit(files, writer, batch)

    def append_rows(self, rows: Sequence[dict[str, Any]], writer: str, batch: int) -> Appended:
        """The same for a few rows that the driver has: no job is needed."""
        import pyarrow as pa

        if self.has(writer, batch):
            return Appended(0, 0, True, {})
        schema = arrow_schema(self.schema)
        self._log.create(schema, self.shape)
        files = TaskFiles(self.location, self.shape, file_prefix(writer, batch), schema)
        if rows:
            files.add(pa.RecordBatch.from_pylist(list(rows), schema=schema))
        return self._commit(files.close(), writer, batch)

    def has(self, writer: str, batch: int) -> bool:
        last = self.last_batch(writer)
        return last is not None and last >= batch

    def _commit(self, files: list[DataFile], writer: str, batch: int) -> Appended:
        if not files:
            # Nothing to take, now or when the batch is repeated.
            return Appended(0, 0, False, {})
        done = self._log.commit(
            files, (), transaction=(writer, batch), data_change=True, columns=self.schema
        )
        ends: dict[str, int] = {}
        for file in files:
            for key, end in file.ends.items():
                ends[key] = max(ends.get(key, 0), end)
        return Appended(sum(file.rows for file in files), len(files), not done, ends)

    def read(
        self, spark: SparkSession, start_us: int | None = None, end_us: int | None = None
    ) -> DataFrame:
        """The rows; with a start or an end, only of files that can have rows of
        the time column in [start, end), so filter as well."""
        files = [
            file
            for file in (self._log.files() if self._log.exists() else ())
            if _overlaps(file, start_us, end_us)
        ]
        return self.read_files(spark, files)

    def read_files(
        self, spark: SparkSession, files: Sequence[DataFile], schema: StructType | None = None
    ) -> DataFrame:
        """The rows of these files. A column that a file does not have is null."""
        schema = schema or self.schema
        if not files:
            return spark.createDataFrame([], schema)
        root = self.location.rstrip("/")
        reader = spark.read.schema(schema).option("basePath", root)
        return reader.parquet(*(f"{root}/{file.path}" for file in files))

    def files(self) -> list[DataFile]:
        return self._log.files() if self._log.exists() else []

    def rows(self) -> list[dict[str, Any]]:
        """All rows, read by the driver alone: for tables that stay small."""
        import pyarrow.dataset as ds

        root = self.location.rstrip("/")
        paths = [f"{root}/{file.path}" for file in self.files()]
        if not paths:
            return []
        # The first file need not have all columns.
        schema = arrow_schema(self._in_files(self.schema))
        dataset = ds.dataset(paths, format="parquet", schema=schema)
        found: list[dict[str, Any]] = dataset.to_table().to_pylist()
        return found

    def _in_files(self, schema: StructType) -> StructType:
        """Without the columns that are in the names of folders."""
        from pyspark.sql.types import StructType

        return StructType([f for f in schema if f.name not in self.shape.partition_by])

    def _schema_of_files(self) -> StructType | None:
        """What the files say, for a log that is older than schemas in logs."""
        import pyarrow as pa
        import pyarrow.dataset as ds
        from pyspark.sql.types import StringType, StructField, StructType

        root = self.location.rstrip("/")
        schemas = [
            ds.dataset(f"{root}/{each.path}", format="parquet").schema for each in self.files()
        ]
        if not schemas:
            return None
        try:
            found = spark_schema(pa.unify_schemas(schemas))
        except pa.ArrowException as error:
            raise InvalidArgument(
                f"{self.location} has files whose columns contradict each other ({error}); "
                "make it anew: headrace pipeline rebuild"
            ) from error
        folders = [StructField(name, StringType()) for name in self.shape.partition_by]
        return StructType([*folders, *found])

    def compact(self, spark: SparkSession, *, size_max: int = COMPACTED_BYTES) -> int:
        """Merge small files of the same partition; how many files became fewer.

        What a reader sees does not change.
        """
        merged = 0
        groups = _small_files(self.files(), size_max)
        # After the files: it then has all of their columns, also those that others added.
        schema = self._log.schema() if groups else None
        for group in groups:
            # One task, so that one file comes out of each group.
            frame = self.read_files(spark, group, schema).coalesce(1)
            written = write_files(frame, self.location, self.shape, "compacted")
            # False when others replaced the files meanwhile: ours are not needed.
            if self._log.commit(written, group, transaction=None, data_change=False):
                merged += len(group) - len(written)
        if self._log.exists():
            self._log.clean()
        return merged

    def drop_before(self, time_us: int) -> int:
        """Take out the files that have only rows before this; how many."""
        gone = [
            file for file in self.files() if file.high_us is not None and file.high_us < time_us
        ]
        if gone:
            self._log.commit((), gone, transaction=None, data_change=True)
        return len(gone)


def open_table(
    location: str, format: str, schema: str | StructType, *, partition_by: Sequence[str], time: str
) -> LakeTable:
    """The table at this place, with a schema in Spark's words; it is made by the
    first append."""
    if isinstance(schema, str):
        schema = schema_of(schema)
    log = open_log(location, format, time)
    return LakeTable(location, log, schema, Shape(tuple(partition_by), time))


def open_log(location: str, format: str, time_column: str) -> TableLog:
    if format == "delta":
        from headrace.pipelines.delta_log import DeltaLog

        return DeltaLog(location, time_column)
    from headrace.pipelines.parquet_log import ParquetLog

    return ParquetLog(location)


def _overlaps(file: DataFile, start_us: int | None, end_us: int | None) -> bool:
    if start_us is not None and file.high_us is not None and file.high_us < start_us:
        return False
    return not (end_us is not None and file.low_us is not None and file.low_us >= end_us)


def _small_files(files: Sequence[DataFile], size_max: int) -> list[list[DataFile]]:
    """Groups of at least two files of one partition that fit into one."""
    by_partition: dict[Any, list[DataFile]] = defaultdict(list)
    for file in sorted(files, key=lambda each: each.path):
        if file.size < size_max // 2:
            by_partition[tuple(file.partition.items())].append(file)
    groups: list[list[DataFile]] = []
    for small in by_partition.values():
        group: list[DataFile] = []
        size = 0
        for file in small:
            if group and size + file.size > size_max:
                groups.append(group)
                group, size = [], 0
            group.append(file)
            size += file.size
        groups.append(group)
    return [group for group in groups if len(group) > 1]
