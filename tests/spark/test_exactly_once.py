"""Rows that are written again are recognised; `test_cluster.py` kills for real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from tests.spark.conftest import Topic
from tests.spark.test_batch_read import numbers
from tests.spark.test_write import values, write


def failing_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows, and then a failure, unless it is the third attempt."""
    yield from batches
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() < 2:
        raise RuntimeError("a task fails after its rows were given out")


def test_tasks_that_fail_and_come_again_write_each_row_once(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    target = Topic(topic.node, f"{topic.name}-copy")
    target.create(3)
    topic.publish(numbers(0, 2_000))
    source = (
        spark.readStream.format("headrace")
        .options(servers=topic.node.bootstrap, subscribe=topic.name, startingOffsets="earliest")
        .load()
        .select("value")
    )
    query = (
        source.mapInArrow(failing_at_first, source.schema)
        .writeStream.format("headrace")
        .options(servers=topic.node.bootstrap, topic=target.name, exactlyOnce="true")
        .option("kafka.batch.size", "4000")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert values(target.consume(2_000)) == numbers(0, 2_000)


def test_a_batch_that_is_written_again_by_hand_is_recognised(
    spark: SparkSession, topic: Topic
) -> None:
    frame = spark.sql("SELECT printf('%06d', id) AS value FROM RANGE(100)")
    named = {"exactlyOnce": True, "sinkId": f"sink-{topic.name}"}
    for batch in (0, 0, 1, 1):
        write(frame, topic, **named, batchId=batch)
    assert values(topic.consume(200)) == sorted(numbers(0, 100) * 2)
    # Every write without a name is one of its own, and leaves no marker behind.
    write(frame, topic, exactlyOnce=True)
    assert len(topic.consume(300)) == 300
