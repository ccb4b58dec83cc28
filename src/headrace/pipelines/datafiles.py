"""Data files: Parquet that executors write, and what the driver learns of each.

    executor    rows of one task -> date=2026-11-15/part-<batch>-<writer>-<unique>.parquet
    driver      a DataFile for each, which a table's log then makes part of the table

A file that no log names is not part of any table. So a task may fail, run twice
or be killed: only the files of the attempt whose answer arrived are committed.
"""

from __future__ import annotations

import json
import os
import posixpath
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.pipelines.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

FILE_ROWS_MAX = 2_000_000
_ANSWER = (
    "path string, size long, rows long, partition string, low_us long, high_us long, offsets string"
)


class DataFile(NamedTuple):
    """One Parquet file of a table; the path is relative to the table."""

    path: str
    size: int
    rows: int
    partition: dict[str, str]
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


def write_files(frame: DataFrame, location: str, shape: Shape, prefix: str) -> list[DataFile]:
    """Let executors write the frame below `location`; nothing is committed."""
    schema = arrow_schema(frame.schema).serialize().to_pybytes()
    writer = _writer(location, shape, prefix, schema)
    return [
        DataFile(
            row.path,
            row.size,
            row.rows,
            json.loads(row.partition),
            row.low_us,
            row.high_us,
            json.loads(row.offsets),
        )
        for row in frame.mapInArrow(writer, _ANSWER).collect()
    ]


def _writer(
    location: str, shape: Shape, prefix: str, schema_bytes: bytes
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def write(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        schema = pa.ipc.read_schema(pa.py_buffer(schema_bytes))
        task = TaskFiles(location, shape, prefix, schema)
        try:
            for batch in batches:
                task.add(batch)
            written = task.close()
        except BaseException:
            task.discard()
            raise
        if written:
            yield pa.RecordBatch.from_pylist(
                [
                    each._asdict()
                    | {"partition": json.dumps(each.partition), "offsets": json.dumps(each.ends)}
                    for each in written
                ],
                schema=_answer_schema(),
            )

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
    """The files that one task has open: one for each partition value."""

    def __init__(self, location: str, shape: Shape, prefix: str, schema: pa.Schema) -> None:
        from pyarrow import fs

        if "://" in location:
            self._filesystem, self._root = fs.FileSystem.from_uri(location)
        else:
            self._filesystem, self._root = fs.LocalFileSystem(), os.path.abspath(location)
        self._shape = shape
        self._prefix = prefix
        self._schema = schema
        self._open: dict[tuple[str, ...], _OpenFile] = {}
        self._written: list[DataFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        # The session's time zone is in the type of its timestamps; files are UTC.
        table = pa.Table.from_batches([batch]).cast(self._schema)
        for values, rows in self._by_partition(table):
            file = self._open.get(values)
            if file is None:
                file = self._open[values] = self._start(values)
            file.add(rows)
            if file.rows >= FILE_ROWS_MAX:
                self._written.append(self._open.pop(values).close())

    def close(self) -> list[DataFile]:
        while self._open:
            self._written.append(self._open.popitem()[1].close())
        return self._written

    def discard(self) -> None:
        for file in self._open.values():
            file.discard()

    def _by_partition(self, table: pa.Table) -> Iterator[tuple[tuple[str, ...], pa.Table]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = list(self._shape.partition_by)
        if not columns:
            yield (), table
            return
        for combination in table.select(columns).group_by(columns).aggregate([]).to_pylist():
            mask = pa.array([True] * table.num_rows)
            for column, value in combination.items():
                mask = pc.and_(mask, pc.equal(table[column], pa.scalar(value)))
            values = tuple(str(combination[column]) for column in columns)
            yield values, table.filter(mask).drop_columns(columns)

    def _start(self, values: tuple[str, ...]) -> _OpenFile:
        partition = dict(zip(self._shape.partition_by, values, strict=True))
        folder = "/".join(f"{name}={value}" for name, value in partition.items())
        path = posixpath.join(folder, f"part-{self._prefix}-{uuid.uuid4().hex}.parquet")
        return _OpenFile(self._filesystem, self._root, path, partition, self._shape)


class _OpenFile:
    def __init__(
        self, filesystem: Any, root: str, path: str, partition: dict[str, str], shape: Shape
    ) -> None:
        self._filesystem = filesystem
        self._root = root
        self._path = path
        self._full = posixpath.join(root, path)
        self._partition = partition
        self._time_column = shape.time_column
        self._writer: Any = None
        self.rows = 0
        self._low_us: int | None = None
        self._high_us: int | None = None
        self._ends: dict[str, int] = {}

    def add(self, rows: pa.Table) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            self._filesystem.create_dir(posixpath.dirname(self._full), recursive=True)
            self._writer = pq.ParquetWriter(
                self._full, rows.schema, filesystem=self._filesystem, compression="zstd"
            )
        self._writer.write_table(rows)
        self.rows += rows.num_rows
        self._note_times(rows)
        self._note_ends(rows)

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
        if not {"partition", "offset"} <= set(rows.column_names):
            return
        by = ["topic", "partition"] if "topic" in rows.column_names else ["partition"]
        last = rows.group_by(by).aggregate([("offset", "max")])
        for row in last.to_pylist():
            topic = row.get("topic") or self._partition.get("topic", "")
            key = f"{topic}/{row['partition']}"
            self._ends[key] = max(self._ends.get(key, 0), row["offset_max"] + 1)

    def close(self) -> DataFile:
        self._writer.close()
        size = self._filesystem.get_file_info(self._full).size
        return DataFile(
            self._path, size, self.rows, self._partition, self._low_us, self._high_us, self._ends
        )

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._filesystem.delete_file(self._full)
