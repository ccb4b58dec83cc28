"""Rows that are written again are recognised; `test_cluster.py` kills for real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from tests.spark.conftest import Topic
from tests.spark.test_batch_read import numbers
from tests.spark.test_write import values, write

from headrace.client.kafka.cluster import KafkaCluster
from headrace.client.kafka.offsets import committed_positions
from headrace.core.errors import InvalidOption
from headrace.core.values import spark_rows_of
from headrace.spark.sink import Task, marker_group, write_rows
from headrace.spark.write_options import parse_write_options


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
    # The topic that was read stands in a column, and does not say where rows go.
    source = (
        spark.readStream.format("headrace")
        .options(servers=topic.node.bootstrap, subscribe=topic.name, startingOffsets="earliest")
        .load()
        .select("value", "topic")
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
    topic.consume(2_000)


def test_a_batch_that_is_written_again_by_hand_is_recognised(
    spark: SparkSession, topic: Topic
) -> None:
    frame = spark.sql("SELECT printf('%06d', id) AS value FROM RANGE(100)")
    named: dict[str, Any] = {"exactlyOnce": True, "sinkId": f"sink-{topic.name}"}
    for batch in (0, 0, 1, 1):
        write(frame, topic, **named, batchId=batch)
    assert values(topic.consume(200)) == sorted(numbers(0, 100) * 2)
    # What was written stands beside the markers, and what was skipped is not in it.
    groups = [marker_group(named["sinkId"], task) for task in range(2)]
    with KafkaCluster([topic.node.bootstrap]) as cluster:
        found = [committed_positions(cluster, group, {topic.name: (0,)}) for group in groups]
    markers = [each[topic.name, 0] for each in found]
    assert {marker.offset for marker in markers} == {2}
    assert sum(spark_rows_of(marker.metadata) for marker in markers) == 200
    # Rows that name their topics, with the marker beside one of them.
    by_row = frame.selectExpr("value", f"'{topic.name}' AS topic")
    for _ in range(2):
        write(by_row, topic, **named, batchId=2, topic=None, markerTopic=topic.name)
    # Every write without a name is one of its own, and leaves no marker behind.
    write(frame, topic, exactlyOnce=True)
    assert len(topic.consume(400)) == 400


def test_a_transaction_that_the_broker_does_not_allow_names_its_option(topic: Topic) -> None:
    given = {"servers": topic.node.bootstrap, "topic": topic.name, "exactlyOnce": "true"}
    options = parse_write_options(given | {"transactionTimeout": "9h"}, is_stream=True)
    with pytest.raises(InvalidOption, match="'transactionTimeout' is longer than the broker"):
        write_rows(options, iter(()), Task("sink", 0, 0), 0)
