"""A split's records as Arrow batches: what an executor does.

    fetch ─> whole batches ─> checked, those to be hidden left out ─> blocks
          ─> so many blocks at a time ─> columns ─> one Arrow batch

Columns are buffers from the start, and Arrow takes them as they are.

Rejected: one Arrow batch for each fetched batch. Producers make batches of a few dozen
records, and an Arrow batch costs as much as thousands of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from headrace.client.kafka.fetching import AbortedFilter, Gap, PartitionFetch
from headrace.core.ports import Buffer
from headrace.record import check_batch
from headrace.record.columns import (
    Block,
    BytesColumn,
    Columns,
    HeadersColumn,
    decode_columns,
    open_block,
)
from headrace.spark.options import HEADERS, ReadOptions
from headrace.spark.planning import connect
from headrace.spark.splits import OffsetRange

# Of records, uncompressed, in one Arrow batch.
BYTES_PER_BATCH: Final = 8 * 1024 * 1024


class RowReader:
    """Turns blocks into Arrow batches of one schema."""

    def __init__(self, options: ReadOptions, schema: pa.Schema, range: OffsetRange) -> None:
        self._options = options
        self._schema = schema
        self._range = range
        self._blocks: list[Block] = []
        self._rows = 0
        self._bytes = 0

    def add(self, block: Block) -> Iterator[pa.RecordBatch]:
        self._blocks.append(block)
        self._rows += block.header.count
        self._bytes += len(block.records)
        if self._rows >= self._options.rows_per_batch or self._bytes >= BYTES_PER_BATCH:
            yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        blocks, self._blocks = self._blocks, []
        self._rows = self._bytes = 0
        columns = decode_columns(
            blocks,
            self._range.start,
            self._range.end,
            with_headers=self._options.include_headers,
        )
        if columns.rows:
            yield from self._slices(self._batch(columns))

    def _slices(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """One block alone may have a million rows."""
        limit = self._options.rows_per_batch
        if batch.num_rows <= 2 * limit:
            yield batch
            return
        for start in range(0, batch.num_rows, limit):
            yield batch.slice(start, limit)

    def _batch(self, columns: Columns) -> pa.RecordBatch:
        arrays = [self._array(name, columns) for name in self._options.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, name: str, columns: Columns) -> pa.Array:
        rows = columns.rows
        if name == "key":
            return bytes_array(pa.binary(), rows, columns.key)
        if name == "value":
            return bytes_array(pa.binary(), rows, columns.value)
        if name == "topic":
            return pa.repeat(pa.scalar(self._range.topic, pa.string()), rows)
        if name == "partition":
            return pa.repeat(pa.scalar(self._range.partition, pa.int32()), rows)
        if name == "offset":
            return _numbers(pa.int64(), rows, columns.offset)
        if name == "timestamp":
            return _numbers(pa.timestamp("us", "UTC"), rows, columns.timestamp_us)
        if name == "timestampType":
            return _numbers(pa.int32(), rows, columns.timestamp_type)
        assert columns.headers is not None
        return _headers_array(self._schema.field(HEADERS).type, rows, columns.headers)


def read_range(
    options: ReadOptions, schema: pa.Schema, range: OffsetRange
) -> Iterator[pa.RecordBatch]:
    """The rows of one split, by Kafka's protocol."""
    reader = RowReader(options, schema, range)
    hidden = AbortedFilter()
    with connect(options) as cluster:
        fetch = PartitionFetch(
            cluster,
            range.topic,
            range.partition,
            range.start,
            range.end,
            topic_id=range.id,
            isolation_level=options.isolation_level,
            fetch_bytes=options.fetch_bytes,
            gaps_allowed=not options.fail_on_data_loss,
        )
        for fetched in fetch:
            if isinstance(fetched, Gap):
                continue
            hidden.expect(fetched.aborted)
            for block in _blocks(fetched.records, hidden, range):
                yield from reader.add(block)
    yield from reader.finish()


def _blocks(records: memoryview, hidden: AbortedFilter, range: OffsetRange) -> Iterator[Block]:
    position = 0
    while position < len(records):
        header = check_batch(records, position)
        batch = records[position : position + header.size_bytes]
        position += header.size_bytes
        # Asked for every batch, also those behind the end: it keeps count.
        is_hidden = hidden.hides(batch, header)
        if is_hidden or header.next_offset <= range.start or header.base_offset >= range.end:
            continue
        yield open_block(batch, header)


def bytes_array(type: pa.DataType, rows: int, column: BytesColumn) -> pa.Array:
    buffers = [_buffer(column.validity), _buffer(column.starts), _buffer(column.data)]
    return pa.Array.from_buffers(type, rows, buffers)


def _numbers(type: pa.DataType, rows: int, numbers: Buffer) -> pa.Array:
    return pa.Array.from_buffers(type, rows, [None, pa.py_buffer(numbers)])


def _headers_array(type: pa.ListType, rows: int, headers: HeadersColumn) -> pa.Array:
    pair = type.value_type
    names = bytes_array(pair.field(0).type, headers.headers, headers.names)
    values = bytes_array(pair.field(1).type, headers.headers, headers.values)
    pairs = pa.StructArray.from_arrays([names, values], fields=[pair.field(0), pair.field(1)])
    return pa.Array.from_buffers(
        type, rows, [_buffer(headers.validity), _buffer(headers.starts)], children=[pairs]
    )


def _buffer(data: Buffer | None) -> pa.Buffer | None:
    return None if data is None else pa.py_buffer(data)
