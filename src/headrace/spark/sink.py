"""Tables to topics: at least once, or exactly once by transactions.

    at least once    every task writes with a producer of its own; a task that is
                     repeated writes its rows again
    exactly once     every task is one transaction, and a marker in it says which batch
                     it was of; a task that finds its marker writes nothing

        transactional id   {sink}-{task}            begins: fences what is left of it
        group              __spark.{sink}.{task}    its offset is the marker: batch + 1,
                                                    beside it, the rows it ever wrote

`sink` is the id of the streaming query, the same after every restart from its
checkpoint, or what option 'sinkId' says. The marker becomes visible together with the
rows, so there is no moment at which only one of them is there.

What it takes: the same rows come to the same tasks when a batch is repeated, which
Spark sees to as long as source, plan and number of partitions stay the same. What it
does not give: all tasks at once. Who reads while a batch is written can see the rows of
some tasks before those of others.

Rejected: one transaction over all tasks. No Kafka producer can be handed from process
to process, and two-phase commits are not in brokers that people run.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headrace.client.kafka.cluster import KafkaCluster, KafkaError
from headrace.client.kafka.offsets import Committed, committed_positions, delete_group
from headrace.client.kafka.producing import KafkaProducer
from headrace.core.errors import HeadraceError, InvalidOption, RecordTooLarge, UnknownTopic
from headrace.core.values import SPARK_SINK_PREFIX, note_spark_rows, spark_rows_of
from headrace.core.wording import counted
from headrace.spark.outgoing import RowEncoder
from headrace.spark.write_options import WriteOptions, check_columns
from headrace.wire.kafka.errors import ErrorCode

logger = logging.getLogger(__name__)

# Internal names of Spark, which nothing else tells a task.
_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"


class Written(WriterCommitMessage):
    """What a task did: rows that it wrote, or that it found written already."""

    def __init__(self, task: int, rows: int, skipped: bool) -> None:
        self.task = task
        self.rows = rows
        self.skipped = skipped


class Task(NamedTuple):
    """Which part of which batch of which sink this is."""

    sink: str
    batch_id: int
    number: int

    @property
    def transactional_id(self) -> str:
        return f"{self.sink}-{self.number}"

    @property
    def group(self) -> str:
        return marker_group(self.sink, self.number)


def marker_group(sink: str, task: int) -> str:
    return f"{SPARK_SINK_PREFIX}{sink}.{task}"


def connect(options: WriteOptions) -> KafkaCluster:
    return KafkaCluster(options.servers, client_id=options.client_id, timeout_ms=options.timeout_ms)


def check_write(options: WriteOptions, schema: StructType) -> None:
    """Everything that can be known to be wrong before a row is written."""
    check_columns(options, schema)
    named = {"topic": options.topic, "markerTopic": options.marker_topic}
    names = {option: name for option, name in named.items() if name is not None}
    if not names:
        return
    with connect(options) as cluster:
        found = cluster.topics(dict.fromkeys(names.values()))
    for option, name in names.items():
        if name not in found:
            raise InvalidOption(
                f"option {option!r}: there is no topic {name!r} on "
                f"{','.join(options.servers)}; make it first, or correct the name"
            )


def write_rows(
    options: WriteOptions, batches: Iterator[pa.RecordBatch], task: Task | None, number: int
) -> Written:
    """All rows of one task; exactly once when `task` says which it is."""
    with connect(options) as cluster:
        producer = KafkaProducer(
            cluster,
            transactional_id=None if task is None else task.transactional_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
            codec=options.codec,
        )
        try:
            _begin(producer)
            if task is not None:
                return _write_once(options, cluster, producer, batches, task)
            rows = _send(options, cluster, producer, batches, number)
            producer.flush()
            return Written(number, rows, False)
        except KafkaError as error:
            if error.error != ErrorCode.MESSAGE_TOO_LARGE:
                raise
            raise RecordTooLarge(
                f"{error.doing}: its topic does not take one so large (max.message.bytes); raise "
                "that, or, where no single row is as large, lower option 'kafka.batch.size' "
                f"({options.batch_bytes})"
            ) from None
        finally:
            producer.close()


def _begin(producer: KafkaProducer) -> None:
    try:
        producer.begin()
    except KafkaError as error:
        if error.error != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        raise InvalidOption(
            "option 'transactionTimeout' is longer than the broker allows "
            "(transaction.max.timeout.ms); lower it"
        ) from None


def _write_once(
    options: WriteOptions,
    cluster: KafkaCluster,
    producer: KafkaProducer,
    batches: Iterator[pa.RecordBatch],
    task: Task,
) -> Written:
    # Begun before the marker is read: nobody else can move it from here on.
    assert options.marker_topic is not None
    place = (options.marker_topic, 0)
    found = committed_positions(cluster, task.group, {options.marker_topic: (0,)})
    marker = found.get(place, Committed(-1, ""))
    if marker.offset > task.batch_id:
        skipped = sum(batch.num_rows for batch in batches)
        return Written(task.number, skipped, True)
    try:
        rows = _send(options, cluster, producer, batches, task.number)
        if rows:
            written = note_spark_rows(spark_rows_of(marker.metadata) + rows)
            producer.commit({place: task.batch_id + 1}, group=task.group, metadata=written)
    except BaseException:
        with contextlib.suppress(HeadraceError):
            producer.abort()
        raise
    return Written(task.number, rows, False)


def _send(
    options: WriteOptions,
    cluster: KafkaCluster,
    producer: KafkaProducer,
    batches: Iterator[pa.RecordBatch],
    number: int,
) -> int:
    encoder = RowEncoder(
        options.topic,
        _partition_counter(cluster),
        batch_bytes=options.batch_bytes,
        first_partition=number,
    )
    rows = 0
    for batch in batches:
        for topic, partition, records in encoder.encode(batch):
            producer.send(topic, partition, records)
        rows += batch.num_rows
    return rows


def _partition_counter(cluster: KafkaCluster) -> Callable[[str], int]:
    """How many partitions a topic has, as of this task's first row for it."""
    known: dict[str, int] = {}

    def count(topic: str) -> int:
        if topic not in known:
            found = cluster.topics((topic,)).get(topic)
            if found is None:
                raise UnknownTopic(f"there is no topic {topic!r} to write to; make it first")
            known[topic] = len(found.partitions)
        return known[topic]

    return count


