"""The sink's tasks, exactly once: retried, killed, replaced. Without Spark, against a
node, and against Apache Kafka where benchmarks have fetched it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from benchmarks.kafka.apache import CACHE, VERSION, Kafka
from benchmarks.kafka.brokers import Broker, Headrace
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.client.kafka.cluster import KafkaCluster, KafkaError
from headrace.client.kafka.offsets import committed_offsets
from headrace.client.kafka.producing import KafkaProducer
from headrace.core.errors import RecordTooLarge
from headrace.spark import sink
from headrace.spark.options import parse_read_options
from headrace.spark.planning import Planner, batch_ranges, connect
from headrace.spark.rows import read_range
from headrace.spark.sink import Task, Written, tell_skipped, write_rows
from headrace.spark.write_options import WriteOptions, parse_write_options

TOPIC = "orders"
SCHEMA = pa.schema([("value", pa.binary())])
BROKERS = ["headrace", *(["kafka"] if (CACHE / VERSION).exists() else [])]


@pytest.fixture(scope="module", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    place: Path = tmp_path_factory.mktemp(request.param)
    started: Broker = Headrace(place) if request.param == "headrace" else Kafka(place)
    started.start()
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def options(broker: Broker, request: pytest.FixtureRequest) -> WriteOptions:
    topic = f"{TOPIC}-{abs(hash(request.node.name))}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(60)
    return parse_write_options(
        {
            "servers": broker.bootstrap,
            "topic": topic,
            "exactlyOnce": "true",
            "kafka.compression.type": "lz4",
        },
        is_stream=True,
    )


def rows(start: int, end: int) -> Iterator[pa.RecordBatch]:
    for first in range(start, end, 50):
        numbers = range(first, min(first + 50, end))
        columns = [
            pa.array([b"k%d" % (n % 7) for n in numbers]),
            pa.array([b"%06d" % n for n in numbers]),
        ]
        yield pa.RecordBatch.from_arrays(columns, names=["key", "value"])


def write(options: WriteOptions, batch: int, number: int, start: int, end: int) -> Written:
    task = Task(f"sink-{options.topic}", batch, number)
    return write_rows(options, rows(start, end), task, number)


def found(options: WriteOptions, isolation: str = "read_committed") -> list[bytes]:
    read = parse_read_options(
        {
            "servers": ",".join(options.servers),
            "subscribe": options.topic or "",
            "columns": "value",
            "kafka.isolation.level": isolation,
        },
        "batch",
    )
    with connect(read) as cluster:
        ranges = batch_ranges(Planner(read, cluster), read)
    return sorted(
        value
        for each in ranges
        for batch in read_range(read, SCHEMA, each)
        for value in batch.column("value").to_pylist()
    )


def comes_to(options: WriteOptions, expected: list[bytes]) -> bool:
    """Apache Kafka answers a commit before its markers are written."""
    return any(found(options) == expected for _ in range(200))


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%06d" % number for number in range(start, end)]


def test_a_task_that_is_repeated_writes_nothing(
    options: WriteOptions, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (0, 1):
        assert not write(options, 0, number, number * 100, number * 100 + 100).skipped
    again = write(options, 0, 1, 100, 200)
    assert again.skipped
    assert again.rows == 100
    # A write by names that were used before is no repetition, and its rows are lost.
    tell_skipped([again, None], "nightly", 0)
    assert "100 rows of batch 0 of sink 'nightly' were not written" in caplog.text
    assert not write(options, 1, 0, 200, 300).skipped
    assert comes_to(options, numbers(0, 300))


def test_a_batch_that_the_topic_does_not_take_is_refused_with_its_size(
    options: WriteOptions,
) -> None:
    large = pa.RecordBatch.from_pydict({"value": [random.Random(1).randbytes(1_100_000)]})
    for task in (None, Task(f"sink-{options.topic}", 0, 0)):
        says = rf"a batch of 11\d+ bytes to {options.topic}:\d: .*max.message.bytes.*batch.size"
        with pytest.raises(RecordTooLarge, match=says):
            write_rows(options, iter([large]), task, 0)
    assert found(options) == []


def test_what_a_task_leaves_behind_is_never_seen(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(RuntimeError):
        pass

    def half() -> Iterator[pa.RecordBatch]:
        yield from rows(0, 100)
        raise Broken

    task = Task(f"sink-{options.topic}", 0, 0)
    with pytest.raises(Broken):
        write_rows(options, half(), task, 0)
    # Killed: not even able to say that it gave up.
    with monkeypatch.context() as patched, pytest.raises(Broken):
        patched.setattr(KafkaProducer, "abort", lambda self: None)
        write_rows(options, half(), task, 0)
    assert found(options) == []
    assert not write(options, 0, 0, 0, 100).skipped
    assert comes_to(options, numbers(0, 100))
    assert len(found(options, "read_uncommitted")) >= 100


def test_a_task_that_was_replaced_cannot_commit(options: WriteOptions) -> None:
    task = Task(f"sink-{options.topic}", 0, 0)
    with KafkaCluster(options.servers) as cluster:
        zombie = KafkaProducer(cluster, transactional_id=task.transactional_id)
        zombie.begin()
        sink._send(options, cluster, zombie, rows(0, 100), 0)
        zombie.flush()
        assert not write(options, 0, 0, 0, 100).skipped
        with pytest.raises(KafkaError, match="FENCED|EPOCH"):
            zombie.commit({(options.topic or "", 0): 99}, group=task.group)
        zombie.close()
        marker = committed_offsets(cluster, task.group, {options.topic or "": (0,)})
    assert list(marker.values()) == [1]
    assert comes_to(options, numbers(0, 100))


def test_a_commit_whose_answer_was_lost_counts_once(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lost(RuntimeError):
        pass

    end = KafkaProducer._end

    def end_and_die(self: KafkaProducer, *, commit: bool) -> None:
        end(self, commit=commit)
        raise Lost

    with monkeypatch.context() as patched, pytest.raises(Lost):
        patched.setattr(KafkaProducer, "_end", end_and_die)
        patched.setattr(KafkaProducer, "abort", lambda self: None)
        write(options, 0, 0, 0, 100)
    assert write(options, 0, 0, 0, 100).skipped
    assert comes_to(options, numbers(0, 100))
