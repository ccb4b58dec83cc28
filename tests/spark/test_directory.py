"""A directory that no process has open, as a table and as a stream, in a real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.test_batch_read import numbers, values

import headrace


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with a topic of two partitions, 500 records in each."""
    path = tmp_path / "data"
    with headrace.open(str(path)) as handle:
        handle.create_topic("orders", partitions=2)
        for partition in (0, 1):
            publish(handle, numbers(partition * 500, partition * 500 + 500), partition)
    return path


def publish(handle: headrace.Headrace, records: list[bytes], partition: int) -> None:
    for value in records:
        handle.publish("orders", value, partition=partition)


def read(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    reader = spark.read.format("headrace").option("path", str(path))
    return reader.option("subscribe", "orders").options(**options).load()


def test_a_directory_is_read_in_parallel_straight_from_its_segments(
    spark: SparkSession, data: Path
) -> None:
    frame = read(spark, data, minPartitions=6)
    assert frame.rdd.getNumPartitions() == 6
    assert values(frame) == numbers(0, 1_000)
    bounds = {
        "startingOffsets": '{"orders": {"0": 490, "1": -2}}',
        "endingOffsets": '{"orders": {"0": -1, "1": 5}}',
    }
    assert values(read(spark, data, **bounds)) == numbers(490, 505)


def test_a_stream_takes_from_a_directory_what_came_since_its_last_run(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    def run() -> list[bytes]:
        source = spark.readStream.format("headrace").option("path", str(data))
        query = (
            source.options(subscribe="orders", startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", 700)
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )
        query.awaitTermination()
        return values(spark.read.parquet(str(tmp_path / "table")))

    assert run() == numbers(0, 1_000)
    with headrace.open(str(data)) as handle:
        publish(handle, numbers(1_000, 1_010), 1)
    assert run() == numbers(0, 1_010)


def test_dead_letters_and_delayed_messages_are_tables(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "data"
    with headrace.open(str(path)) as handle:
        handle.create_topic("orders", partitions=1)
        with handle.queue("orders", group="billing", max_attempts=1) as queue:
            handle.publish("orders", b"bad", key=b"k", headers={"from": "shop"})
            [message] = queue.receive(max=1, wait=0)
            message.nack(error="no such customer")
        handle.publish("orders", b"later", delay=3_600)
    [letter] = read(spark, path, view="dead-letters").collect()
    assert (bytes(letter.key), bytes(letter.value)) == (b"k", b"bad")
    assert (letter.topic, letter.partition, letter.offset) == ("orders", 0, 0)
    assert (letter.groupName, letter.error, letter.attempts) == ("billing", "no such customer", 1)
    assert ("from", b"shop") in [(each.key, bytes(each.value)) for each in letter.headers]
    [delayed] = read(spark, path, view="delayed").collect()
    assert bytes(delayed.value) == b"later" and delayed.offset == 1
    assert (delayed.deliverAt - delayed.timestamp).total_seconds() == pytest.approx(3_600, abs=1)
