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

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from headrace.core.errors import InvalidArgument, TableChanged
from headrace.pipelines.compaction import COMPACTED_BYTES as COMPACTED_BYTES
from headrace.pipelines.compaction import compact, rewrite_here, rewrite_in_tasks
from headrace.pipelines.datafiles import DataFile, Shape, TaskFiles, file_prefix, write_files
from headrace.pipelines.file_reading import Bounds, read_batches, read_tasks, schema_of_files
from headrace.pipelines.partitioning import is_in_its_folder, with_hours, with_partitions
from headrace.pipelines.schema import arrow_schema, schema_of, spark_schema
from headrace.pipelines.store import Store
from headrace.pipelines.table_log import TableLog as TableLog

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Answer = TypeVar("Answer")

# How often files are chosen anew when another process replaced them first.
_TRIES = 5
# Other writers of Delta cut the greatest time down to the millisecond.
_HIGH_SLACK_US = 999


class Appended(NamedTuple):
    rows: int
    files: int
    # Whether the batch had been taken before, and nothing was done.
    skipped: bool
    ends: dict[str, int]


class LakeTable:
    def __init__(self, store: Store, log: TableLog, schema: StructType, shape: Shape) -> None:
        self.store = store
        # The columns of rows that are written. The table may have more.
        self.schema = schema
        self.shape = shape
        self._log = log

    @property
    def location(self) -> str:
        """Where it is, for people; `store` is what reads and writes there."""
        return self.store.uri

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
        self.create()
        ordered = self.with_hours(frame).select(*self.schema.fieldNames())
        files = write_files(ordered, self.store, self.shape, file_prefix(writer, batch))
        return self._commit(files, writer, batch)

    def with_hours(self, frame: DataFrame) -> DataFrame:
        """The frame with the column of hours, where the table is partitioned by it."""
        return with_hours(frame, self.schema, self.shape.time_column)

    def append_rows(self, rows: Sequence[dict[str, Any]], writer: str, batch: int) -> Appended:
        """The same for a few rows that the driver has: no job is needed."""
        import pyarrow as pa

        if self.has(writer, batch):
            return Appended(0, 0, True, {})
        self.create()
        schema = arrow_schema(self.schema)
        files = TaskFiles(self.store, self.shape, file_prefix(writer, batch), schema)
        batches = [pa.RecordBatch.from_pylist(list(rows), schema=schema)] if rows else []
        return self._commit(files.write(batches), writer, batch)

    def has(self, writer: str, batch: int) -> bool:
        last = self.last_batch(writer)
        return last is not None and last >= batch

    def create(self, schema: pa.Schema | None = None) -> None:
        """Begin the table unless it exists; InvalidArgument when it has other folders."""
        self._log.create(schema or arrow_schema(self.schema), self.shape)
        self.check_partitioning()

    def check_partitioning(self) -> None:
        """InvalidArgument when the table is there, in other folders than those of `shape`:
        its readers would not find in files that are written now what folders tell them."""
        there = self._log.partition_by() if self._log.exists() else None
        if there is not None and there != self.shape.partition_by:
            raise InvalidArgument(
                f"the table {self.store.uri} is partitioned by {_named(there)} and not by "
                f"{_named(self.shape.partition_by)}; set partition_by as it was, or write to "
                "another lake"
            )

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
        self,
        spark: SparkSession,
        start_us: int | None = None,
        end_us: int | None = None,
        *,
        columns: Sequence[str] = (),
        bounds: Sequence[Bounds] = (),
    ) -> DataFrame:
        """The rows; with a start or an end, only of files that can have rows of
        the time column in [start, end), so filter as well. `columns` and `bounds` are hints
        likewise: what is not wanted need not be read."""
        files = [
            file
            for file in (self._log.files() if self._log.exists() else ())
            if _overlaps(file, start_us, end_us)
        ]
        if (start_us, end_us) != (None, None):
            time = {self.shape.time_column: (start_us, end_us)}
            bounds = [{**each, **time} for each in bounds or ({},)]
        return self.read_files(spark, files, self._part(columns), bounds=bounds)

    def read_files(
        self,
        spark: SparkSession,
        files: Sequence[DataFile],
        schema: StructType | None = None,
        *,
        bounds: Sequence[Bounds] = (),
    ) -> DataFrame:
        """The rows of these files. A column that a file does not have is null."""
        schema = schema or self.schema
        if not files:
            return spark.createDataFrame([], schema)
        paths = self.store.spark_paths(file.path for file in files)
        if paths is None or not all(is_in_its_folder(f.path, f.partition) for f in files):
            return read_tasks(spark, self.store, files, schema, bounds)
        root, full = paths
        # Spark finds out by itself which columns and rows are wanted.
        reader = spark.read.schema(schema).option("basePath", root)
        # Folders of hours are columns to Spark, also of a table opened without them.
        return reader.parquet(*full).select(*schema.fieldNames())

    def files(self) -> list[DataFile]:
        return self._log.files() if self._log.exists() else []

    def rows(self) -> list[dict[str, Any]]:
        """All rows, read by this process alone: for tables that stay small."""
        return [row for batch in self.record_batches() for row in batch.to_pylist()]

    def record_batches(
        self, columns: Sequence[str] = (), bounds: Sequence[Bounds] = ()
    ) -> Iterator[pa.RecordBatch]:
        """The rows, read by this process alone as they are asked for. `bounds` as in `read`."""
        return read_batches(self.store, self.files(), arrow_schema(self._part(columns)), bounds)

    def _part(self, columns: Sequence[str]) -> StructType:
        from pyspark.sql.types import StructType

        return StructType([self.schema[name] for name in columns]) if columns else self.schema

    def _schema_of_files(self) -> StructType | None:
        """What the files say, for a log that is older than schemas in logs."""
        import pyarrow as pa
        from pyspark.sql.types import StringType, StructField, StructType

        files = self.files()
        if not files:
            return None
        try:
            found = spark_schema(schema_of_files(self.store, files, widen=False))
        except pa.ArrowException as error:
            raise InvalidArgument(
                f"{self.location} has files whose columns contradict each other ({error}); "
                "make it anew: headrace pipeline rebuild"
            ) from error
        folders = [StructField(name, StringType()) for name in self.shape.partition_by]
        return StructType([*folders, *found])

    def compact(self, spark: SparkSession | None = None, *, size_max: int = COMPACTED_BYTES) -> int:
        """Merge small files of the same partition; how many files became fewer. Tasks do it,
        or this process without a session.

        What a reader sees does not change.
        """
        # As the table is, whatever its opener would like.
        there = self._log.partition_by() if self._log.exists() else None
        if there is None:
            return 0
        shape = self.shape._replace(partition_by=there)
        rewrite = rewrite_here if spark is None else rewrite_in_tasks(spark)
        fewer = again(lambda: compact(self.store, self._log, shape, rewrite, size_max=size_max))
        self._log.clean()
        return fewer

    def drop_before(self, time_us: int) -> int:
        """Take out the files that have only rows before this; how many."""
        return again(lambda: self._drop_before(time_us))

    def _drop_before(self, time_us: int) -> int:
        gone = [
            file
            for file in self.files()
            if file.high_us is not None and file.high_us + _HIGH_SLACK_US < time_us
        ]
        if gone and not self._log.commit((), gone, transaction=None, data_change=True):
            raise TableChanged(f"{self.location}: another process has taken out the same files")
        return len(gone)


