"""The views `dead-letters` and `delayed`: what a queue knows of a topic, as tables.

Kafka's protocol has no words for them, so they come from a Headrace node by its own
calls, or from a directory. They are pictures of this moment, read by one task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.client.connecting import connect
from headrace.client.handle import Headrace, open_handle
from headrace.client.views import DeadLetterView, DelayedView
from headrace.core.errors import HeadraceError, InvalidOption, UnknownTopic
from headrace.spark.directory import Directory
from headrace.spark.options import ReadOptions
from headrace.spark.plain_errors import told_plainly

_ROWS_PER_BATCH: Final = 5_000


class ViewReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = to_arrow_schema(schema, timezone="UTC")
        assert options.topics.names is not None
        [self._topic] = options.topics.names

    @told_plainly
    def partitions(self) -> list[InputPartition]:
        with self._handle() as handle:
            try:
                handle.topic(self._topic)
            except UnknownTopic:
                raise InvalidOption(
                    f"option 'subscribe': there is no topic {self._topic!r}; make it first, or "
                    "correct the name"
                ) from None
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with self._handle() as handle:
            rows: Iterator[tuple[Any, ...]]
            if self._options.view == "dead-letters":
                rows = map(_letter, handle.dead_letters(self._topic))
            else:
                rows = map(_delayed, handle.delayed(self._topic))
            while some := list(islice(rows, _ROWS_PER_BATCH)):
                yield self._batch(some)

    def _batch(self, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(zip(*rows, strict=True), self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    @contextmanager
    def _handle(self) -> Iterator[Headrace]:
        options = self._options
        if options.path is not None:
            with Directory(options.path):
                handle = open_handle(options.path, read_only=True)
        else:
            try:
                handle = connect(options.servers[0], retry=options.timeout_ms / 1000)
            except HeadraceError as error:
                raise InvalidOption(
                    f"option 'view': {options.view!r} needs a Headrace node: {error}"
                ) from None
        with handle:
            yield handle


def _letter(letter: DeadLetterView) -> tuple[Any, ...]:
    source = letter.source
    return (
        letter.key,
        letter.raw,
        source.topic,
        source.partition,
        source.offset,
        letter.group,
        letter.reason,
        letter.error,
        letter.attempts,
        letter.redrives,
        letter.created_at,
        letter.failed_at,
        letter.partition,
        letter.offset,
        _headers(letter.all_headers),
    )


def _delayed(message: DelayedView) -> tuple[Any, ...]:
    return (
        message.key,
        message.raw,
        message.topic,
        message.partition,
        message.offset,
        message.created_at,
        message.deliver_at,
        _headers(message.all_headers),
    )


def _headers(headers: Iterable[tuple[str, bytes | None]]) -> list[dict[str, Any]] | None:
    return [{"key": name, "value": value} for name, value in headers] or None
