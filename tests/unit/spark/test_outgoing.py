"""Arrow batches as records: where rows go, and what they become."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.core.errors import InvalidArgument
from headrace.engine.partitioner import partition_of_key
from headrace.record import Record, read_records, seal_records
from headrace.spark.outgoing import RowEncoder

PARTITIONS = 4
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def encode(
    *batches: pa.RecordBatch, topic: str | None = "orders", batch_bytes: int = 1_000_000
) -> list[tuple[str, int, list[Record]]]:
    encoder = RowEncoder(topic, lambda _: PARTITIONS, batch_bytes=batch_bytes)
    return [
        (name, partition, read_records(seal_records(*records)))
        for batch in batches
        for name, partition, records in encoder.encode(batch)
    ]


def table(**columns: Any) -> pa.RecordBatch:
    arrays = {
        name: value if isinstance(value, pa.Array) else pa.array(value)
        for name, value in columns.items()
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def values_of(found: list[tuple[str, int, list[Record]]]) -> list[bytes | None]:
    return [record.value for _, _, records in found for record in records]


def test_rows_without_keys_stay_together_and_take_turns() -> None:
    batch = table(value=[b"a", b"b", None])
    found = encode(batch, batch)
    assert [partition for _, partition, _ in found] == [0, 1]
    assert values_of(found) == [b"a", b"b", None] * 2


def test_keys_decide_and_their_rows_keep_their_order() -> None:
    keys = [b"k%d" % (number % 7) for number in range(100)]
    values = [b"%d" % number for number in range(100)]
    found = encode(table(key=keys, value=values))
    for _, partition, records in found:
        assert {partition_of_key(record.key or b"", PARTITIONS) for record in records} == {
            partition
        }
        assert records == sorted(records, key=lambda record: int(record.value or 0))
    assert sorted(values_of(found), key=lambda each: int(each or 0)) == values


def test_a_row_may_name_its_partition() -> None:
    found = encode(
        table(
            key=[b"k", b"k", b"k"],
            value=[b"0", b"1", b"2"],
            partition=pa.array([3, None, 3], pa.int32()),
        )
    )
    by_partition = {partition: values_of([each]) for each in found for partition in [each[1]]}
    assert by_partition[3][:2] == [b"0", b"2"] or by_partition[3] == [b"0", b"1", b"2"]
    assert sum(map(len, by_partition.values())) == 3


@pytest.mark.parametrize("wrong", [-1, PARTITIONS])
def test_a_partition_that_is_not_there_is_refused(wrong: int) -> None:
    with pytest.raises(InvalidArgument, match=f"partition is {wrong}, and topic 'orders' has 4"):
        encode(table(value=[b"x"], partition=pa.array([wrong], pa.int32())))


def test_rows_may_name_their_topics() -> None:
    batch = table(value=["a", "b", "c"], topic=["one", "two", "one"])
    found = encode(batch, topic=None)
    assert {(topic, tuple(values_of([(topic, n, r)]))) for topic, n, r in found} == {
        ("one", (b"a", b"c")),
        ("two", (b"b",)),
    }
    with pytest.raises(InvalidArgument, match="a row's topic is null; fill the column"):
        encode(table(value=["a"], topic=pa.array([None], pa.string())), topic=None)


def test_the_option_says_where_all_rows_go_whatever_their_column_says() -> None:
    # A query that reads one topic and writes to another would feed itself otherwise.
    batch = table(value=["a", "b"], topic=["one", None])
    assert {topic for topic, _, _ in encode(batch, topic="orders")} == {"orders"}


def test_headers_and_queue_attributes_become_headers() -> None:
    [(_, _, records)] = encode(
        table(
            value=[b"a", b"b"],
            headers=pa.array([[{"key": "h", "value": b"1"}], None], HEADERS),
            priority=["low", None],
            delayMs=pa.array([None, 50], pa.int64()),
            ttlMs=pa.array([9, None], pa.int64()),
        )
    )
    assert [record.headers for record in records] == [
        (("h", b"1"), ("headrace-priority", b"3"), ("headrace-ttl-ms", b"9")),
        (("headrace-delay-ms", b"50"),),
    ]


def test_attributes_in_columns_overrule_those_that_a_row_brings() -> None:
    brought = [
        {"key": name, "value": b"1"}
        for name in ("headrace-priority", "h", "headrace-deliver-at", "headrace-ttl-ms")
    ]
    [(_, _, records)] = encode(
        table(
            value=[b"a", b"b"],
            headers=pa.array([brought, brought], HEADERS),
            priority=[4, None],
            delayMs=pa.array([50, None], pa.int64()),
        )
    )
    assert [record.headers for record in records] == [
        (
            ("h", b"1"),
            ("headrace-ttl-ms", b"1"),
            ("headrace-priority", b"4"),
            ("headrace-delay-ms", b"50"),
        ),
        tuple((each["key"], b"1") for each in brought),
    ]


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"1"}])
def test_a_header_without_a_key_is_refused(header: Any) -> None:
    with pytest.raises(InvalidArgument, match="is null or has no key; leave it out"):
        encode(table(value=[b"a"], headers=pa.array([[header]], HEADERS)))


def test_a_moment_of_delivery_is_in_milliseconds() -> None:
    at = pa.array([1_700_000_000_123_456], pa.timestamp("us", "UTC"))
    [(_, _, [record])] = encode(table(value=[b"a"], deliverAt=at))
    assert record.headers == (("headrace-deliver-at", b"1700000000123"),)


def test_a_priority_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="priority must be one of"):
        encode(table(value=[b"a"], priority=["urgent"]))


def test_timestamps_are_those_of_the_rows() -> None:
    times = pa.array([5_000, 3_000, 9_999], pa.timestamp("us", "UTC"))
    [(_, _, records)] = encode(table(value=[b"a", b"b", b"c"], timestamp=times))
    assert [record.timestamp_ms for record in records] == [5, 3, 9]


def test_pieces_are_no_larger_than_a_batch_may_be() -> None:
    found = encode(table(value=[b"x" * 100] * 1_000), batch_bytes=2_000)
    assert len(found) > 50
    assert max(len(records) for _, _, records in found) <= 20
    assert len(values_of(found)) == 1_000


def test_a_row_larger_than_a_batch_goes_alone() -> None:
    found = encode(table(value=[b"s", b"x" * 5_000, b"s"]), batch_bytes=1_000)
    assert [len(records) for _, _, records in found] == [1, 1, 1]


@pytest.mark.parametrize("start", [1, 3, 8, 11])
def test_a_part_of_a_longer_table_is_encoded_as_such(start: int) -> None:
    keys = [None if number % 3 else b"k%d" % number for number in range(20)]
    values = [None if number % 5 == 0 else b"%d" % number for number in range(20)]
    whole = table(key=pa.array(keys, pa.binary()), value=pa.array(values, pa.binary()))
    part = whole.slice(start, 7)
    pairs = sorted(
        ((record.key, record.value) for _, _, each in encode(part) for record in each), key=str
    )
    expected = zip(keys[start : start + 7], values[start : start + 7], strict=True)
    assert pairs == sorted(expected, key=str)


def test_an_empty_table_is_nothing() -> None:
    assert encode(table(value=pa.array([], pa.binary()))) == []
