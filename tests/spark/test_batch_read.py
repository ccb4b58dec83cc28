"""Reading topics in batches, through a real Spark and a real node."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.interop.conftest import NodeProcess
from tests.spark.conftest import Topic
from tests.unit.spark.test_topic_pattern import MATCHES, NAMES, REFUSED, WRONG


def read(spark: SparkSession, topic: Topic, **options: object) -> DataFrame:
    reader = spark.read.format("headrace").option("servers", topic.node.bootstrap)
    for name, value in ({"subscribe": topic.name} | options).items():
        reader = reader.option(name, str(value))
    return reader.load()


def values(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%06d" % number for number in range(start, end)]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_is_a_row_whatever_its_compression(
    spark: SparkSession, topic: Topic, compression: str
) -> None:
    topic.publish(numbers(0, 2_000), compression=compression)
    assert values(read(spark, topic)) == numbers(0, 2_000)


def test_columns_are_those_of_the_kafka_source(spark: SparkSession, topic: Topic) -> None:
    producer = Producer({"bootstrap.servers": topic.node.bootstrap})
    producer.produce(
        topic.name, b"v", b"k", 1, timestamp=1_700_000_000_123, headers=[("a", b"1"), ("b", None)]
    )
    producer.produce(topic.name, None, None, 1, timestamp=1_700_000_000_124)
    producer.flush(30)
    frame = read(spark, topic, includeHeaders=True)
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    first, second = frame.orderBy("offset").collect()
    assert (bytes(first.key), bytes(first.value)) == (b"k", b"v")
    assert (first.topic, first.partition, first.offset) == (topic.name, 1, 0)
    assert first.timestamp.timestamp() == pytest.approx(1_700_000_000.123)
    assert first.timestampType == 0
    assert [(pair.key, pair.value) for pair in first.headers] == [("a", b"1"), ("b", None)]
    assert (second.key, second.value, second.headers) == (None, None, None)


def test_offsets_and_partitions_say_what_is_read(spark: SparkSession, topic: Topic) -> None:
    topic.publish(numbers(0, 100), partition=0)
    topic.publish(numbers(100, 200), partition=1)
    bounds = {
        "startingOffsets": f'{{"{topic.name}": {{"0": 90, "1": -2}}}}',
        "endingOffsets": f'{{"{topic.name}": {{"0": -1, "1": 5}}}}',
    }
    assert values(read(spark, topic, **bounds)) == numbers(90, 105)
    assigned = spark.read.format("headrace").options(
        servers=topic.node.bootstrap, assign=f'{{"{topic.name}": [1]}}'
    )
    assert values(assigned.load()) == numbers(100, 200)


def test_what_a_task_read_stands_in_the_logs_of_sparks_workers(
    spark: SparkSession, topic: Topic
) -> None:
    topic.publish(numbers(0, 100), partition=1)
    frame = read(spark, topic)
    setting = "spark.sql.pyspark.worker.logging.enabled"
    frame.count()
    spark.conf.set(setting, "true")
    try:
        frame.count()
        logs = spark.tvf.python_worker_logs().where("logger = 'headrace.spark.reading'")
        [line] = logs.where(F.col("context").getItem("topic") == topic.name).collect()
    finally:
        spark.conf.unset(setting)
    assert line.msg.startswith(f"{topic.name}:1 from 0 to 100: 100 rows and ")
    told = {name: line.context[name] for name in ("partition", "start", "end", "rows", "retries")}
    assert told == {"partition": "1", "start": "0", "end": "100", "rows": "100", "retries": "0"}
    assert int(line.context["bytes"]) > 600 and int(line.context["answers"]) >= 1
    assert int(line.context["ms"]) >= int(line.context["wait_ms"]) >= 0


def test_times_say_what_is_read(spark: SparkSession, topic: Topic) -> None:
    producer = Producer({"bootstrap.servers": topic.node.bootstrap})
    for number in range(100):
        producer.produce(
            topic.name, b"%06d" % number, partition=number % 2, timestamp=1_000_000 + number * 1_000
        )
    producer.flush(30)
    times = {"startingTimestamp": 1_010_000, "endingTimestamp": 1_020_000}
    assert values(read(spark, topic, **times)) == numbers(10, 20)
    with pytest.raises(PySparkException, match="has no record at or behind 9000000"):
        read(spark, topic, startingTimestamp=9_000_000).count()
    late = {"startingTimestamp": 9_000_000, "startingOffsetsByTimestampStrategy": "latest"}
    assert read(spark, topic, **late).count() == 0


def test_a_pattern_finds_its_topics(spark: SparkSession, node: NodeProcess) -> None:
    for name in ("metrics-a", "metrics-b", "logs-a"):
        topic = Topic(node, name)
        topic.create(1)
        topic.publish([name.encode()])
    frame = spark.read.format("headrace").options(
        servers=node.bootstrap, subscribePattern="metrics-.*"
    )
    assert values(frame.load()) == [b"metrics-a", b"metrics-b"]


def test_java_reads_patterns_as_we_do(spark: SparkSession) -> None:
    # What `tests/unit/spark/test_topic_pattern.py` expects of us, asked of Java itself.
    java: Any = spark._jvm
    regex = java.java.util.regex.Pattern
    for pattern, wanted in MATCHES.items():
        compiled = regex.compile(pattern.strip())
        found = [name for name in sorted(NAMES) if compiled.matcher(name).matches()]
        assert (pattern, found) == (pattern, sorted(wanted.split()))
    for pattern in REFUSED:
        regex.compile(pattern)
    for pattern in WRONG:
        with pytest.raises(PySparkException):
            regex.compile(pattern)


def test_times_without_a_zone_are_as_from_json_takes_them(
    spark: SparkSession, topic: Topic
) -> None:
    # In New York clocks are set forward on March 10 at 2, and back on November 3 at 2.
    texts = (
        "2024-07-01T12:00:00", "2024-01-01 12:00:00.123456", "2024-07-01T12:00:00Z",
        "2024-07-01T12:00:00+02:00", "2024-03-10T02:30:00", "2024-11-03T01:30:00", "2024-07-01",
    )  # fmt: skip
    topic.publish([f'{{"at": "{text}"}}'.encode() for text in texts])
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        frame = read(spark, topic, valueFormat="json", valueSchema="at TIMESTAMP")
        parsed = F.from_json(F.col("value").cast("string"), "at TIMESTAMP")["at"]
        rows = frame.select(
            F.unix_micros("decoded.at").alias("ours"), F.unix_micros(parsed).alias("sparks")
        ).collect()
        assert len(rows) == len(texts) and all(row.ours is not None for row in rows)
        assert [row.ours for row in rows] == [row.sparks for row in rows]
        away = read(
            spark, topic, valueFormat="json", valueSchema="at TIMESTAMP", timeZone="Asia/Tokyo"
        )
        here = {row.at for row in frame.select("decoded.at").collect()}
        assert len(here & {row.at for row in away.select("decoded.at").collect()}) == 2
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_two_actions_write_one_dead_letter(spark: SparkSession, topic: Topic) -> None:
    topic.publish([b'{"id": 1}', b"nonsense"])
    frame = read(
        spark, topic, valueFormat="json", valueSchema="id BIGINT", badRecords="dead-letters"
    )
    assert (frame.count(), len(frame.collect())) == (1, 1)
    assert [m.value() for m in Topic(topic.node, f"{topic.name}.dlq").consume(1)] == [b"nonsense"]


def test_more_splits_than_partitions_read_the_same_rows(spark: SparkSession, topic: Topic) -> None:
    topic.publish(numbers(0, 5_000))
    frame = read(spark, topic, minPartitions=7, rowsPerBatch=100)
    assert frame.rdd.getNumPartitions() == 7
    assert values(frame) == numbers(0, 5_000)


def test_an_empty_topic_is_an_empty_table(spark: SparkSession, topic: Topic) -> None:
    assert read(spark, topic).count() == 0


def test_chosen_columns_are_all_there_is(spark: SparkSession, topic: Topic) -> None:
    topic.publish(numbers(0, 10), partition=0)
    frame = read(spark, topic, columns="offset,headers")
    assert frame.columns == ["offset", "headers"]
    assert [row.offset for row in frame.orderBy("offset").collect()] == list(range(10))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "nowhere"}, "there is no topic 'nowhere'"),
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"startingOffsets": "latest"}, "cannot be 'latest' in a batch"),
        ({"sinkId": "x"}, "'sinkId' is not for a"),
        ({"valueFormat": "json", "valueSchema": "a CHAR(3)"}, "'valueSchema' has a type that"),
        ({"valueFormat": "json", "valueSchema": "a INT, a INT"}, "'valueSchema' has 'a' twice"),
    ],
)
def test_a_wrong_option_is_one_clear_error(
    spark: SparkSession, topic: Topic, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(PySparkException, match=says) as raised:
        read(spark, topic, **options).count()
    # The message and no more: no traceback of the process that planned.
    assert len(str(raised.value).splitlines()) <= 2


def test_offsets_that_are_gone_are_an_error_unless_allowed(
    spark: SparkSession, topic: Topic
) -> None:
    topic.publish(numbers(0, 100), partition=0)
    topic.delete_before({0: 40})
    bounds = {"startingOffsets": f'{{"{topic.name}": {{"0": 10, "1": -2}}}}'}
    with pytest.raises(PySparkException, match="begins at offset 40, so 10 is not there"):
        read(spark, topic, **bounds).count()
    assert values(read(spark, topic, **bounds, failOnDataLoss=False)) == numbers(40, 100)
