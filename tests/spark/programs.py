"""Programs written for Spark's own Kafka source, which run with any format that takes its place.

    program(shop) -> rows      `shop.format` is "kafka" or "headrace"; nothing else differs

They are of the kinds that the guide of spark-sql-kafka has: batches, streams, sinks, windows,
joins, duplicates, `foreachBatch`. The topics that they read are made by `Shop.open`; each
program writes to topics of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Rows = list[list[Any]]

# Sunday, 1 November 2026, at midnight UTC; records are a second or five apart.
BEGAN_MS = 1_793_491_200_000
CLICKS = 300
BUYS = 60
USERS = 7

CLICK = "user STRING, page STRING, n INT"
BUY = "user STRING, amount DOUBLE, n INT"


class Shop(NamedTuple):
    """Where a program runs: a session, the name of the format, a broker and a folder."""

    spark: SparkSession
    format: str
    servers: str
    folder: Path

    def open(self) -> None:
        """Make the topics that programs read, and fill them."""
        self.make("shop-clicks", 3)
        self.make("shop-buys", 2)
        self.make("shop-names", 1)
        producer = Producer({"bootstrap.servers": self.servers})
        for number in range(CLICKS):
            click = {"user": user(number), "page": f"/page-{number % 11}", "n": number}
            producer.produce(
                "shop-clicks",
                json.dumps(click),
                user(number),
                number % 3,
                timestamp=BEGAN_MS + number * 1_000,
                headers=[("number", str(number).encode())] if number % 2 == 0 else None,
            )
        for number in range(BUYS):
            buy = {"user": user(number * 3), "amount": number * 1.25, "n": number}
            at_ms = BEGAN_MS + number * 5_000
            producer.produce(
                "shop-buys", json.dumps(buy), user(number * 3), number % 2, timestamp=at_ms
            )
        for number in range(USERS):
            producer.produce(
                "shop-names", f"Name {number}", user(number), 0, timestamp=BEGAN_MS + number
            )
        assert producer.flush(60) == 0

    def make(self, topic: str, partitions: int) -> str:
        # Records are as old as they say, and no retention is to delete them.
        new = NewTopic(topic, partitions, config={"retention.ms": "-1"})
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([new])[topic].result(60)
        return topic

    def read(self, topics: str, **options: object) -> DataFrame:
        reader = self.spark.read.format(self.format)
        reader = reader.option("kafka.bootstrap.servers", self.servers).option("subscribe", topics)
        return reader.options(**as_text(options)).load()

    def follow(self, topics: str, **options: object) -> DataFrame:
        reader = self.spark.readStream.format(self.format)
        reader = reader.option("kafka.bootstrap.servers", self.servers).option("subscribe", topics)
        return reader.options(**as_text({"startingOffsets": "earliest"} | options)).load()

    def run(self, writer: DataStreamWriter, name: str) -> StreamingQuery:
        """Write what is there now; a name that ran before goes on from its checkpoint."""
        writer = writer.option("checkpointLocation", str(self.folder / name))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def to_topic(self, frame: DataFrame, topic: str) -> DataStreamWriter:
        writer = frame.writeStream.format(self.format)
        return writer.option("kafka.bootstrap.servers", self.servers).option("topic", topic)

    def to_table(self, frame: DataFrame, name: str) -> Rows:
        """The rows that a query in append mode gives."""
        path = str(self.folder / f"{name}-table")
        self.run(frame.writeStream.format("parquet").option("path", path), name)
        return rows(self.spark.read.schema(frame.schema).parquet(path))


def as_text(options: dict[str, object]) -> dict[str, Any]:
    """Options as Spark has them, with "__" for each dot of a name."""
    return {
        name.replace("__", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }


def user(number: int) -> str:
    return f"user-{number % USERS}"


def rows(frame: DataFrame) -> Rows:
    """In an order of their own, as JSON has them."""
    return sorted((plain(row) for row in frame.collect()), key=json.dumps)


def plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode()
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def text(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")


def clicks(frame: DataFrame) -> DataFrame:
    parsed = F.from_json(F.col("value").cast("string"), CLICK)
    return frame.select("timestamp", parsed.alias("click")).select("timestamp", "click.*")


def buys(frame: DataFrame) -> DataFrame:
    parsed = F.from_json(F.col("value").cast("string"), BUY)
    return frame.select(F.col("timestamp").alias("bought"), parsed.alias("buy")).select(
        "bought", "buy.*"
    )


# Batches.


def a_whole_topic(shop: Shop) -> Rows:
    return rows(text(shop.read("shop-clicks")))


def columns_and_types(shop: Shop) -> Rows:
    frame = shop.read("shop-clicks", includeHeaders=True)
    return [[field.name, field.dataType.simpleString()] for field in frame.schema.fields]


def every_column_but_the_value(shop: Shop) -> Rows:
    return rows(shop.read("shop-buys").drop("value"))


def headers_of_records(shop: Shop) -> Rows:
    frame = shop.read("shop-clicks", includeHeaders="true")
    return rows(frame.select("partition", "offset", "headers"))


def several_topics(shop: Shop) -> Rows:
    return rows(shop.read("shop-clicks,shop-buys, shop-names").groupBy("topic").count())


def topics_by_a_pattern(shop: Shop) -> Rows:
    reader = shop.spark.read.format(shop.format)
    frame = (
        reader.option("kafka.bootstrap.servers", shop.servers)
        .option("subscribePattern", r"\Qshop-\E(?:buys|names)")
        .load()
    )
    return rows(frame.groupBy("topic", "partition").count())


def partitions_that_are_named(shop: Shop) -> Rows:
    frame = (
        shop.spark.read.format(shop.format)
        .option("kafka.bootstrap.servers", shop.servers)
        .option("assign", '{"shop-clicks": [0, 2], "shop-buys": [1]}')
        .load()
    )
    return rows(frame.groupBy("topic", "partition").agg(F.count("*"), F.max("offset")))


def a_range_of_offsets(shop: Shop) -> Rows:
    frame = shop.read(
        "shop-clicks",
        startingOffsets='{"shop-clicks": {"0": 23, "1": -2, "2": 90}}',
        endingOffsets='{"shop-clicks": {"0": 50, "1": 7, "2": -1}}',
    )
    return rows(frame.select("partition", "offset"))


def a_range_of_time(shop: Shop) -> Rows:
    frame = shop.read(
        "shop-clicks",
        startingTimestamp=BEGAN_MS + 60_000,
        endingTimestamp=BEGAN_MS + 90_000,
    )
    return rows(frame.select("partition", "offset", "timestamp"))


def times_by_partition(shop: Shop) -> Rows:
    at = {str(number): BEGAN_MS + number * 100_000 for number in range(3)}
    late = json.dumps({"shop-clicks": at | {"2": BEGAN_MS + 10_000_000}})
    frame = shop.read(
        "shop-clicks",
        startingOffsetsByTimestamp=late,
        startingOffsetsByTimestampStrategy="latest",
    )
    return rows(frame.groupBy("partition").agg(F.count("*"), F.min("offset")))


def a_view_in_sql(shop: Shop) -> Rows:
    shop.spark.sql(
        f"""
        CREATE OR REPLACE TEMPORARY VIEW shop_buys USING {shop.format}
        OPTIONS (kafka.bootstrap.servers '{shop.servers}', subscribe 'shop-buys')
        """
    )
    return rows(
        shop.spark.sql(
            f"""
            SELECT buy.user, COUNT(*), SUM(buy.amount), MAX(timestamp)
            FROM (SELECT from_json(CAST(value AS STRING), '{BUY}') AS buy, timestamp FROM shop_buys)
            GROUP BY buy.user
            """
        )
    )


def a_join_of_two_topics(shop: Shop) -> Rows:
    names = text(shop.read("shop-names")).withColumnRenamed("value", "name")
    bought = buys(shop.read("shop-buys"))
    joined = bought.join(names, bought.user == names.key)
    return rows(joined.groupBy("name").agg(F.sum("amount")))


def with_options_that_people_copy(shop: Shop) -> Rows:
    frame = shop.read(
        "shop-buys",
        kafka__group__id="reports",
        groupIdPrefix="reports",
        failOnDataLoss="false",
        minPartitions=5,
        kafkaConsumer__pollTimeoutMs=120_000,
        fetchOffset__numRetries=5,
        fetchOffset__retryIntervalMs=50,
        kafka__security__protocol="PLAINTEXT",
        kafka__max__poll__records=1_000,
        kafka__session__timeout__ms=45_000,
        kafka__request__timeout__ms=90_000,
    )
    return rows(frame.groupBy("partition").count())


# Batches that are written.


def a_table_to_a_topic(shop: Shop) -> Rows:
    topic = shop.make("shop-squares", 2)
    frame = shop.spark.range(50).selectExpr("CAST(id AS STRING) AS key", "id * id AS square")
    (
        frame.selectExpr("key", "to_json(struct(*)) AS value")
        .write.format(shop.format)
        .option("kafka.bootstrap.servers", shop.servers)
        .option("kafka.acks", "1")
        .option("kafka.linger.ms", "20")
        .option("kafka.compression.type", "lz4")
        .option("topic", topic)
        .mode("append")
        .save()
    )
    return rows(shop.read(topic).selectExpr("partition", "CAST(key AS STRING)", "value"))


def topics_by_a_column(shop: Shop) -> Rows:
    shop.make("shop-even", 1)
    shop.make("shop-odd", 1)
    frame = shop.spark.range(20).selectExpr(
        "CAST(id AS STRING) AS value", "IF(id % 2 = 0, 'shop-even', 'shop-odd') AS topic"
    )
    writer = frame.write.format(shop.format).option("kafka.bootstrap.servers", shop.servers)
    writer.mode("append").save()
    return rows(shop.read("shop-even,shop-odd").select("topic", "value"))


def the_option_before_the_column(shop: Shop) -> Rows:
    topic = shop.make("shop-copies", 1)
    (
        shop.read("shop-names")
        .select("key", "value", "topic")
        .write.format(shop.format)
        .option("kafka.bootstrap.servers", shop.servers)
        .option("topic", topic)
        .mode("append")
        .save()
    )
    return rows(shop.read(f"{topic},shop-names").groupBy("topic").count())


def headers_and_partitions_that_are_written(shop: Shop) -> Rows:
    topic = shop.make("shop-headed", 3)
    (
        shop.read("shop-clicks", includeHeaders="true")
        .where("offset < 3")
        .select("value", "headers", F.expr("2 - partition").alias("partition"))
        .write.format(shop.format)
        .option("kafka.bootstrap.servers", shop.servers)
        .option("includeHeaders", "true")
        .option("topic", topic)
        .mode("append")
        .save()
    )
    return rows(shop.read(topic, includeHeaders="true").select("partition", "value", "headers"))


# Streams.


def a_stream_into_files(shop: Shop) -> Rows:
    return shop.to_table(text(shop.follow("shop-clicks")), "into-files")


def a_stream_in_parts(shop: Shop) -> Rows:
    frame = shop.follow("shop-clicks", maxOffsetsPerTrigger=120).select("value")
    path = str(shop.folder / "in-parts-table")
    writer = frame.writeStream.format("parquet").option("path", path)
    query = shop.run(writer, "in-parts")
    return [[progress["numInputRows"]] for progress in query.recentProgress]


def a_stream_from_topic_to_topic(shop: Shop) -> Rows:
    topic = shop.make("shop-large", 2)
    large = buys(shop.follow("shop-buys")).where("amount > 50")
    frame = large.selectExpr("user AS key", "to_json(struct(amount, n)) AS value")
    shop.run(shop.to_topic(frame, topic), "to-topic")
    return rows(shop.read(topic).selectExpr("partition", "CAST(key AS STRING)", "value"))


def a_stream_that_goes_on(shop: Shop) -> Rows:
    """Stopped, and started again with its checkpoint when more has come."""
    source, target = shop.make("shop-growing", 2), shop.make("shop-grown", 1)
    producer = Producer({"bootstrap.servers": shop.servers})
    found = []
    for part in range(2):
        for number in range(10):
            producer.produce(source, f"{part}-{number}", partition=number % 2)
        assert producer.flush(60) == 0
        shop.run(shop.to_topic(shop.follow(source).select("value"), target), "growing")
        found.append([shop.read(target).count()])
    return found


def windows_behind_a_watermark(shop: Shop) -> Rows:
    counted = (
        clicks(shop.follow("shop-clicks", maxOffsetsPerTrigger=150))
        .withWatermark("timestamp", "10 seconds")
        .groupBy(F.window("timestamp", "1 minute"), "page")
        .count()
        .selectExpr("window.start AS start", "page", "count")
    )
    return shop.to_table(counted, "windows")


def counts_of_clicks(shop: Shop) -> DataFrame:
    counted = clicks(shop.follow("shop-clicks")).groupBy("user").count()
    return counted.selectExpr("user AS key", "CAST(count AS STRING) AS value")


def counts_in_update_mode(shop: Shop) -> Rows:
    topic = shop.make("shop-counts", 1)
    shop.run(shop.to_topic(counts_of_clicks(shop), topic).outputMode("update"), "update")
    return rows(text(shop.read(topic)))


def sums_in_complete_mode(shop: Shop) -> Rows:
    topic = shop.make("shop-sums", 1)
    summed = buys(shop.follow("shop-buys")).groupBy("user").agg(F.sum("amount").alias("sum"))
    frame = summed.selectExpr("user AS key", "CAST(sum AS STRING) AS value")
    shop.run(shop.to_topic(frame, topic).outputMode("complete"), "complete")
    return rows(text(shop.read(topic)))


def a_join_of_two_streams(shop: Shop) -> Rows:
    left = clicks(shop.follow("shop-clicks")).withWatermark("timestamp", "1 minute")
    right = buys(shop.follow("shop-buys")).withWatermark("bought", "1 minute")
    right = right.selectExpr("user AS buyer", "bought", "amount")
    joined = left.join(
        right,
        F.expr(
            "user = buyer AND bought >= timestamp AND bought <= timestamp + INTERVAL 10 SECONDS"
        ),
    )
    return shop.to_table(joined.select("user", "n", "amount"), "two-streams")


def a_join_with_a_table(shop: Shop) -> Rows:
    names = text(shop.read("shop-names")).withColumnRenamed("value", "name")
    followed = clicks(shop.follow("shop-clicks")).where("n < 20")
    joined = followed.join(F.broadcast(names), followed.user == names.key)
    return shop.to_table(joined.select("n", "name"), "stream-and-table")


def without_duplicates(shop: Shop) -> Rows:
    seen = (
        clicks(shop.follow("shop-clicks"))
        .withWatermark("timestamp", "10 minutes")
        .dropDuplicatesWithinWatermark(["user", "page"])
        .select("user", "page")
    )
    return shop.to_table(seen, "duplicates")


def for_each_batch(shop: Shop) -> Rows:
    topic = shop.make("shop-batches", 1)

    def write(frame: DataFrame, batch: int) -> None:
        frame = frame.selectExpr("CAST(partition AS STRING) AS key", "value")
        writer = frame.write.format(shop.format).mode("append")
        writer = writer.option("kafka.bootstrap.servers", shop.servers)
        writer.option("topic", topic).save()

    shop.run(shop.follow("shop-buys").writeStream.foreachBatch(write), "each-batch")
    return rows(text(shop.read(topic)))


PROGRAMS: Iterable[Callable[[Shop], Rows]] = (
    a_whole_topic,
    columns_and_types,
    every_column_but_the_value,
    headers_of_records,
    several_topics,
    topics_by_a_pattern,
    partitions_that_are_named,
    a_range_of_offsets,
    a_range_of_time,
    times_by_partition,
    a_view_in_sql,
    a_join_of_two_topics,
    with_options_that_people_copy,
    a_table_to_a_topic,
    topics_by_a_column,
    the_option_before_the_column,
    headers_and_partitions_that_are_written,
    a_stream_into_files,
    a_stream_in_parts,
    a_stream_from_topic_to_topic,
    a_stream_that_goes_on,
    windows_behind_a_watermark,
    counts_in_update_mode,
    sums_in_complete_mode,
    a_join_of_two_streams,
    a_join_with_a_table,
    without_duplicates,
    for_each_batch,
)