class HeadraceWriter(DataSourceArrowWriter):
    """A batch. Without option 'sinkId' every write is a sink of its own, so that only
    its own tasks are recognised."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_write(options, schema)
        self._options = options
        self._sink = options.sink_id or str(uuid.uuid4())
        self._tasks = 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        number = _context().partitionId()
        task = None
        if self._options.exactly_once:
            task = Task(self._sink, self._options.batch_id or 0, number)
        return write_rows(self._options, iterator, task, number)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if not self._options.exactly_once:
            return
        if self._options.sink_id is not None:
            tell_skipped(messages, self._sink, self._options.batch_id)
            return
        # Nobody will ask for the markers of this write again.
        with connect(self._options) as cluster:
            for message in messages:
                if isinstance(message, Written) and message.rows:
                    group = marker_group(self._sink, message.task)
                    try:
                        delete_group(cluster, group)
                    except HeadraceError as error:
                        logger.warning("headrace: group %r was not removed: %s", group, error)


class HeadraceStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_write(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        number = context.partitionId()
        task = None
        if self._options.exactly_once:
            sink = self._options.sink_id or _property(context, _QUERY_ID)
            task = Task(sink, int(_property(context, _BATCH_ID)), number)
        return write_rows(self._options, iterator, task, number)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Every task has decided its own transaction already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What tasks committed stays, and the batch comes again: at least once it is
        written again, exactly once it is recognised."""


def tell_skipped(
    messages: Sequence[WriterCommitMessage | None], sink: str, batch: int | None
) -> None:
    """Warn where a batch was there already: rows of another write by the same names are lost."""
    rows = sum(each.rows for each in messages if isinstance(each, Written) and each.skipped)
    if rows:
        logger.warning(
            "headrace: %s of batch %s of sink %r %s not written, because that batch was written "
            "before; what is new needs another 'batchId', a query that begins anew another "
            "'sinkId', and so does each of several writes in one foreachBatch",
            counted(rows, "row"), batch, sink, "was" if rows == 1 else "were",
        )  # fmt: skip


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise HeadraceError("rows can be written by a task of Spark only")
    return context


def _property(context: TaskContext, name: str) -> str:
    found = context.getLocalProperty(name)
    if not found:
        raise HeadraceError(
            f"this Spark does not tell its tasks {name}, which exactly-once needs; write with "
            "foreachBatch and options 'sinkId' and 'batchId' instead"
        )
    return found
