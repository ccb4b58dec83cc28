"""Data files: Parquet that executors write, and what the driver learns of each.

    executor    rows of one task -> date=2026-11-15/part-<batch>-<writer>-<unique>.parquet
    driver      a DataFile for each, which a table's log then makes part of the table

A file that no log names is not part of any table. So a task may fail, run twice
or be killed: only the files of the attempt whose answer arrived are committed.
"""

from __future__ import annotations

import json
import posixpath
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.pipelines.partitioning import folder_of, follows_time, partition_text
from headrace.pipelines.schema import arrow_schema
from headrace.pipelines.store import Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# Of rows that come from elsewhere; a compaction goes by bytes alone.
FILE_ROWS_MAX = 2_000_000
# What one task has open at once; of more partitions, files become smaller.
OPEN_FILES_MAX = 32
# Rows are gathered before they are written, so that what lies together is worth a read.
_GATHERED_ROWS = 100_000
_GATHERED_BYTES = 8 * 1024 * 1024
ANSWER = (
    "path string, size long, rows long, partition string, low_us long, high_us long, offsets string"
)


class DataFile(NamedTuple):
    """One Parquet file of a table; the path is relative to the table."""

    path: str
    size: int
    rows: int
    partition: dict[str, str | None]
    # The least and the greatest of the table's time column, in microseconds.
    low_us: int | None
    high_us: int | None
    # For rows of a topic: "topic/partition" to the offset behind the last one.
    ends: dict[str, int]


class Shape(NamedTuple):
    """How a table's files look: what its log, its writer and its reader share."""

    partition_by: tuple[str, ...]
    time_column: str


def file_prefix(writer: str, batch: int) -> str:
    """Names the files of one batch of one writer, whichever attempt wrote them."""
    return f"{batch:010d}-{zlib.crc32(writer.encode()):08x}"


def prefix_of(path: str) -> str:
    """The prefix that a file was written with."""
    name = posixpath.basename(path).removeprefix("part-").removesuffix(".parquet")
    return name.rpartition("-")[0]


def write_files(
    frame: DataFrame, location: str | Store, shape: Shape, prefix: str
) -> list[DataFile]:
    """Let executors write the frame below `location`; nothing is committed."""
    schema = arrow_schema(frame.schema).serialize().to_pybytes()
    writer = _writer(_store(location), shape, prefix, schema)
    if not follows_time(shape.partition_by):
        # Values of a column come in any order, and of more than a task has files open each
        # would be begun anew again and again.
        frame = frame.sortWithinPartitions(*shape.partition_by)
    return [answered(row) for row in frame.mapInArrow(writer, ANSWER).collect()]


def answered(row: Any) -> DataFile:
    """What a task said about a file that it wrote."""
    return DataFile(
        row.path,
        row.size,
        row.rows,
        json.loads(row.partition),
        row.low_us,
        row.high_us,
        json.loads(row.offsets),
    )


def answer(written: Iterable[DataFile]) -> pa.RecordBatch:
    """What a task says about the files that it wrote."""
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(
        [
            each._asdict()
            | {"partition": json.dumps(each.partition), "offsets": json.dumps(each.ends)}
            for each in written
        ],
        schema=_answer_schema(),
    )


def _writer(
    store: Store, shape: Shape, prefix: str, schema_bytes: bytes
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def write(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        schema = pa.ipc.read_schema(pa.py_buffer(schema_bytes))
        task = TaskFiles(store, shape, prefix, schema, rows_max=FILE_ROWS_MAX)
        written = task.write(batches)
        if written:
            yield answer(written)

    return write


def _answer_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("path", pa.string()),
            ("size", pa.int64()),
            ("rows", pa.int64()),
            ("partition", pa.string()),
            ("low_us", pa.int64()),
            ("high_us", pa.int64()),
            ("offsets", pa.string()),
        ]
    )


