"""One session, one node, and the work that is measured.

Every row is wall time of a whole query in a warm session, the median of several runs;
a ceiling is measured in the same run, turn by turn with what it is the ceiling of, so
that whatever else the machine does hits both. Beside it stands the processor time of
everything that took part, the node included, which says the same on a busy machine.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.kafka.brokers import Headrace
from benchmarks.spark.ceiling import Ceiling
from headrace.spark.sink import write_rows
from headrace.spark.write_options import parse_write_options

PARTITIONS = 2
SCHEMA = "series STRING, ts BIGINT, value DOUBLE, pad STRING"


class Measured(NamedTuple):
    row: str
    system: str
    rows_per_second: float
    # Of the ceiling in the same run; None for the ceiling itself.
    share: float | None
    note: str = ""
    # Of all processes together, for a million rows.
    cpu_seconds: float = 0.0


def json_value(number: int, size: int) -> bytes:
    """A metric, padded: it can be decoded, and compresses as such things do."""
    head = b'{"series": "cpu.%d", "ts": %d, "value": %d.5, "pad": "' % (
        number % 100, 1_700_000_000_000 + number, number % 1_000,
    )  # fmt: skip
    return head + b"x" * (size - len(head) - 2) + b'"}'


class Bench:
    def __init__(self, place: Path, spark: SparkSession, rows: int, runs: int) -> None:
        self.place = place
        self.spark = spark
        self.rows = rows
        self.runs = runs
        # What an earlier run left, one that was ended from outside above all.
        shutil.rmtree(place / "node", ignore_errors=True)
        self.node = Headrace(place / "node")
        self.node.start()
        self._names = iter(range(10**9))
        spark.dataSource.register(Ceiling)

    def close(self) -> None:
        self.node.stop()

    # What is read and written.

    def topic(self, partitions: int = PARTITIONS) -> str:
        name = f"spark-{next(self._names)}"
        configs = {"headrace.durability": "synced"}
        self.node.make_topics(self.node.admin(), {name: partitions}, configs)
        return name

    def drop(self, name: str) -> None:
        admin = self.node.admin()
        admin.delete_topics([name])[name].result(60)

    def filled(self, size: int, compression: str, rows: int | None = None) -> str:
        name = self.topic()
        options = parse_write_options(
            {
                "servers": self.node.bootstrap,
                "topic": name,
                "kafka.compression.type": compression,
                # As producers make them by default.
                "kafka.batch.size": "16384",
            },
            is_stream=False,
        )
        write_rows(options, _batches(size, rows or self.rows), None, 0)
        return name

    def read(self, format: str, name: str, **options: Any) -> DataFrame:
        return (
            self.spark.read.format(format)
            .option("kafka.bootstrap.servers", self.node.bootstrap)
            .option("subscribe", name)
            .options(**options)
            .load()
        )

    def ceiling(self, size: int, rows: int | None = None) -> DataFrame:
        return (
            self.spark.read.format("ceiling")
            .options(rows=rows or self.rows, splits=PARTITIONS, size=size)
            .load()
        )

    def source(self, size: int) -> DataFrame:
        """Rows to be written, made by Spark itself."""
        return self.spark.range(0, self.rows, 1, PARTITIONS).select(
            F.rpad(F.col("id").cast("string"), size, "x").cast("binary").alias("value")
        )

    # Measuring.

    def compare(
        self, row: str, works: dict[str, Callable[[], None]], rows: int | None = None
    ) -> list[Measured]:
        """Turn by turn. The first of the works is the ceiling."""
        seconds: dict[str, list[float]] = {name: [] for name in works}
        processor: dict[str, list[float]] = {name: [] for name in works}
        for run in range(self.runs + 1):
            for name, work in works.items():
                used, began = processor_seconds(), time.perf_counter()
                work()
                # The first turn warms up: processes, classes, the page cache.
                if run:
                    seconds[name].append(time.perf_counter() - began)
                    processor[name].append(processor_seconds() - used)
        count = rows or self.rows
        rates = {name: count / statistics.median(each) for name, each in seconds.items()}
        ceiling = next(iter(rates.values()))
        return [
            Measured(
                row,
                name,
                rate,
                None if number == 0 else rate / ceiling,
                cpu_seconds=statistics.median(processor[name]) / count * 1e6,
            )
            for number, (name, rate) in enumerate(rates.items())
        ]

    def stream(self, source: Any, sink: Callable[[Any], Any]) -> None:
        folder = self.place / f"checkpoint-{next(self._names)}"
        try:
            query = sink(source).option("checkpointLocation", str(folder))
            query.trigger(availableNow=True).start().awaitTermination()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def processor_seconds() -> float:
    """What this process and all below it have used, those that have ended included."""
    ticks = 0
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:
            # It ended meanwhile; its parent has its time, or will have.
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _batches(size: int, rows: int) -> Iterator[pa.RecordBatch]:
    each = 20_000
    for start in range(0, rows, each):
        values = [json_value(number, size) for number in range(start, min(start + each, rows))]
        # One after the other: as many to each partition.
        partition = pa.array([(start // each) % PARTITIONS] * len(values), pa.int32())
        yield pa.RecordBatch.from_arrays(
            [pa.array(values, pa.binary()), partition], names=["value", "partition"]
        )
