"""From topic to topic, each row once, whatever fails on the way."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from tests.interop.conftest import NodeProcess
from tests.spark.conftest import Topic
from tests.spark.session import environment
from tests.spark.test_batch_read import numbers
from tests.spark.test_write import values, write

from headrace.client.kafka.cluster import LATEST, KafkaCluster

PROJECT = Path(__file__).parent.parent.parent
DRIVER_SECONDS = 240


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
    source = (
        spark.readStream.format("headrace")
        .options(servers=topic.node.bootstrap, subscribe=topic.name, startingOffsets="earliest")
        .load()
        .select("value")
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


def test_a_batch_that_is_written_again_by_hand_is_recognised(
    spark: SparkSession, topic: Topic
) -> None:
    frame = spark.sql("SELECT printf('%06d', id) AS value FROM RANGE(100)")
    named = {"exactlyOnce": True, "sinkId": f"sink-{topic.name}"}
    for batch in (0, 0, 1, 1):
        write(frame, topic, **named, batchId=batch)
    assert values(topic.consume(200)) == sorted(numbers(0, 100) * 2)
    # Every write without a name is one of its own, and leaves no marker behind.
    write(frame, topic, exactlyOnce=True)
    assert len(topic.consume(300)) == 300


class Copying:
    """The driver, as a process that can be killed with everything that it started."""

    def __init__(self, node: NodeProcess, source: Topic, target: Topic, folder: Path) -> None:
        self.target = target
        self._node = node
        self._command = [
            sys.executable, "-m", "tests.spark.copying", node.bootstrap, source.name, target.name,
            str(folder / "checkpoint"), "1000",
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            cwd=PROJECT,
            env={**os.environ, **environment()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return self

    def ends_within(self, seconds: float) -> bool:
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def wait_for_rows(self) -> bool:
        """Until something more was written, committed or not; False when it ended."""
        before = self._written()
        while not self.ends_within(0.02):
            if self._written() > before:
                return True
        return False

    def _written(self) -> int:
        with KafkaCluster([self._node.bootstrap]) as cluster:
            topic = cluster.topics([self.target.name])[self.target.name]
            wanted = dict.fromkeys(((topic.name, index) for index in topic.partitions), LATEST)
            return sum(found.offset for found in cluster.offsets(wanted).values())

    def kill(self) -> None:
        assert self._process is not None
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    def finish(self) -> None:
        """Run to the end; a run that a fault broke is begun again."""
        for _ in range(5):
            self.start()
            if self.ends_within(DRIVER_SECONDS):
                assert self._process is not None
                if self._process.returncode == 0:
                    return
            self.kill()
        raise AssertionError("the copy does not come to its end")


@pytest.mark.xdist_group("spark")
@pytest.mark.spark_soak
@pytest.mark.timeout(0)
def test_killed_drivers_and_nodes_leave_each_row_once(tmp_path: Path) -> None:
    faults = int(os.environ.get("HEADRACE_SPARK_FAULTS", "2"))
    chance = random.Random(faults)
    node = NodeProcess(tmp_path / "data")
    try:
        source, target = Topic(node, "source"), Topic(node, "target")
        source.create(2)
        target.create(3)
        rows = 5_000 * faults
        source.publish(numbers(0, rows))
        copying = Copying(node, source, target, tmp_path)
        for _ in range(faults // 2):
            copying.start()
            if copying.wait_for_rows():
                # Anywhere in a batch or between two of them.
                copying.ends_within(chance.random())
                node.restart(kill=True)
                copying.wait_for_rows()
                copying.ends_within(chance.random())
            copying.kill()
        copying.finish()
        assert values(target.consume(rows)) == numbers(0, rows)
    finally:
        node.stop()