def open_table(
    location: str,
    format: str,
    schema: str | StructType,
    *,
    partition_by: Sequence[str],
    time: str,
    storage: Mapping[str, str] | None = None,
) -> LakeTable:
    """The table at this place, with a schema in Spark's words; it is made by the
    first append. `storage`: options of an object store."""
    if isinstance(schema, str):
        schema = schema_of(schema)
    store = Store(location, storage)
    columns = tuple(partition_by)
    log = log_of(store, format, time)
    return LakeTable(store, log, with_partitions(schema, columns), Shape(columns, time))


def open_log(
    location: str, format: str, time_column: str, storage: Mapping[str, str] | None = None
) -> TableLog:
    return log_of(Store(location, storage), format, time_column)


def log_of(store: Store, format: str, time_column: str) -> TableLog:
    if format == "delta":
        from headrace.pipelines.delta_log import DeltaLog

        return DeltaLog(store, time_column)
    from headrace.pipelines.parquet_log import ParquetLog

    return ParquetLog(store)


def again(attempt: Callable[[], Answer]) -> Answer:
    """The attempt's answer. It begins anew when another process changed the table first,
    a few times: each time it sees the table as it is then."""
    for _ in range(_TRIES - 1):
        try:
            return attempt()
        except TableChanged:
            continue
    return attempt()


def _named(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "nothing"


def _overlaps(file: DataFile, start_us: int | None, end_us: int | None) -> bool:
    if start_us is not None and file.high_us is not None:
        if file.high_us + _HIGH_SLACK_US < start_us:
            return False
    return not (end_us is not None and file.low_us is not None and file.low_us >= end_us)
