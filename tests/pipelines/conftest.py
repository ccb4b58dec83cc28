"""Records as the connector gives them, made without a topic; and a real one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.object_store import ObjectStore, object_store
from tests.spark.conftest import node as node
from tests.spark.conftest import topic as topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int, headers array<struct<key:string,value:binary>>"
)
# A minute, a five minutes and an hour begin here.
NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


@pytest.fixture(scope="session")
def s3() -> Iterator[ObjectStore]:
    """One for all tests, which keep to buckets of their own."""
    with object_store() as store:
        yield store


def metric(name: str, at_ms: int, value: float, **labels: str) -> bytes:
    return json.dumps({"name": name, "labels": labels, "ts": at_ms, "value": value}).encode()


def record(
    value: bytes | None,
    *,
    offset: int = 0,
    partition: int = 0,
    at_ms: int = NOON_MS,
    key: bytes | None = None,
    topic: str = "metrics",
) -> tuple[Any, ...]:
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return (key, value, topic, partition, offset, moment, 0, [])


def records(spark: SparkSession, rows: Iterable[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(list(rows), RECORD_SCHEMA)


class FolderTopic:
    """A topic as a folder of JSON Lines, for queries that need a stream and not
    a node: one file for each batch that was "published"."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._next_offset = 0
        self._files = 0
        folder.mkdir()

    def publish(self, values: Iterable[bytes], *, at_ms: int = NOON_MS) -> int:
        lines = []
        for value in values:
            row = {"value": value.decode(), "offset": self._next_offset, "at_ms": at_ms}
            lines.append(json.dumps(row))
            self._next_offset += 1
        path = self._folder / f"{self._files:06d}.json"
        path.write_text("\n".join(lines) + "\n")
        # Spark takes files in the order of their times.
        self._files += 1
        os.utime(path, (self._files, self._files))
        return len(lines)

    def stream(self) -> DataFrame:
        from pyspark.sql import functions as F

        lines = (
            self._spark.readStream.schema("value string, offset long, at_ms long")
            .option("maxFilesPerTrigger", 1)
            .json(str(self._folder))
        )
        return lines.select(
            F.lit(None).cast("binary").alias("key"),
            F.encode("value", "UTF-8").alias("value"),
            F.lit("metrics").alias("topic"),
            F.lit(0).alias("partition"),
            "offset",
            F.timestamp_millis("at_ms").alias("timestamp"),
            F.lit(0).alias("timestampType"),
        )
