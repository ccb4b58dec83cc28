"""Reading topics as streams: limits, restarts from the checkpoint, and what was lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType, StructType
from tests.spark.conftest import Topic
from tests.spark.test_batch_read import numbers

from headrace.core.errors import DataLost, InvalidOption
from headrace.spark.options import parse_read_options
from headrace.spark.stream import HeadraceStreamReader


class Query:
    """A streaming query into Parquet files that reads what there is, and ends."""

    def __init__(self, spark: SparkSession, topic: Topic, folder: Path) -> None:
        self._spark = spark
        self._topic = topic
        self._folder = folder

    def run(self, **options: object) -> StreamingQuery:
        given = {"subscribe": self._topic.name, "startingOffsets": "earliest"} | options
        reader = self._spark.readStream.format("headrace")
        reader = reader.option("servers", self._topic.node.bootstrap)
        for name, value in given.items():
            reader = reader.option(name, str(value))
        query = (
            reader.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self._folder / "table"))
        )
        query.awaitTermination()
        return query

    def values(self) -> list[bytes]:
        table = self._spark.read.parquet(str(self._folder / "table"))
        return sorted(bytes(row.value) for row in table.select("value").collect())


@pytest.fixture
def query(spark: SparkSession, topic: Topic, tmp_path: Path) -> Query:
    return Query(spark, topic, tmp_path)


def sizes(query: StreamingQuery) -> list[int]:
    return [progress["numInputRows"] for progress in query.recentProgress]


def test_a_restart_goes_on_where_the_checkpoint_stands(query: Query, topic: Topic) -> None:
    topic.publish(numbers(0, 100))
    query.run()
    topic.publish(numbers(100, 150))
    query.run()
    assert query.values() == numbers(0, 150)


def test_a_limit_makes_several_batches_of_what_there_is(query: Query, topic: Topic) -> None:
    topic.publish(numbers(0, 100))
    assert sizes(query.run(maxOffsetsPerTrigger=40)) == [40, 40, 20]
    assert query.values() == numbers(0, 100)


def test_partitions_that_were_added_are_read_from_their_beginning(
    query: Query, topic: Topic
) -> None:
    topic.publish(numbers(0, 100))
    query.run()
    topic.grow(4)
    topic.publish(numbers(100, 200))
    query.run()
    assert query.values() == numbers(0, 200)


def test_what_retention_deleted_stops_the_query(query: Query, topic: Topic) -> None:
    topic.publish(numbers(0, 100), partition=0)
    query.run()
    topic.publish(numbers(100, 200), partition=0)
    topic.delete_before({0: 150})
    with pytest.raises(StreamingQueryException, match="begins at offset 150.*failOnDataLoss"):
        query.run()
    assert query.values() == numbers(0, 100)


def test_what_retention_deleted_is_skipped_when_allowed(query: Query, topic: Topic) -> None:
    topic.publish(numbers(0, 100), partition=0)
    query.run()
    topic.publish(numbers(100, 200), partition=0)
    topic.delete_before({0: 150})
    query.run(failOnDataLoss=False)
    assert query.values() == [*numbers(0, 100), *numbers(150, 200)]


def test_a_topic_that_was_made_again_stops_the_query(query: Query, topic: Topic) -> None:
    topic.publish(numbers(0, 100))
    query.run()
    topic.delete()
    topic.create(2)
    topic.publish(numbers(500, 900))
    with pytest.raises(StreamingQueryException, match="was deleted and made again.*checkpoint"):
        query.run()


def test_a_topic_that_was_made_again_is_read_anew_when_allowed(query: Query, topic: Topic) -> None:
    topic.publish(numbers(0, 100))
    query.run()
    topic.delete()
    topic.create(2)
    topic.publish(numbers(500, 540))
    query.run(failOnDataLoss=False)
    assert query.values() == [*numbers(0, 100), *numbers(500, 540)]


def test_a_topic_that_is_gone_stops_the_query_or_is_left_out(query: Query, topic: Topic) -> None:
    other = Topic(topic.node, f"{topic.name}-other")
    other.create(1)
    topic.publish(numbers(0, 10), partition=0)
    other.publish(numbers(10, 20), partition=0)
    both = f"{topic.name},{other.name}"
    query.run(subscribe=both)
    topic.delete()
    other.publish(numbers(20, 30), partition=0)
    with pytest.raises(StreamingQueryException, match="does not exist any more.*checkpoint"):
        query.run(subscribe=both)
    query.run(subscribe=both, failOnDataLoss=False)
    assert query.values() == numbers(0, 30)


@contextmanager
def planning(topic: Topic, **options: object) -> Iterator[HeadraceStreamReader]:
    """What Spark asks on the driver, asked without Spark."""
    given = {"servers": topic.node.bootstrap, "subscribe": topic.name, "columns": "offset"}
    parsed = parse_read_options(given | {k: str(v) for k, v in options.items()}, "stream")
    reader = HeadraceStreamReader(parsed, StructType().add("offset", LongType()))
    try:
        yield reader
    finally:
        reader.stop()


def test_a_start_beyond_the_end_is_an_error_unless_allowed(topic: Topic) -> None:
    topic.publish(numbers(0, 10), partition=0)
    beyond = {"startingOffsets": json.dumps({topic.name: {"0": 99, "1": -1}})}
    with (
        planning(topic, **beyond) as reader,
        pytest.raises(InvalidOption, match="'startingOffsets': .*:0 ends at offset 10, so 99 is"),
    ):
        reader.initialOffset()
    with planning(topic, **beyond, failOnDataLoss=False) as reader:
        assert reader.initialOffset()[topic.name]["0"] == 10


def test_a_checkpoint_beyond_the_end_stops_a_query_that_takes_what_there_is(topic: Topic) -> None:
    topic.publish(numbers(0, 10), partition=0)
    with planning(topic) as reader:
        reader.prepareForTriggerAvailableNow()
        start = reader.initialOffset()
        start[topic.name]["0"] = 99
        with pytest.raises(DataLost, match="ends at offset 10, before 99, where it was read to"):
            reader.latestOffset(start, ReadAllAvailable())


def test_a_query_that_begins_behind_its_target_has_lost_nothing(topic: Topic) -> None:
    topic.publish(numbers(0, 10), partition=0)
    with planning(topic) as reader:
        reader.prepareForTriggerAvailableNow()
        topic.publish(numbers(10, 20), partition=0)
        start = reader.initialOffset()
        assert start[topic.name]["0"] == 20
        assert reader.latestOffset(start, ReadAllAvailable()) == start


def test_a_topic_that_is_not_asked_for_any_more_is_not_said_to_be_gone(topic: Topic) -> None:
    with planning(topic) as reader:
        start = reader.initialOffset() | {"another": {"id": "", "0": 5}}
        with pytest.raises(DataLost, match="'another' is in the checkpoint and is not asked for"):
            reader.latestOffset(start, ReadAllAvailable())


def test_the_group_shows_what_a_query_has_done_also_the_last_of_it(
    query: Query, topic: Topic
) -> None:
    topic.publish(numbers(0, 100))
    query.run(progressGroup="dashboard", maxOffsetsPerTrigger=50)
    assert shown_by("dashboard", topic) == [50, 50]
    topic.publish(numbers(100, 110))
    query.run(progressGroup="dashboard", maxOffsetsPerTrigger=50)
    assert shown_by("dashboard", topic) == [55, 55]


def test_a_query_that_waits_for_more_shows_that_it_has_done_all(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.publish(numbers(0, 10))
    stream = spark.readStream.format("headrace").option("servers", topic.node.bootstrap)
    stream = stream.option("subscribe", topic.name).option("startingOffsets", "earliest")
    frame = stream.option("progressGroup", f"{topic.name}-shown").load()
    writer = frame.writeStream.format("noop").trigger(processingTime="50 milliseconds")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        # Spark calls a source's `commit` with the batch behind this one, which never comes.
        while shown_by(f"{topic.name}-shown", topic) != [5, 5]:
            assert query.exception() is None
    finally:
        query.stop()


def shown_by(group: str, topic: Topic) -> list[int]:
    consumer = Consumer({"bootstrap.servers": topic.node.bootstrap, "group.id": group})
    try:
        asked = [TopicPartition(topic.name, index) for index in (0, 1)]
        return [place.offset for place in consumer.committed(asked, 30)]
    finally:
        consumer.close()


def test_an_ending_in_a_stream_is_refused(query: Query) -> None:
    with pytest.raises(StreamingQueryException, match="'endingOffsets' is not for a") as raised:
        query.run(endingOffsets="latest")
    # Nothing stands on top of the reason, and no traceback of the process that planned.
    assert "UnboundLocalError" not in str(raised.value)
    assert "Traceback" not in str(raised.value)
