"""Writing tables to topics, as other people's clients then see them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.conftest import Topic
from tests.spark.test_batch_read import numbers

from headrace.core.errors import InvalidOption
from headrace.engine.partitioner import partition_of_key
from headrace.spark.each_batch import topic_writer


def write(frame: DataFrame, target: Topic, /, **options: object) -> None:
    writer = frame.write.format("headrace").mode("append")
    given = {"servers": target.node.bootstrap, "topic": target.name} | options
    for name, value in given.items():
        if value is not None:
            writer = writer.option(name, str(value))
    writer.save()


def values(messages: list[Message]) -> list[bytes]:
    return sorted(message.value() or b"" for message in messages)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_every_row_is_a_record(spark: SparkSession, topic: Topic, compression: str) -> None:
    # What is no part of a record is left out, and what changes nothing is taken.
    frame = spark.range(5_000).select("id", F.format_string("%06d", "id").alias("value"))
    given = {"kafka.compression.type": compression, "kafka.batch.size": 10_000, "kafka.acks": 1}
    write(frame, topic, **given)
    assert values(topic.consume(5_000)) == numbers(0, 5_000)


def test_keys_lead_to_the_partitions_that_every_client_would_choose(
    spark: SparkSession, topic: Topic
) -> None:
    frame = spark.range(500).select(
        F.format_string("key-%d", F.col("id") % 20).alias("key"),
        F.format_string("%06d", "id").alias("value"),
    )
    write(frame.coalesce(1), topic)
    found = topic.consume(500)
    assert all(
        message.partition() == partition_of_key(message.key() or b"", 2) for message in found
    )
    # The rows of one key keep their order.
    for number in range(20):
        key = b"key-%d" % number
        of_key = [message.value() for message in found if message.key() == key]
        assert of_key == [b"%06d" % each for each in range(number, 500, 20)]


def test_every_column_has_its_place_in_a_record(spark: SparkSession, topic: Topic) -> None:
    other = Topic(topic.node, f"{topic.name}-other")
    other.create(1)
    # An hour ago: what is older than the topic's retention may be gone at once.
    at_ms = int(time.time()) * 1000 - 3_600_000 + 123
    frame = spark.sql(
        f"""
        SELECT * FROM VALUES
            (CAST('k' AS BINARY), 'v', '{topic.name}', 1,
             ARRAY(STRUCT('h' AS key, CAST('x' AS BINARY) AS value)),
             TIMESTAMP_MILLIS({at_ms}), 'high', 5000L),
            (NULL, NULL, '{other.name}', NULL, NULL, TIMESTAMP_MILLIS({at_ms}), NULL, NULL)
        AS rows(key, value, topic, partition, headers, timestamp, priority, delayMs)
        """
    )
    write(frame, topic, topic=None)
    [first] = topic.consume(1)
    [second] = other.consume(1)
    assert (first.key(), first.value(), first.partition()) == (b"k", b"v", 1)
    assert first.timestamp()[1] == at_ms
    assert first.headers() == [
        ("h", b"x"), ("headrace-priority", b"1"), ("headrace-delay-ms", b"5000"),
    ]  # fmt: skip
    assert (second.key(), second.value(), second.headers()) == (None, None, None)


@pytest.mark.parametrize(
    ("select", "options", "says"),
    [
        ("id", {}, "there is no column 'value'"),
        ("'v' AS value, 'k' AS keys", {}, "column 'keys' in a record; did you mean 'key'"),
        ("id AS value", {}, "column 'value' is bigint; cast it to binary or string"),
        ("'k' AS key", {}, "there is no column 'value'"),
        ("'v' AS value", {"topic": "nowhere"}, "there is no topic 'nowhere'"),
        ("'v' AS value", {"sinkId": "x"}, "'sinkId' is of use with exactly-once only"),
        ("'v' AS value", {"batchId": 1, "exactlyOnce": True}, "name that by 'sinkId'"),
        ("'v' AS value", {"sinkId": "", "exactlyOnce": True}, "'sinkId' has 0 characters; give"),
        ("'v' AS value, 'w' AS VALUE", {}, "there are two columns 'value', whatever their case"),
        ("'v' AS value", {"kafka.lingering": 5}, "is not known for a write"),
        ("'v' AS value", {"kafka.transactional.id": "x"}, "is refused: set 'exactlyOnce'"),
        ("'v' AS value", {"startingOffsets": "latest"}, "is not for a write; leave it out"),
        ("'v' AS value, 'x' AS topic", {"topic": None}, "there is no topic 'x' to write to"),
        ("'v' AS value, 'x' AS topic", {"topic": None, "exactlyOnce": True}, "'markerTopic' to"),
        ("'v' AS value, 9 AS partition", {}, "partition is 9, and topic .* has 2; correct"),
    ],
)
def test_what_cannot_be_written_is_one_clear_error(
    spark: SparkSession, topic: Topic, select: str, options: dict[str, Any], says: str
) -> None:
    frame = spark.sql(f"SELECT {select} FROM RANGE(1)")
    with pytest.raises(PySparkException, match=says):
        write(frame, topic, **options)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, topic: Topic) -> None:
    frame = spark.sql("SELECT 'v' AS value")
    writer = frame.write.format("headrace").options(servers=topic.node.bootstrap, topic=topic.name)
    with pytest.raises(PySparkException, match="only ever added to; use mode"):
        writer.mode("overwrite").save()


def test_a_batch_needs_a_mode(spark: SparkSession, topic: Topic) -> None:
    # The default is Spark's errorifexists, which it allows no source of version 2.
    writer = spark.sql("SELECT 'v' AS value").write.format("headrace")
    writer = writer.options(servers=topic.node.bootstrap, topic=topic.name)
    with pytest.raises(PySparkException, match='cannot be written in the "ErrorIfExists"'):
        writer.save()


def test_a_stream_goes_from_topic_to_topic(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    target = Topic(topic.node, f"{topic.name}-copy")
    target.create(3)
    topic.publish(numbers(0, 1_000))
    source = (
        spark.readStream.format("headrace")
        .option("servers", topic.node.bootstrap)
        .option("subscribe", topic.name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "600")
        .load()
    )
    query = (
        source.select("key", "value")
        .writeStream.format("headrace")
        .option("servers", topic.node.bootstrap)
        .option("topic", target.name)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert values(target.consume(1_000)) == numbers(0, 1_000)


def counts_of(spark: SparkSession, topic: Topic) -> DataFrame:
    """How often each value was published, counted again with every 40 of them."""
    source = (
        spark.readStream.format("headrace")
        .options(servers=topic.node.bootstrap, subscribe=topic.name, startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", 40)
        .load()
    )
    counts = source.groupBy(F.col("value").alias("key")).count()
    return counts.selectExpr("key", "CAST(count AS STRING) AS value")


def counted(messages: list[Message]) -> list[tuple[bytes | None, bytes | None]]:
    return sorted((message.key(), message.value()) for message in messages)


def test_an_aggregation_writes_what_changed(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    target = Topic(topic.node, f"{topic.name}-counts")
    target.create(2)
    topic.publish([b"a"] * 40, partition=0)
    servers = topic.node.bootstrap
    sink = {"servers": servers, "topic": target.name, "exactlyOnce": True}
    write = topic_writer(sink, sinkId=f"counts-{topic.name}")

    def write_twice(frame: DataFrame, batch: int) -> None:
        write(frame, batch)
        write(frame, batch)

    writer = counts_of(spark, topic).writeStream.outputMode("update")
    writer = writer.option("checkpointLocation", str(tmp_path / "update"))
    writer = writer.foreachBatch(write_twice).trigger(availableNow=True)
    writer.start().awaitTermination()
    topic.publish([b"a"] * 20 + [b"b"] * 20, partition=0)
    writer.start().awaitTermination()
    assert counted(target.consume(3)) == [(b"a", b"40"), (b"a", b"60"), (b"b", b"20")]
    with pytest.raises(InvalidOption, match="'sinkId' is missing: with foreachBatch"):
        topic_writer(sink)
    with pytest.raises(InvalidOption, match="'batchId' is given by foreachBatch"):
        topic_writer(sink, batchId=1)


def test_an_aggregation_writes_all_of_it_or_is_sent_to_foreach_batch(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    target = Topic(topic.node, f"{topic.name}-counts")
    target.create(2)
    topic.publish([b"a"] * 40 + [b"b"] * 20, partition=0)
    writer = counts_of(spark, topic).writeStream.format("headrace").trigger(availableNow=True)
    writer = writer.options(servers=topic.node.bootstrap, topic=target.name)
    complete = writer.outputMode("complete").option("checkpointLocation", str(tmp_path / "all"))
    complete.start().awaitTermination()
    assert counted(target.consume(3)) == [(b"a", b"40"), (b"a", b"40"), (b"b", b"20")]
    # Spark asks no sink that is written in Python whether it takes updates.
    update = writer.outputMode("update").option("checkpointLocation", str(tmp_path / "update"))
    with pytest.raises((PySparkException, StreamingQueryException), match="support Update mode"):
        update.start().awaitTermination()