class TaskFiles:
    """The files that one task has open: one for each partition value, and another one after
    `rows_max` rows."""

    def __init__(
        self,
        location: str | Store,
        shape: Shape,
        prefix: str,
        schema: pa.Schema,
        *,
        rows_max: int | None = None,
    ) -> None:
        self._store = _store(location)
        self._filesystem, self._root = self._store.filesystem()
        self._shape = shape
        self._prefix = prefix
        self._schema = schema
        self._rows_max = rows_max
        # By the texts of their partition, what was used last at the end.
        self._open: dict[tuple[str | None, ...], _OpenFile] = {}
        self._written: list[DataFile] = []

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        """All of them; what was begun is deleted when something goes wrong."""
        try:
            with self._store.explained():
                for batch in batches:
                    self.add(batch)
                return self.close()
        except BaseException:
            self.discard()
            raise

    def add(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        # The session's time zone is in the type of its timestamps; files are UTC.
        table = pa.Table.from_batches([batch]).cast(self._schema)
        if not table.num_rows:
            return
        for values, rows in _by_partition(table, self._shape.partition_by):
            file = self._open.pop(values, None)
            if file is None:
                if len(self._open) >= OPEN_FILES_MAX:
                    self._close(next(iter(self._open)))
                file = self._start(values)
            self._open[values] = file
            file.add(rows)
            if self._rows_max is not None and file.rows >= self._rows_max:
                self._close(values)

    def close(self) -> list[DataFile]:
        while self._open:
            self._close(next(iter(self._open)))
        return self._written

    def discard(self) -> None:
        for file in self._open.values():
            file.discard()

    def _close(self, values: tuple[str | None, ...]) -> None:
        self._written.append(self._open[values].close())
        del self._open[values]

    def _start(self, values: tuple[str | None, ...]) -> _OpenFile:
        partition = dict(zip(self._shape.partition_by, values, strict=True))
        name = f"part-{self._prefix}-{uuid.uuid4().hex}.parquet"
        path = posixpath.join(folder_of(partition), name)
        return _OpenFile(self._filesystem, self._root, path, partition, self._shape)


def _by_partition(
    table: pa.Table, columns: tuple[str, ...]
) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """The rows of each partition, without its columns, and its texts."""
    import pyarrow.compute as pc

    if not columns:
        yield (), table
        return
    encoded = table[columns[0]].combine_chunks().dictionary_encode("encode")
    rest = table.drop_columns([columns[0]])
    found: dict[str | None, list[int]] = {}
    # Null and the empty text are one partition.
    for number, value in enumerate(encoded.dictionary.to_pylist()):
        found.setdefault(partition_text(value), []).append(number)
    for text, numbers in found.items():
        mask = pc.equal(encoded.indices, numbers[0])
        for number in numbers[1:]:
            mask = pc.or_(mask, pc.equal(encoded.indices, number))
        rows = rest if len(found) == 1 else rest.filter(mask)
        for values, part in _by_partition(rows, columns[1:]):
            yield (text, *values), part


def _store(location: str | Store) -> Store:
    return location if isinstance(location, Store) else Store(location)


class _OpenFile:
    def __init__(
        self,
        filesystem: Any,
        root: str,
        path: str,
        partition: dict[str, str | None],
        shape: Shape,
    ) -> None:
        self._filesystem = filesystem
        self._root = root
        self._path = path
        self._full = posixpath.join(root, path)
        self._partition = partition
        self._time_column = shape.time_column
        self._writer: Any = None
        self._gathered: list[pa.Table] = []
        self.rows = 0
        self._low_us: int | None = None
        self._high_us: int | None = None
        self._ends: dict[str, int] = {}

    def add(self, rows: pa.Table) -> None:
        self._gathered.append(rows)
        self.rows += rows.num_rows
        self._note_times(rows)
        self._note_ends(rows)
        if (
            sum(each.num_rows for each in self._gathered) >= _GATHERED_ROWS
            or sum(each.nbytes for each in self._gathered) >= _GATHERED_BYTES
        ):
            self._flush()

    def _flush(self) -> None:
        """One row group of what was gathered."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = pa.concat_tables(self._gathered)
        self._gathered = []
        if self._writer is None:
            self._filesystem.create_dir(posixpath.dirname(self._full), recursive=True)
            self._writer = pq.ParquetWriter(
                self._full, rows.schema, filesystem=self._filesystem, compression="zstd"
            )
        self._writer.write_table(rows)

    def _note_times(self, rows: pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._time_column not in rows.column_names:
            return
        least = pc.min_max(rows[self._time_column].cast(pa.int64())).as_py()
        if least["min"] is None:
            return
        self._low_us = least["min"] if self._low_us is None else min(self._low_us, least["min"])
        self._high_us = least["max"] if self._high_us is None else max(self._high_us, least["max"])

    def _note_ends(self, rows: pa.Table) -> None:
        """Of rows of a topic, whichever of their columns the folder has and not the file."""
        there = [name for name in ("topic", "partition") if name in rows.column_names]
        known = {*rows.column_names, *self._partition}
        if not {"partition", "offset"} <= known:
            return
        said = {name: self._partition.get(name) or "" for name in ("topic", "partition", "offset")}
        highest = [("offset", "max")] if "offset" in rows.column_names else []
        for row in rows.group_by(there).aggregate(highest).to_pylist():
            place = said | {name: row[name] for name in there}
            key = f"{place['topic']}/{place['partition']}"
            last = int(row["offset_max"] if highest else place["offset"])
            self._ends[key] = max(self._ends.get(key, 0), last + 1)

    def close(self) -> DataFile:
        if self._gathered:
            self._flush()
        self._writer.close()
        size = self._filesystem.get_file_info(self._full).size
        return DataFile(
            self._path, size, self.rows, self._partition, self._low_us, self._high_us, self._ends
        )

    def discard(self) -> None:
        # Something went wrong already, and that is what is to be told. A file that stays is
        # in no log, so it is part of no table.
        with suppress(Exception):
            if self._writer is not None:
                self._writer.close()
                self._filesystem.delete_file(self._full)
