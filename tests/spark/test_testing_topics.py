"""What docs/testing.md says to those who test Spark jobs, done as they would."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.docs.blocks import blocks_of

from headrace.testing.plugin import headrace_topics as headrace_topics
from headrace.testing.spark_topics import SparkTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_pages_test_of_a_spark_job_passes(
    spark: SparkSession, headrace_topics: SparkTopics
) -> None:
    [block] = [each for each in blocks_of("docs/testing.md") if "headrace_topics(" in each.text]
    namespace: dict[str, Any] = {}
    exec(compile(block.text, str(block), "exec", dont_inherit=True), namespace)
    namespace["test_large_orders_are_copied"](spark, headrace_topics)


def test_topics_of_one_name_are_apart_and_streams_flow_between_them(
    spark: SparkSession, headrace_topics: SparkTopics, tmp_path: Path
) -> None:
    source, target = headrace_topics("same"), headrace_topics("same")
    source.publish(b"one", "two", key="k", headers={"h": b"1"})
    assert target.records() == []
    stream = spark.readStream.format("headrace").options(**source.reading)
    query = (
        stream.option("startingOffsets", "earliest").option("includeHeaders", "true").load()
        .select("key", "value", "headers")
        .writeStream.format("headrace").options(**target.writing)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    found = target.records()
    assert [(record.key, record.raw) for record in found] == [(b"k", b"one"), (b"k", b"two")]
    assert [record.headers["h"] for record in found] == [b"1", b"1"]
