"""Rows of Arrow batches as records for partitions: what a writing task does.

    Arrow batch ─> a partition for each row ─> rows of one partition together
                ─> pieces of at most a batch's size ─> records, encoded

Rows of one partition keep their order. A row with a key goes where every Kafka client
would put it; the rows of an Arrow batch without keys go to one partition together, and
those of the next to the next one, so that batches are large.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.kafka.producing import Records
from headrace.core.errors import InvalidArgument
from headrace.engine.partitioner import partitions_of_keys
from headrace.record import attribute_headers, encode_headers
from headrace.record.attribute_headers import DELAY, DELIVER_AT
from headrace.record.column_builder import encode_rows
from headrace.record.columns import BytesColumn

Rows = npt.NDArray[np.int32]
# What a record needs beside its key, value and headers, at most.
_RECORD_OVERHEAD: Final = 32
# A message waits for one of them.
_WAITING: Final = frozenset((DELAY, DELIVER_AT))
_ATTRIBUTES: Final = ("priority", "delayMs", "ttlMs", "deliverAt")


class Outgoing(NamedTuple):
    topic: str
    partition: int
    records: Records


class RowEncoder:
    """`topic` is where all rows go; without it the column `topic` says where each goes.
    `partitions_of` says how many partitions a topic has."""

    def __init__(
        self,
        topic: str | None,
        partitions_of: Callable[[str], int],
        *,
        batch_bytes: int,
        first_partition: int = 0,
    ) -> None:
        self._topic = topic
        self._partitions_of = partitions_of
        self._batch_bytes = batch_bytes
        self._turn = first_partition

    def encode(self, batch: pa.RecordBatch) -> Iterator[Outgoing]:
        columns = {name.lower(): batch.column(name) for name in batch.schema.names}
        for topic, rows in self._by_topic(columns, batch.num_rows):
            for partition, chosen in self._by_partition(topic, rows, columns):
                for piece in self._encode_rows(columns, chosen):
                    yield Outgoing(topic, partition, piece)
        self._turn += 1

    # Where rows go.

    def _by_topic(self, columns: dict[str, Any], count: int) -> Iterator[tuple[str, Rows]]:
        every = np.arange(count, dtype=np.int32)
        if self._topic is not None:
            yield self._topic, every
            return
        topics = columns["topic"]
        if topics.null_count:
            raise InvalidArgument(
                "a row's topic is null; fill the column, or set option 'topic' for all rows"
            )
        encoded = pc.dictionary_encode(topics)
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            yield topic, every[codes == code]

    def _by_partition(
        self, topic: str, rows: Rows, columns: dict[str, Any]
    ) -> Iterator[tuple[int, Rows]]:
        if not len(rows):
            return
        partitions = self._partitions_of(topic)
        chosen = self._choose(topic, partitions, columns)[rows]
        first = int(chosen[0])
        if (chosen == first).all():
            yield first, rows
            return
        order = np.argsort(chosen, kind="stable")
        bounds = np.flatnonzero(np.diff(chosen[order])) + 1
        for part in np.split(order, bounds):
            yield int(chosen[part[0]]), rows[part]

    def _choose(self, topic: str, partitions: int, columns: dict[str, Any]) -> Rows:
        """A partition for every row of the batch: its own, its key's, or the one
        whose turn it is."""
        count = len(next(iter(columns.values())))
        chosen = np.full(count, self._turn % partitions, dtype=np.int32)
        key = columns.get("key")
        if key is not None and key.null_count < count:
            column = bytes_column(key)
            by_key = np.frombuffer(
                partitions_of_keys(column.starts, column.data, partitions), np.int32
            )
            chosen = by_key if not key.null_count else np.where(is_valid(key), by_key, chosen)
        own = columns.get("partition")
        if own is not None and own.null_count < count:
            numbers = pc.fill_null(own, 0).to_numpy(zero_copy_only=False)
            given = is_valid(own)
            wrong = given & ((numbers < 0) | (numbers >= partitions))
            if wrong.any():
                raise InvalidArgument(
                    f"a row's partition is {numbers[wrong][0]}, and topic {topic!r} has "
                    f"{partitions}; correct the column 'partition' or leave it out"
                )
            chosen = np.where(given, numbers, chosen)
        return chosen.astype(np.int32)

    # What they become.

    def _encode_rows(self, columns: dict[str, Any], rows: Rows) -> Iterator[Records]:
        key = _column(columns, "key")
        value = _column(columns, "value")
        headers = _header_blocks(columns)
        times = _times_ms(columns)
        now_ms = int(time.time() * 1000)
        for piece in self._pieces(rows, (key, value, headers)):
            base, most = now_ms, now_ms
            if times is not None:
                base, most = int(times[piece[0]]), int(times[piece].max())
            data = encode_rows(
                piece.tobytes(),
                key,
                value,
                headers,
                None if times is None else times.tobytes(),
                base,
            )
            yield Records(data, len(piece), base, most)

    def _pieces(self, rows: Rows, columns: tuple[BytesColumn | None, ...]) -> Iterator[Rows]:
        """Parts of the rows whose records fill a batch, and no more unless one alone
        does."""
        sizes = np.full(len(rows), _RECORD_OVERHEAD, dtype=np.int64)
        for column in columns:
            if column is not None:
                starts = np.frombuffer(column.starts, np.int32)
                sizes += starts[rows + 1] - starts[rows]
        ends = np.cumsum(sizes)
        start, before = 0, 0
        while start < len(rows):
            end = int(np.searchsorted(ends, before + self._batch_bytes, side="right"))
            end = max(end, start + 1)
            yield rows[start:end]
            start, before = end, int(ends[end - 1])


def bytes_column(array: pa.Array) -> BytesColumn:
    """A binary or string array as buffers that begin at its first row."""
    if array.type not in (pa.binary(), pa.string()):
        array = array.cast(pa.binary())
    validity, starts, data = array.buffers()
    offset = array.offset
    rows = len(array)
    bits = None
    if array.null_count:
        if offset % 8 == 0:
            bits = validity[offset // 8 :]
        else:
            bits = np.packbits(is_valid(array), bitorder="little").tobytes()
    return BytesColumn(
        _bytes_of(starts)[4 * offset : 4 * (offset + rows + 1)] if starts else b"\0" * 4,
        b"" if data is None else _bytes_of(data),
        None if bits is None else _bytes_of(bits),
    )


def _bytes_of(buffer: Any) -> memoryview:
    # Arrow says that its bytes have a sign.
    return memoryview(buffer).cast("B")


def is_valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def _column(columns: dict[str, Any], name: str) -> BytesColumn | None:
    array = columns.get(name)
    if array is None or array.null_count == len(array):
        return None
    return bytes_column(array)


def _times_ms(columns: dict[str, Any]) -> npt.NDArray[np.int64] | None:
    times = columns.get("timestamp")
    if times is None or times.null_count == len(times):
        return None
    if times.null_count:
        times = pc.fill_null(times, pa.scalar(int(time.time() * 1e6), times.type))
    found: npt.NDArray[np.int64] = (
        times.cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
    ).astype(np.int64)
    return found


def _header_blocks(columns: dict[str, Any]) -> BytesColumn | None:
    """The header block of every row; None when no row has headers."""
    given = columns.get("headers")
    attributes = [name for name in _ATTRIBUTES if name.lower() in columns]
    if (given is None or given.null_count == len(given)) and not attributes:
        return None
    count = len(next(iter(columns.values())))
    pairs = [None] * count if given is None else given.to_pylist()
    queue = (
        list(zip(*(_attribute(name, columns[name.lower()]) for name in attributes), strict=True))
        or [()] * count
    )
    blocks = [
        encode_headers(_row_headers(own or (), _attribute_headers(tuple(attributes), values)))
        for own, values in zip(pairs, queue, strict=True)
    ]
    return bytes_column(pa.array(blocks, pa.binary()))


def _row_headers(
    own: Sequence[dict[str, Any] | None], attributes: tuple[tuple[str, bytes], ...]
) -> tuple[tuple[str, bytes | None], ...]:
    """A row's headers and then its attributes. Rows that were read from a topic bring
    the attributes that they had, which the columns overrule."""
    overruled = {name for name, _ in attributes}
    if overruled & _WAITING:
        overruled |= _WAITING
    found: list[tuple[str, bytes | None]] = []
    for pair in own:
        if pair is None or pair["key"] is None:
            raise InvalidArgument(
                "a header of a row is null or has no key; leave it out of the array 'headers'"
            )
        if pair["key"] not in overruled:
            found.append((pair["key"], pair["value"]))
    return (*found, *attributes)


def _attribute(name: str, array: pa.Array) -> list[Any]:
    if name == "deliverAt":
        array = pc.divide(array.cast(pa.int64()), 1000)
    found: list[Any] = array.to_pylist()
    return found


@lru_cache(maxsize=4096)
def _attribute_headers(
    names: tuple[str, ...], values: tuple[Any, ...]
) -> tuple[tuple[str, bytes], ...]:
    given = dict(zip(names, values, strict=True))
    return attribute_headers(
        priority=given.get("priority"),
        delay_ms=given.get("delayMs"),
        ttl_ms=given.get("ttlMs"),
        deliver_at_ms=given.get("deliverAt"),
    )
