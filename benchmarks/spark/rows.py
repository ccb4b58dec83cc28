"""The rows: what is measured, of whom, beside which ceiling."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.samples import percentile
from benchmarks.spark.measuring import SCHEMA, Bench, Measured, drain

SIZES = (100, 1_000)
CEILING = "ceiling"
OURS = "headrace"
THEIRS = "spark-sql-kafka"

Row = Callable[[Bench, bool], Iterator[Measured]]


def batch_read(bench: Bench, with_kafka: bool) -> Iterator[Measured]:
    for size in SIZES:
        for compression in ("none", "lz4"):
            name = bench.filled(size, compression)
            works = {
                CEILING: lambda size=size: drain(bench.ceiling(size)),
                OURS: lambda name=name: drain(bench.read("headrace", name)),
            }
            if with_kafka:
                works[THEIRS] = lambda name=name: drain(bench.read("kafka", name))
            yield from bench.compare(f"batch read, {size} B, {compression}", works)
            bench.drop(name)


def json_decoding(bench: Bench, with_kafka: bool) -> Iterator[Measured]:
    name = bench.filled(100, "none")
    options = {"valueFormat": "json", "valueSchema": SCHEMA}
    works = {
        CEILING: lambda: drain(bench.ceiling(100)),
        "headrace, raw": lambda: drain(bench.read("headrace", name)),
        "headrace, valueFormat=json": lambda: drain(bench.read("headrace", name, **options)),
    }
    if with_kafka:
        works["spark-sql-kafka, from_json"] = lambda: drain(
            bench.read("kafka", name).withColumn(
                "decoded", F.from_json(F.col("value").cast("string"), SCHEMA)
            )
        )
    yield from bench.compare("batch read, 100 B, decoded", works)
    bench.drop(name)


def streaming(bench: Bench, with_kafka: bool) -> Iterator[Measured]:
    for size in SIZES:
        rows = bench.rows * (2 if size == 100 else 1)
        name = bench.filled(size, "none", rows)

        def ceiling(size: int = size, rows: int = rows) -> None:
            source = bench.spark.readStream.format("ceiling")
            loaded = source.options(rows=rows, splits=2, size=size).load()
            bench.stream(loaded, lambda frame: frame.writeStream.format("noop"))

        def read(format: str, name: str = name) -> None:
            source = bench.spark.readStream.format(format)
            source = source.option("kafka.bootstrap.servers", bench.node.bootstrap)
            loaded = source.options(subscribe=name, startingOffsets="earliest").load()
            bench.stream(loaded, lambda frame: frame.writeStream.format("noop"))

        works = {CEILING: ceiling, OURS: lambda: read("headrace")}
        if with_kafka:
            works[THEIRS] = lambda: read("kafka")
        yield from bench.compare(f"stream, AvailableNow, {size} B", works, rows)
        bench.drop(name)


def sink(bench: Bench, with_kafka: bool) -> Iterator[Measured]:
    for size in SIZES:
        name = bench.topic()
        frame = bench.source(size)

        given = {"kafka.bootstrap.servers": bench.node.bootstrap, "topic": name}
        works = {
            CEILING: partial(_write, frame, "ceiling"),
            "headrace, at least once": partial(_write, frame, "headrace", given),
            "headrace, exactly once": partial(
                _write, frame, "headrace", {**given, "exactlyOnce": "true"}
            ),
        }
        if with_kafka:
            works[THEIRS] = partial(_write, frame, "kafka", given)
        yield from bench.compare(f"sink, {size} B", works)
        bench.drop(name)


def _write(frame: DataFrame, format: str, options: Mapping[str, str] | None = None) -> None:
    frame.write.format(format).mode("append").options(**(options or {})).save()


def latency(bench: Bench, with_kafka: bool) -> Iterator[Measured]:
    """From publishing to the row in the next trigger of one second, by the clock of
    this machine."""
    from confluent_kafka import Producer

    for format in ("headrace", *(("kafka",) if with_kafka else ())):
        name = bench.topic()
        waits: list[float] = []

        def collect(frame, batch_id: int, waits: list[float] = waits) -> None:  # type: ignore[no-untyped-def]
            rows = frame.select("timestamp").collect()
            now = time.time()
            waits += [now - row.timestamp.timestamp() for row in rows]

        source = bench.spark.readStream.format(format)
        source = source.option("kafka.bootstrap.servers", bench.node.bootstrap)
        query = (
            source.options(subscribe=name, startingOffsets="earliest")
            .load()
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(bench.place / f"latency-{name}"))
            .trigger(processingTime="1 second")
            .start()
        )
        producer = Producer({"bootstrap.servers": bench.node.bootstrap, "linger.ms": 0})
        try:
            for number in count():
                producer.produce(name, b"x" * 100)
                producer.poll(0)
                time.sleep(0.02)
                # The first batches carry the start of the query.
                if len(waits) > 1_500 or number > 10_000:
                    break
            producer.flush(30)
        finally:
            query.stop()
        settled = sorted(waits[500:])
        for part, share in (("p50", 0.5), ("p99", 0.99)):
            seconds = percentile(settled, share)
            note = f"{seconds * 1000:.0f} ms"
            system = OURS if format == "headrace" else THEIRS
            yield Measured(f"latency at a trigger of 1 s, {part}", system, 0.0, None, note)
        bench.drop(name)


ROWS: dict[str, Row] = {
    "batch-read": batch_read,
    "json": json_decoding,
    "stream": streaming,
    "sink": sink,
    "latency": latency,
}
