"""Streams through the SDK: positions, commits, groups that share."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from tests.contract.conftest import SdkBackend

import headrace
from headrace.platform.clock import SystemClock
from headrace.testing import ManualClock


@pytest.fixture
def orders(handle: headrace.Headrace) -> headrace.Headrace:
    handle.create_topic("orders", 1)
    handle.publish_many("orders", [b"%d" % n for n in range(5)])
    return handle


def offsets(records: list[headrace.Record[Any]]) -> list[int]:
    return [record.offset for record in records]


def test_a_stream_without_a_group_starts_where_it_is_told(
    orders: headrace.Headrace, clock: ManualClock
) -> None:
    clock.skip(60)
    moment = clock.now()
    orders.publish("orders", b"5")
    later = moment + timedelta(seconds=1)
    starts: list[tuple[Any, list[int]]] = [
        ("earliest", [0, 1, 2, 3, 4, 5]),
        ("latest", []),
        (4, [4, 5]),
        ({0: 5}, [5]),
        ({("orders", 0): 3}, [3, 4, 5]),
        (moment, [5]),
        (moment.timestamp(), [5]),
        (later, []),
    ]
    for start, expected in starts:
        with orders.stream("orders", start=start) as stream:
            assert offsets(stream.poll(wait=0)) == expected, start


def test_polling_goes_on_behind_what_was_given(orders: headrace.Headrace) -> None:
    with orders.stream("orders") as stream:
        assert offsets(stream.poll(2)) == [0, 1]
        assert stream.position() == {("orders", 0): 2}
        assert offsets(stream.poll(2)) == [2, 3]
        assert offsets(stream.poll()) == [4]
        assert stream.poll(wait=10) == []


def test_a_loop_can_be_left_and_taken_up_again(orders: headrace.Headrace) -> None:
    with orders.stream("orders") as stream:
        for record in stream:
            if record.offset == 1:
                break
        assert offsets(stream.poll(1)) == [2]
        for record in stream:
            if record.offset == 4:
                break
        assert stream.poll(wait=0) == []


def test_seeking_goes_anywhere_in_the_log(orders: headrace.Headrace) -> None:
    with orders.stream("orders") as stream:
        stream.poll(2)
        stream.seek(4)
        assert offsets(stream.poll(wait=0)) == [4]
        stream.seek("earliest", topic="orders", partition=0)
        assert offsets(stream.poll(1)) == [0]
        stream.seek("latest")
        assert stream.poll(wait=0) == []
        with pytest.raises(headrace.OffsetOutOfRange):
            stream.seek(-1)
        with pytest.raises(headrace.OffsetOutOfRange):
            stream.seek(6)
        with pytest.raises(headrace.InvalidArgument, match="no partition"):
            stream.seek(0, partition=9)
        assert stream.position() == {("orders", 0): 5}


def test_a_group_goes_on_where_it_committed(orders: headrace.Headrace) -> None:
    with orders.stream("orders", "readers", auto_commit=None) as stream:
        stream.poll(2)
        stream.commit()
        stream.poll(2)
    with orders.stream("orders", "readers") as stream:
        assert offsets(stream.poll()) == [2, 3, 4]


def test_a_stream_commits_what_it_gave_when_it_is_closed(orders: headrace.Headrace) -> None:
    with orders.stream("orders", "readers") as stream:
        for record in stream:
            if record.offset == 2:
                break
    with orders.stream("orders", "readers") as stream:
        assert offsets(stream.poll()) == [3, 4]


def test_a_record_whose_handling_failed_is_read_again(orders: headrace.Headrace) -> None:
    with (
        pytest.raises(ValueError, match="on purpose"),
        orders.stream("orders", "readers") as stream,
    ):
        for record in stream:
            if record.offset == 2:
                raise ValueError("on purpose")
    with orders.stream("orders", "readers") as stream:
        assert offsets(stream.poll()) == [2, 3, 4]


def test_a_stream_commits_by_the_clock_what_was_handled(
    orders: headrace.Headrace, clock: ManualClock
) -> None:
    stream = orders.stream("orders", "readers", auto_commit=5)
    backend = orders.connection.reach()
    stream.poll(2)
    clock.skip(6)
    stream.poll(2)
    assert backend.committed("readers", "orders") == {0: 2}
    stream.poll(1)
    assert backend.committed("readers", "orders") == {0: 2}
    clock.skip(6)
    stream.poll(1, wait=0)
    assert backend.committed("readers", "orders") == {0: 5}


def test_a_new_group_starts_where_its_reset_says(orders: headrace.Headrace) -> None:
    with orders.stream("orders", "all", reset="earliest") as stream:
        assert len(stream.poll(wait=0)) == 5
    with orders.stream("orders", "new", reset="latest") as stream:
        assert stream.poll(wait=0) == []
    with orders.stream("orders", "newer", start="latest") as stream:
        assert stream.poll(wait=0) == []
    with pytest.raises(headrace.OffsetOutOfRange):
        orders.stream("orders", "strict", reset="error").poll(wait=0)


def test_a_position_that_retention_took_is_reset(orders: headrace.Headrace) -> None:
    lenient = orders.stream("orders", start=0, reset="earliest")
    strict = orders.stream("orders", start=0, reset="error")
    orders.delete_records("orders", 0, 3)
    assert offsets(lenient.poll(wait=10)) == [3, 4]
    with pytest.raises(headrace.OffsetOutOfRange):
        strict.poll(wait=0)


def test_one_stream_reads_several_topics_and_changes_them(handle: headrace.Headrace) -> None:
    for name in ("orders", "payments", "refunds"):
        handle.create_topic(name, 1)
        handle.publish(name, name)
    for group in (None, "readers"):
        with handle.stream(["orders", "payments"], group) as stream:
            values = {record.value for record in stream.poll(wait=0)}
            assert values == {"orders", "payments"}
            stream.add_topics("refunds")
            assert [r.value for r in stream.poll(wait=0)] == ["refunds"]
            stream.remove_topics("orders", "payments")
            handle.publish("orders", "orders")
            assert stream.poll(wait=0) == []
            assert stream.assignment() == [("refunds", 0)]


def test_chosen_partitions_alone_are_read(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 3)
    for partition in range(3):
        handle.publish("orders", partition, partition=partition)
    with handle.stream("orders", partitions=[0, 2]) as stream:
        assert sorted(record.value for record in stream.poll(wait=0)) == [0, 2]
    with pytest.raises(headrace.InvalidArgument):
        handle.stream("orders", partitions=[7])


def test_members_of_a_group_share_the_partitions(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 4)
    for partition in range(4):
        handle.publish("orders", partition, partition=partition)
    first = handle.stream("orders", "readers")
    assert len(first.assignment()) == 4
    assert len(first.poll(wait=0)) == 4
    # Coming back says that the four were handled, so the second need not read them.
    assert first.poll(wait=0) == []
    second = handle.stream("orders", "readers")
    assert sorted(first.assignment() + second.assignment()) == [("orders", n) for n in range(4)]
    assert len(first.assignment()) == len(second.assignment()) == 2
    assert second.poll(wait=0) == []
    for partition in range(4):
        handle.publish("orders", 10 + partition, partition=partition)
    values = [record.value for record in first.poll(wait=0) + second.poll(wait=0)]
    assert sorted(values) == [10, 11, 12, 13]
    second.close()
    assert len(first.assignment()) == 4
    assert first.poll(wait=0) == []


def test_what_was_read_ahead_is_dropped_when_its_partition_goes_to_another_member(
    handle: headrace.Headrace,
) -> None:
    handle.create_topic("orders", 2)
    for partition in range(2):
        handle.publish_many("orders", [f"{partition}/{n}" for n in range(3)], partition=partition)
    first = handle.stream("orders", "readers")
    seen = [first.poll(1)[0].value, first.poll(1)[0].value]
    second = handle.stream("orders", "readers")
    for stream in (first, second):
        while records := stream.poll(wait=0):
            seen += [record.value for record in records]
    # The second record was not handled yet when its partition changed hands.
    assert set(seen) == {f"{partition}/{n}" for partition in range(2) for n in range(3)}
    assert len(seen) <= 7


def test_members_that_come_and_go_miss_no_record(sdk_backend: SdkBackend) -> None:
    handle = sdk_backend.open(clock=SystemClock())
    handle.create_topic("orders", 4, durability="os")
    everything = {(partition, n) for partition in range(4) for n in range(200)}
    seen: set[tuple[int, int]] = set()
    stop = threading.Event()

    def read(stream: headrace.Stream[Any]) -> None:
        while not stop.is_set():
            for record in stream.poll(7, wait=0.01):
                seen.add((record.partition, record.offset))
            stream.commit()
            if len(seen) == len(everything):
                return

    first = handle.stream("orders", "readers", auto_commit=0)
    thread = threading.Thread(target=read, args=(first,))
    thread.start()
    for number in range(20):
        for partition in range(4):
            handle.publish_many("orders", [b"x"] * 10, partition=partition)
        with handle.stream("orders", "readers", consumer=f"guest {number}") as guest:
            seen.update((record.partition, record.offset) for record in guest.poll(5, wait=0))
    thread.join(60)
    stop.set()
    thread.join(60)
    assert seen == everything


def test_a_stream_without_a_group_sees_partitions_that_are_added(
    handle: headrace.Headrace,
) -> None:
    handle.create_topic("orders", 1)
    with handle.stream("orders") as stream:
        assert stream.poll(wait=0) == []
        handle.grow_topic("orders", 2)
        handle.publish("orders", b"x", partition=1)
        assert [record.value for record in stream.poll(wait=10)] == [b"x"]


def test_a_typed_stream_decodes_its_values(orders: headrace.Headrace) -> None:
    with orders.stream("orders", type=int) as stream:
        assert [record.value for record in stream.poll()] == [0, 1, 2, 3, 4]


def test_a_group_is_a_queue_or_a_stream_and_not_both(orders: headrace.Headrace) -> None:
    orders.queue("orders", "workers")
    with pytest.raises(headrace.GroupKindMismatch):
        orders.stream("orders", "workers")
    orders.stream("orders", "readers")
    with pytest.raises(headrace.GroupKindMismatch):
        orders.queue("orders", "readers")


def test_closing_a_stream_ends_a_loop_in_another_thread(sdk_backend: SdkBackend) -> None:
    handle = sdk_backend.open(clock=SystemClock())
    handle.create_topic("orders")
    stream = handle.stream("orders", "readers")
    seen: list[bytes] = []
    first = threading.Event()

    def read() -> None:
        for record in stream:
            seen.append(record.value)
            first.set()

    thread = threading.Thread(target=read)
    thread.start()
    handle.publish("orders", b"x")
    assert first.wait(60)
    stream.close()
    thread.join(60)
    assert not thread.is_alive()
    assert seen == [b"x"]
    with pytest.raises(headrace.Closed):
        stream.poll()


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": "middle"},
        {"start": 1.0j},
        {"start": 3, "group": "readers"},
        {"reset": "never"},
        {"partitions": [0], "group": "readers"},
        {"auto_commit": -1},
        {"start": {"orders": 1}},
    ],
)
def test_what_makes_no_sense_for_a_stream_is_refused(
    orders: headrace.Headrace, wrong: dict[str, Any]
) -> None:
    with pytest.raises((headrace.InvalidArgument, headrace.UnknownPartition)):
        orders.stream("orders", **wrong)


def test_a_stream_without_a_group_has_nothing_to_commit_to(orders: headrace.Headrace) -> None:
    with orders.stream("orders") as stream, pytest.raises(headrace.InvalidArgument):
        stream.commit()


def test_what_was_committed_stays_so_when_the_block_fails_or_another_joins(
    handle: headrace.Headrace,
) -> None:
    handle.create_topic("orders", 1)
    handle.publish_many("orders", [b"1", b"2"])
    with pytest.raises(RuntimeError), handle.stream("orders", "audit") as stream:
        assert len(stream.poll(max=1)) == 1
        stream.commit()
        raise RuntimeError
    with handle.stream("orders", "audit", consumer="b") as stream:
        assert [record.value for record in stream.poll(wait=0)] == [b"2"]
        stream.commit()
        with handle.stream("orders", "audit", consumer="a") as other:
            assert other.assignment() == [("orders", 0)]
            assert other.poll(wait=0) == []
