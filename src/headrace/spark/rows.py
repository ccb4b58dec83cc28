"""A split's records as Arrow batches: what an executor does.

    fetch ─> whole batches ─> checked, those to be hidden left out ─> blocks
          ─> so many blocks at a time ─> columns ─> one Arrow batch

Columns are buffers from the start, and Arrow takes them as they are.

Rejected: one Arrow batch for each fetched batch. Producers make batches of a few dozen
records, and an Arrow batch costs as much as thousands of rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.client.kafka.fetching import AbortedFilter, Fetched, Gap, PartitionFetch
from headrace.core.ports import Buffer
from headrace.record import HEADER_BYTES, Record, check_batch
from headrace.record.batch import CODEC_MASK, CONTROL, LENGTH_OVERHEAD, TRANSACTIONAL
from headrace.record.columns import (
    Block,
    BytesColumn,
    Columns,
    HeadersColumn,
    decode_columns,
    open_block,
)
from headrace.spark.decoding import Decoder, decoder_of
from headrace.spark.decoding_options import DECODED
from headrace.spark.memory import keep_freed_memory
from headrace.spark.options import HEADERS, ReadOptions
from headrace.spark.planning import connect_servers, directory_of
from headrace.spark.splits import OffsetRange
from headrace.spark.task_log import log_read

if TYPE_CHECKING:
    from headrace.spark.letters import LetterSender

# Of records, uncompressed, in one Arrow batch.
BYTES_PER_BATCH: Final = 4 * 1024 * 1024
_MAY_BE_HIDDEN: Final = TRANSACTIONAL | CONTROL


class RowReader:
    """Turns blocks into Arrow batches of one schema."""

    def __init__(
        self,
        options: ReadOptions,
        schema: pa.Schema,
        range: OffsetRange,
        letters: LetterSender | None = None,
    ) -> None:
        self._options = options
        self._schema = schema
        self._range = range
        self._rows_max = options.rows_per_batch
        self._letters = letters
        self._decoder: Decoder | None = None
        if options.decoding is not None:
            self._decoder = decoder_of(options.decoding, schema.field(DECODED).type)
        self._blocks: list[Block] = []
        self._rows = 0
        self._bytes = 0

    def add(self, block: Block) -> bool:
        """Whether it is time to finish what was added."""
        self._blocks.append(block)
        self._rows += block.header.count
        self._bytes += len(block.records)
        return self._rows >= self._rows_max or self._bytes >= BYTES_PER_BATCH

    def finish(self) -> Iterator[pa.RecordBatch]:
        blocks, self._blocks = self._blocks, []
        self._rows = self._bytes = 0
        columns = decode_columns(
            blocks,
            self._range.start,
            self._range.end,
            with_headers=self._options.include_headers or self._letters is not None,
        )
        if columns.rows:
            batch = self._batch(columns)
            if batch.num_rows:
                yield from self._slices(batch)

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
        if self._decoder is None:
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        values = bytes_array(pa.binary(), columns.rows, columns.value).to_pylist()
        decoded = self._decoder.decode(values)
        arrays.append(decoded.column)
        if self._letters is None:
            arrays.append(pa.array(decoded.reasons, pa.string()))
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if not any(decoded.reasons):
            return batch
        self._bury(columns, decoded.reasons)
        return batch.filter(pa.array([reason is None for reason in decoded.reasons]))

    def _bury(self, columns: Columns, reasons: Sequence[str | None]) -> None:
        assert self._letters is not None and columns.headers is not None
        for row, reason in enumerate(reasons):
            if reason is not None:
                self._letters.add(record_at(columns, row), reason)

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
    """The rows of one split."""
    keep_freed_memory()
    if options.path is not None:
        with directory_of(options) as directory:
            fetched = directory.fetch(range, options.isolation_level)
            yield from _read(RowReader(options, schema, range), fetched, range)
        return
    with connect_servers(options) as cluster:
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
        letters = None
        if options.decoding is not None and options.decoding.to_dead_letters:
            from headrace.spark.letters import LetterSender

            letters = LetterSender(cluster, range, options.progress_group)
        rows, begun_at = 0, time.monotonic()
        try:
            for batch in _read(RowReader(options, schema, range, letters), fetch, range):
                rows += batch.num_rows
                yield batch
            if letters is not None:
                letters.flush()
        finally:
            log_read(range, rows, time.monotonic() - begun_at, fetch.numbers)


def _read(
    reader: RowReader, fetch: Iterable[Fetched | Gap], range: OffsetRange
) -> Iterator[pa.RecordBatch]:
    hidden = AbortedFilter()
    for fetched in fetch:
        if isinstance(fetched, Gap):
            continue
        hidden.expect(fetched.aborted)
        for block in _blocks(fetched.records, hidden, range):
            if reader.add(block):
                yield from reader.finish()
    yield from reader.finish()


def _blocks(records: memoryview, hidden: AbortedFilter, range: OffsetRange) -> Iterator[Block]:
    """The batches that have rows for us. Producers make batches of a few records, so
    what is done for each of them counts."""
    position, size = 0, len(records)
    start, end = range.start, range.end
    while position < size:
        header = check_batch(records, position)
        behind = position + LENGTH_OVERHEAD + header.batch_length
        if header.attributes & _MAY_BE_HIDDEN and hidden.hides(records[position:behind], header):
            position = behind
            continue
        base_offset = header.base_offset
        if base_offset < end and base_offset + header.last_offset_delta >= start:
            if header.attributes & CODEC_MASK:
                yield open_block(records[position:behind], header)
            else:
                yield Block(records[position + HEADER_BYTES : behind], header)
        position = behind


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


def record_at(columns: Columns, row: int) -> Record:
    """One row as the record that it was. `columns` have headers."""
    assert columns.headers is not None
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = _headers_array(pa.list_(pair), columns.rows, columns.headers)[row].as_py() or ()
    times = _numbers(pa.int64(), columns.rows, columns.timestamp_us)
    return Record(
        _numbers(pa.int64(), columns.rows, columns.offset)[row].as_py(),
        times[row].as_py() // 1000,
        bytes_array(pa.binary(), columns.rows, columns.key)[row].as_py(),
        bytes_array(pa.binary(), columns.rows, columns.value)[row].as_py(),
        tuple((each["key"], each["value"]) for each in headers),
    )
