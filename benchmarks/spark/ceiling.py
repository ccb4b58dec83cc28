"""What nothing can be faster than: a source that has its Arrow batches ready, and a
writer that only drains them.

`format("ceiling")` yields the same batch of the same shape again and again, in as many
splits as the topic has partitions; as a sink it takes what comes and drops it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

ROWS_PER_BATCH = 32_768
DDL = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
    "timestamp TIMESTAMP, timestampType INT"
)


class Ceiling(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        return DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        return CeilingReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return CeilingStreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return CeilingWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return CeilingStreamWriter()


class _Batches:
    def __init__(self, options: Any) -> None:
        self.rows = int(options["rows"])
        self.splits = int(options["splits"])
        self.size = int(options["size"])

    def batches(self) -> Iterator[pa.RecordBatch]:
        count = self.rows // self.splits
        ready = made(min(ROWS_PER_BATCH, count), self.size)
        while count > 0:
            yield ready if count >= ready.num_rows else ready.slice(0, count)
            count -= ready.num_rows


def made(rows: int, size: int) -> pa.RecordBatch:
    numbers = pa.array(range(rows), pa.int64())
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(rows, pa.binary()),
            pa.array([b"v" * size] * rows, pa.binary()),
            pa.array(["bench"] * rows, pa.string()),
            pa.array([0] * rows, pa.int32()),
            numbers,
            numbers.cast(pa.timestamp("us", "UTC")),
            pa.array([0] * rows, pa.int32()),
        ],
        names=["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"],
    )


class CeilingReader(DataSourceReader):
    def __init__(self, options: Any) -> None:
        self._made = _Batches(options)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._made.splits)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._made.batches()


class CeilingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Any) -> None:
        self._made = _Batches(options)

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"row": self._made.rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        splits = self._made.splits if end != start else 0
        return [InputPartition(number) for number in range(splits)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._made.batches()


def _drain(batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    for _ in batches:
        pass
    return WriterCommitMessage()


class CeilingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _drain(iterator)


class CeilingStreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _drain(iterator)
