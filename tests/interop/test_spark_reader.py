"""The readers and writers of `format("headrace")`, driven as Spark drives them, without
it: what a session of its own would prove too, in a fraction of the time."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from tests.interop.conftest import NodeProcess
from tests.interop.wire_client import WireClient, make

import headrace
from headrace.core.errors import InvalidOption
from headrace.record import Record
from headrace.spark import letters
from headrace.spark.batch import HeadraceReader, PushingReader
from headrace.spark.options import parse_read_options
from headrace.spark.schema import column_names
from headrace.spark.sink import write_rows
from headrace.spark.source import HeadraceSource
from headrace.spark.splits import Split
from headrace.spark.stream import HeadraceStreamReader
from headrace.spark.views import ViewReader
from headrace.spark.write_options import parse_write_options

TOPIC = "orders"
HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
    "decoded": StructType([StructField("id", LongType())]),
    "decodeError": StringType(),
}


def schema_of(names: list[str]) -> StructType:
    return StructType([StructField(name, TYPES[name]) for name in names])


def batch_reader(kind: Any = HeadraceReader, **given: str) -> Any:
    options = parse_read_options({"subscribe": TOPIC} | given, "batch")
    return kind(options, schema_of(column_names(options.shape)))


def stream_reader(**given: str) -> HeadraceStreamReader:
    given = {"subscribe": TOPIC, "startingOffsets": "earliest"} | given
    options = parse_read_options(given, "stream")
    return HeadraceStreamReader(options, schema_of(column_names(options.shape)))


def rows_of(reader: Any, splits: list[InputPartition]) -> list[dict[str, Any]]:
    """As executors would: readers and splits travel there by pickle."""
    return [
        row
        for split in splits
        for batch in pickle.loads(pickle.dumps(reader)).read(pickle.loads(pickle.dumps(split)))
        for row in batch.to_pylist()
    ]


def read(reader: Any) -> list[dict[str, Any]]:
    return rows_of(reader, reader.partitions())


def values(rows: list[dict[str, Any]]) -> list[bytes]:
    return sorted(row["value"] for row in rows)


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%06d" % number for number in range(start, end)]


@pytest.fixture
def topic(node: NodeProcess) -> NodeProcess:
    with WireClient(node.bootstrap) as client:
        make(client, TOPIC, 2)
    return node


def publish(
    node: NodeProcess,
    content: list[bytes],
    partition: int | None = None,
    times_ms: list[int] | None = None,
) -> None:
    columns: dict[str, Any] = {"value": pa.array(content, pa.binary())}
    if times_ms is not None:
        times_us = [each * 1000 for each in times_ms]
        columns["timestamp"] = pa.array(times_us, pa.timestamp("us", "UTC"))
    if partition is not None:
        columns["partition"] = pa.array([partition] * len(content), pa.int32())
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    options = parse_write_options({"servers": node.bootstrap, "topic": TOPIC}, is_stream=False)
    write_rows(options, iter([batch]), None, 0)


# Decoding.


def test_bad_records_have_their_reason_beside_them(topic: NodeProcess) -> None:
    publish(topic, [b'{"id": 1}', b"nonsense", b'{"id": 3}'], 0)
    rows = read(batch_reader(servers=topic.bootstrap, valueFormat="json", valueSchema="id BIGINT"))
    assert [row["decoded"] for row in rows] == [{"id": 1}, None, {"id": 3}]
    assert [row["decodeError"] is None for row in rows] == [True, False, True]
    assert rows[1]["value"] == b"nonsense"


@pytest.mark.parametrize("is_stream", [False, True])
def test_bad_records_become_dead_letters(topic: NodeProcess, is_stream: bool) -> None:
    publish(topic, [b'{"id": 1}', b"nonsense", b'{"id": 3}'], 1)
    given = {
        "servers": topic.bootstrap,
        "valueFormat": "json",
        "valueSchema": "id BIGINT",
        "badRecords": "dead-letters",
        "progressGroup": "rollup",
    }
    # Twice, as Spark does for two actions, or when it repeats a task.
    for _ in range(2):
        if is_stream:
            reader: Any = stream_reader(**given)
            end = reader.latestOffset(start := reader.initialOffset(), ReadAllAvailable())
            rows = rows_of(reader, reader.partitions(start, end))
            reader.stop()
        else:
            rows = read(batch_reader(**given))
        assert [row["decoded"] for row in rows] == [{"id": 1}, {"id": 3}]
    with headrace.connect(topic.bootstrap) as handle:
        [letter] = handle.dead_letters(TOPIC)
        assert letter.raw == b"nonsense"
        assert str(letter.source) == f"{TOPIC}:1:1"
        assert (letter.group, letter.reason) == ("rollup", "not decodable")
        assert "not the JSON" in (letter.error or "")
        # Another group has letters of its own; what is bad since has one more.
        publish(topic, [b"worse"], 1)
        for _ in range(2):
            read(batch_reader(**given))
            read(batch_reader(**{**given, "progressGroup": "audit"}))
        found = sorted((letter.group, letter.raw) for letter in handle.dead_letters(TOPIC))
        bad = (b"nonsense", b"worse")
        assert found == [(group, raw) for group in ("audit", "rollup") for raw in bad]
        # Letters would be bad again, and have letters of their own, and these too.
        del given["progressGroup"]
        options = parse_read_options({**given, "subscribePattern": ".*"}, "stream")
        reader = HeadraceStreamReader(options, schema_of(column_names(options.shape)))
        assert sorted(reader.latestOffset({}, ReadAllAvailable())) == [TOPIC]
        reader.stop()
        everything = {"servers": topic.bootstrap, "subscribePattern": ".*"}
        options = parse_read_options(everything, "stream")
        reader = HeadraceStreamReader(options, schema_of(column_names(options.shape)))
        assert sorted(reader.latestOffset({}, ReadAllAvailable())) == [TOPIC, f"{TOPIC}.dlq"]
        reader.stop()


def test_a_task_that_sends_its_letters_in_parts_looks_at_each_once(
    topic: NodeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[bytes | None] = []
    records_of = letters._records_of

    def noted(batches: memoryview) -> Iterator[Record]:
        for record in records_of(batches):
            looked_at.append(record.value)
            yield record

    monkeypatch.setattr(letters, "_records_of", noted)
    # Each bad record goes to the dead letters alone.
    monkeypatch.setattr(letters, "_BYTES_WAITING", 1)
    bad = [b"bad %d" % number for number in range(9)]
    now_ms = 1_700_000_000_000
    publish(topic, bad, 0, [now_ms + number for number in range(9)])
    given = {"valueFormat": "json", "valueSchema": "id BIGINT", "badRecords": "dead-letters"}
    for _ in range(2):
        looked_at.clear()
        assert read(batch_reader(servers=topic.bootstrap, **given)) == []
        assert len(looked_at) <= len(bad)
    # One that is older than what was looked at is looked for all the same.
    publish(topic, [b"older", b"newer"], 0, [now_ms - 5, now_ms + 20])
    for _ in range(2):
        read(batch_reader(servers=topic.bootstrap, **given))
    with headrace.connect(topic.bootstrap) as handle:
        found = sorted(letter.raw or b"" for letter in handle.dead_letters(TOPIC))
    assert found == sorted([*bad, b"older", b"newer"])


def test_ddl_names_every_column() -> None:
    given = {"subscribe": TOPIC, "servers": "a:1", "includeHeaders": "true"}
    source = HeadraceSource(given | {"valueFormat": "json", "valueSchema": "id BIGINT"})
    assert source.schema().endswith(
        "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, decoded STRUCT<id BIGINT>, "
        "decodeError STRING"
    )
    assert "deliverAt TIMESTAMP" in HeadraceSource(given | {"view": "delayed"}).schema()


# Filters.


def test_filters_leave_fewer_splits(topic: NodeProcess) -> None:
    publish(topic, numbers(0, 100), 0)
    publish(topic, numbers(100, 200), 1)
    reader = batch_reader(PushingReader, servers=topic.bootstrap, pushFilters="true")
    filters = [EqualTo(("partition",), 1), GreaterThanOrEqual(("offset",), 95)]
    assert reader.pushFilters(filters) == filters
    assert [split.range[2:] for split in reader.partitions()] == [(1, 95, 100)]
    assert values(read(reader)) == numbers(195, 200)
    late = datetime.now(UTC).replace(year=2100)
    reader.pushFilters([GreaterThanOrEqual(("timestamp",), late)])
    assert reader.partitions() == []


# Streams.


def test_little_is_waited_for_and_much_is_limited(topic: NodeProcess) -> None:
    publish(topic, numbers(0, 10))
    reader = stream_reader(servers=topic.bootstrap, minOffsetsPerTrigger="20", maxTriggerDelay="1h")
    start = reader.initialOffset()
    assert reader.getDefaultReadLimit() == ReadMinRows(20)
    assert reader.latestOffset(start, ReadMinRows(20)) == start
    publish(topic, numbers(10, 30))
    assert reader.latestOffset(start, ReadMinRows(20)) != start
    limited = reader.latestOffset(start, ReadMaxRows(25))
    assert len(rows_of(reader, list(reader.partitions(start, limited)))) == 25
    reader.stop()


def test_waiting_ends_after_the_longest_delay(topic: NodeProcess) -> None:
    publish(topic, numbers(0, 10))
    reader = stream_reader(
        servers=topic.bootstrap, minOffsetsPerTrigger="20", maxTriggerDelay="0ms"
    )
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMinRows(20)) != start
    reader.stop()


def test_what_comes_after_the_target_is_left_for_the_next_run(topic: NodeProcess) -> None:
    publish(topic, numbers(0, 10))
    reader = stream_reader(servers=topic.bootstrap)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    publish(topic, numbers(10, 20))
    end = reader.latestOffset(start, ReadAllAvailable())
    assert values(rows_of(reader, list(reader.partitions(start, end)))) == numbers(0, 10)
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    reader.stop()


# Directories.


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "embedded"
    with headrace.open(path) as handle:
        handle.create_topic(TOPIC, 2, segment_bytes=64 * 1024)
        handle.publish_many(TOPIC, numbers(0, 5_000), partition=0)
    yield path


def test_a_directory_is_read_from_its_segments(directory: Path) -> None:
    reader = batch_reader(path=str(directory), minPartitions="5", rowsPerBatch="300")
    splits = reader.partitions()
    assert len(splits) >= 5
    assert all(isinstance(split, Split) for split in splits)
    assert values(rows_of(reader, splits)) == numbers(0, 5_000)


def test_a_part_of_a_directory_is_read_by_offset_and_time(directory: Path) -> None:
    bounds = {"startingOffsets": f'{{"{TOPIC}": {{"0": 10, "1": -2}}}}'}
    rows = read(batch_reader(path=str(directory), **bounds))
    assert len(rows) == 5_000 - 10
    assert min(row["offset"] for row in rows) == 10
    assert read(batch_reader(path=str(directory), endingTimestamp="1000")) == []
    with pytest.raises(InvalidOption, match="has no record at or behind"):
        batch_reader(path=str(directory), startingTimestamp="9000000000000").partitions()


def test_a_directory_in_use_sends_one_to_its_server(directory: Path) -> None:
    reader = batch_reader(path=str(directory))
    with (
        headrace.open(directory),
        pytest.raises(InvalidOption, match="'path': .*set 'servers' instead"),
    ):
        reader.partitions()
    assert len(read(reader)) == 5_000


def test_a_directory_that_is_none_is_refused(tmp_path: Path, directory: Path) -> None:
    with pytest.raises(InvalidOption, match="there is no Headrace directory here"):
        batch_reader(path=str(tmp_path / "nowhere")).partitions()
    options = parse_read_options({"path": str(directory), "subscribe": "nothing"}, "batch")
    reader = HeadraceReader(options, schema_of(column_names(options.shape)))
    with pytest.raises(InvalidOption, match="there is no topic 'nothing'"):
        reader.partitions()


# Views.


VIEW_TYPES: dict[str, dict[str, DataType]] = {
    "dead-letters": {
        "key": BinaryType(), "value": BinaryType(), "topic": StringType(),
        "partition": IntegerType(), "offset": LongType(), "groupName": StringType(),
        "reason": StringType(), "error": StringType(), "attempts": IntegerType(),
        "redrives": IntegerType(), "createdAt": TimestampType(), "failedAt": TimestampType(),
        "letterPartition": IntegerType(), "letterOffset": LongType(), "headers": HEADERS,
    },
    "delayed": {
        "key": BinaryType(), "value": BinaryType(), "topic": StringType(),
        "partition": IntegerType(), "offset": LongType(), "timestamp": TimestampType(),
        "deliverAt": TimestampType(), "headers": HEADERS,
    },
}  # fmt: skip


def view_reader(view: str, **given: str) -> ViewReader:
    options = parse_read_options({"subscribe": TOPIC, "view": view} | given, "batch")
    fields = [StructField(name, type) for name, type in VIEW_TYPES[view].items()]
    return ViewReader(options, StructType(fields))


def fail_and_delay(handle: headrace.Headrace) -> None:
    handle.publish(TOPIC, b"bad", key=b"k", headers={"h": b"1"})
    with handle.queue(TOPIC, group="work") as queue:
        [message] = queue.receive(max=1, wait=10)
        message.reject(error="too odd")
    handle.publish(TOPIC, b"later", delay=3600)


@pytest.mark.parametrize("place", ["servers", "path"])
def test_views_show_what_queues_know(topic: NodeProcess, tmp_path: Path, place: str) -> None:
    if place == "servers":
        given = {"servers": topic.bootstrap}
        with headrace.connect(topic.bootstrap) as handle:
            fail_and_delay(handle)
    else:
        given = {"path": str(tmp_path / "embedded")}
        with headrace.open(given["path"]) as handle:
            handle.create_topic(TOPIC, 2)
            fail_and_delay(handle)
    [letter] = read(view_reader("dead-letters", **given))
    assert (letter["key"], letter["value"], letter["topic"]) == (b"k", b"bad", TOPIC)
    assert (letter["groupName"], letter["attempts"]) == ("work", 1)
    assert "too odd" in f"{letter['reason']} {letter['error']}"
    assert letter["headers"] == [{"key": "h", "value": b"1"}]
    [delayed] = read(view_reader("delayed", **given))
    assert (delayed["value"], delayed["topic"]) == (b"later", TOPIC)
    assert (delayed["deliverAt"] - delayed["timestamp"]).total_seconds() == pytest.approx(3600)


def test_a_view_of_nothing_says_so(topic: NodeProcess) -> None:
    options = {"subscribe": "nothing", "servers": topic.bootstrap}
    with pytest.raises(InvalidOption, match="there is no topic 'nothing'"):
        view_reader("delayed", **options).partitions()
    with pytest.raises(InvalidOption, match="'view': 'delayed' needs a Headrace node"):
        view_reader(
            "delayed", servers="127.0.0.1:1", **{"kafka.request.timeout.ms": "1"}
        ).partitions()


def test_the_dead_letters_of_a_topic_can_be_made_by_hand(topic: NodeProcess) -> None:
    with WireClient(topic.bootstrap) as client:
        made = make(client, f"{TOPIC}.dlq", 7)
    assert made.num_partitions == 2
    with headrace.connect(topic.bootstrap) as handle:
        assert list(handle.dead_letters(TOPIC)) == []


# Offsets.


def test_offsets_are_named_for_every_partition_or_for_none(topic: NodeProcess) -> None:
    publish(topic, numbers(0, 20), 0)
    publish(topic, numbers(20, 40), 1)
    servers = topic.bootstrap
    one = f'{{"{TOPIC}": {{"1": 15}}}}'
    missing = "leaves out orders:0; name every partition"
    for options in (
        {"startingOffsets": one},
        {"endingOffsets": one},
        {"startingOffsetsByTimestamp": one},
    ):
        with pytest.raises(InvalidOption, match=missing):
            batch_reader(servers=servers, **options).partitions()
    stream = stream_reader(servers=servers, startingOffsets=one)
    with pytest.raises(InvalidOption, match=missing):
        stream.initialOffset()
    stream.stop()
    whole = {"unlistedPartitions": "whole", "startingOffsets": one}
    assert values(read(batch_reader(servers=servers, **whole))) == [
        *numbers(0, 20),
        *numbers(35, 40),
    ]


def test_a_start_above_the_end_is_an_error_whatever_was_lost(topic: NodeProcess) -> None:
    publish(topic, numbers(0, 20), 0)

    def offsets(at: int) -> str:
        return f'{{"{TOPIC}": {{"0": {at}, "1": 0}}}}'

    for options in (
        {"startingOffsets": offsets(10), "endingOffsets": offsets(5)},
        {"startingOffsets": offsets(99)},
    ):
        for fails in ("true", "false"):
            with pytest.raises(InvalidOption, match="orders:0 begins at .* and ends at .*; begin"):
                batch_reader(servers=topic.bootstrap, failOnDataLoss=fails, **options).partitions()
    # Both beyond the end: what is not there was lost, or is not.
    beyond = {"startingOffsets": offsets(50), "endingOffsets": offsets(60)}
    with pytest.raises(InvalidOption, match="orders:0 ends at offset 20, so 60 is not there"):
        batch_reader(servers=topic.bootstrap, **beyond).partitions()
    lenient = batch_reader(servers=topic.bootstrap, failOnDataLoss="false", **beyond)
    assert lenient.partitions() == []
