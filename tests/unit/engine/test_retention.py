"""Retention: what goes, what is owed, and what a restart makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.values import Outgoing
from headrace.engine import state, window
from headrace.engine.window import CHUNK

SMALL = {"segment_bytes": 1024}
DAY_MS = 24 * 3600 * 1000
VALUE = b"v" * 300


def fill(bench: Any, count: int = 20, **attributes: Any) -> None:
    for _ in range(count):
        bench.publish(VALUE, key=b"k", **attributes)


def start_of(bench: Any) -> int:
    """Where the log starts once housekeeping has run."""
    bench.skip(31_000)
    bench.publish(b"now", key=b"k")
    return int(bench.node.topic(bench.topic).partitions[0].start_offset)


def settle_all(bench: Any, *, group: str | None = None) -> None:
    while held := bench.receipts(100, group=group or bench.group):
        bench.node.ack(group or bench.group, held)


def test_acked_retention_waits_for_every_group_and_every_cursor(bench: Any) -> None:
    bench.make(topic={"retention": "acked", **SMALL})
    bench.node.open_queue("others", [bench.topic], "bob")
    bench.node.join_stream("readers", [bench.topic], "m", "earliest")
    fill(bench)
    settle_all(bench)
    assert start_of(bench) == 0
    settle_all(bench, group="others")
    assert start_of(bench) == 0
    bench.node.commit("readers", {(bench.topic, 0): 20})
    assert 15 <= start_of(bench) <= 20


@pytest.mark.parametrize("ordering", ["none", "key", "partition"])
def test_a_topic_whose_start_was_deleted_opens_again(bench: Any, ordering: str) -> None:
    bench.make(topic={"retention": "acked", "ordering": ordering, **SMALL})
    fill(bench)
    for _ in range(15):
        bench.node.ack(bench.group, bench.receipts(1))
    assert start_of(bench) > 5
    depth = bench.node.queue_statistics(bench.group).depth
    bench.reopen()
    assert bench.node.queue_statistics(bench.group).depth == depth == 6
    (next_one,) = bench.lease(1)
    assert next_one.offset == 15


def test_time_retention_keeps_what_a_queue_owes(bench: Any) -> None:
    bench.make(topic={"retention_ms": DAY_MS, **SMALL})
    fill(bench)
    bench.node.ack(bench.group, bench.receipts(10))
    bench.skip(2 * DAY_MS)
    assert 5 <= start_of(bench) <= 10
    assert len(bench.values(100)) == 11


def test_time_retention_buries_what_is_owed_where_the_topic_asks(bench: Any) -> None:
    bench.make(topic={"retention_ms": DAY_MS, "retention_owed": "dead-letter", **SMALL})
    fill(bench, 10)
    fill(bench, 2, delay_ms=9 * DAY_MS)
    bench.skip(2 * DAY_MS)
    start_of(bench)
    letters = bench.node.dead_letters(bench.topic)
    assert {letter.reason for letter in letters} == {"retention"}
    assert len({letter.source for letter in letters}) == len(letters) >= 10
    # The copies are safe now, so the originals may go.
    assert start_of(bench) >= 10


def test_size_retention_keeps_the_newest_segments(bench: Any) -> None:
    bench.make(topic={"retention_ms": None, "retention_bytes": 3_000, **SMALL})
    fill(bench)
    settle_all(bench)
    start = start_of(bench)
    assert 5 <= start < 20
    assert bench.node.topic(bench.topic).partitions[0].size_bytes <= 3_000 + 1_024


def test_without_any_group_time_alone_decides(bench: Any) -> None:
    bench.node.create_topic(bench.topic, partitions=1, settings={"retention_ms": DAY_MS, **SMALL})
    fill(bench)
    bench.skip(2 * DAY_MS)
    assert start_of(bench) >= 15


def test_deleted_records_are_owed_by_nobody_and_held_by_nobody(bench: Any) -> None:
    bench.make(group={"leases_per_consumer_max": 3})
    bench.publish(*[b"%d" % number for number in range(6)])
    bench.node.nack(bench.group, bench.receipts(1), delay_ms=10)
    bench.lease(3)
    bench.node.delete_records(bench.topic, 0, 4)
    bench.skip(50_000)
    assert bench.node.held(bench.group, "ann") == {}
    assert bench.values(3) == [b"4", b"5"]
    bench.reopen()
    numbers = bench.node.queue_statistics(bench.group)
    assert (numbers.ready, numbers.depth) == (2, 2)
    assert bench.values() == [b"4", b"5"]


def test_a_deleted_head_frees_its_key(bench: Any) -> None:
    bench.make(topic={"ordering": "key"})
    bench.publish(b"0", b"1", key=b"k")
    assert bench.values() == [b"0"]
    bench.node.delete_records(bench.topic, 0, 1)
    assert bench.values() == [b"1"]


def test_a_message_deleted_on_its_way_to_the_dead_letters_is_simply_gone(bench: Any) -> None:
    bench.make(group={"max_attempts": 1, "visibility_ms": 1_000})
    bench.publish(*[b"%d" % number for number in range(3)])
    bench.lease(2)
    bench.skip(1_000)
    bench.node.delete_records(bench.topic, 0, 2)
    assert bench.values() == [b"2"]
    bench.reopen()
    assert bench.node.queue_statistics(bench.group).moving == 0


@pytest.mark.parametrize("ordering", ["none", "key", "partition"])
def test_totals_outlive_the_records_that_they_counted(bench: Any, ordering: str) -> None:
    bench.make(topic={"ordering": ordering})
    bench.publish(b"0", key=b"a")
    bench.publish(b"1", key=b"b")
    bench.node.ack(bench.group, bench.receipts(1))
    bench.node.reject(bench.group, bench.receipts(1))
    bench.node.delete_records(bench.topic, 0, 2)
    bench.reopen()
    numbers = bench.node.queue_statistics(bench.group)
    assert (numbers.acked, numbers.dead_lettered, numbers.depth) == (1, 1, 0)
    bench.publish(b"2", key=b"a")
    assert bench.values() == [b"2"]


@pytest.mark.parametrize("durability", ["synced", "interval", "os"])
def test_retention_and_compaction_do_not_depend_on_who_syncs(bench: Any, durability: str) -> None:
    bench.make(topic={"durability": durability, "retention_ms": 10_000, **SMALL})
    bench.node.delete_group(bench.group)
    fill(bench)
    assert start_of(bench) >= 15
    compacted = {"durability": durability, "cleanup": "compact", **SMALL}
    bench.node.create_topic("compacted", partitions=1, settings=compacted)
    for _ in range(20):
        bench.node.publish("compacted", [Outgoing(VALUE, b"k")])
    bench.skip(31_000)
    bench.node.publish("compacted", [Outgoing(VALUE, b"other")])
    bench.skip(31_000)
    bench.node.publish("compacted", [Outgoing(VALUE, b"other")])
    [partition] = bench.node.topic("compacted").partitions
    assert partition.size_bytes < 10 * len(VALUE)


def test_a_topic_without_cleanup_keeps_everything(bench: Any) -> None:
    kept = {"cleanup": None, "retention_ms": 1_000, "retention_bytes": 1, **SMALL}
    bench.node.create_topic("kept", partitions=1, settings=kept)
    for _ in range(3):
        for _ in range(10):
            bench.node.publish("kept", [Outgoing(VALUE, b"k")])
        bench.skip(31_000)
    records, _ = bench.node.read("kept", 0, 0)
    assert [record.offset for record in records] == list(range(30))


def test_a_topic_can_be_compacted_and_lose_what_is_old(bench: Any) -> None:
    both = {"cleanup": "compact,delete", "retention_ms": 100_000, **SMALL}
    bench.node.create_topic("windows", partitions=1, settings=both)

    def publish(*keys: bytes) -> None:
        for key in keys:
            bench.node.publish("windows", [Outgoing(VALUE, key)])
        bench.skip(31_000)
        bench.node.publish("windows", [Outgoing(VALUE, b"last")])

    def kept() -> list[tuple[int, bytes | None]]:
        records, _ = bench.node.read("windows", 0, start())
        return [(record.offset, record.key) for record in records]

    def start() -> int:
        return int(bench.node.topic("windows").partitions[0].start_offset)

    publish(*[b"a"] * 6, b"b", b"c", *[b"a"] * 6)
    publish()
    assert start() == 0
    assert sum(key == b"a" for _, key in kept()) == 1
    assert {b"b", b"c"} <= {key for _, key in kept()}
    bench.skip(70_000)
    publish()
    assert start() > 8
    assert {key for _, key in kept()} == {b"last"}


def test_a_topic_that_is_only_compacted_keeps_what_is_old(bench: Any) -> None:
    bench.node.create_topic(
        "table", partitions=1, settings={"cleanup": "compact", "retention_ms": 100, **SMALL}
    )
    for key in (b"a", b"b", b"c", b"d", b"e"):
        bench.node.publish("table", [Outgoing(VALUE, key)])
    bench.skip(31_000)
    bench.node.publish("table", [Outgoing(VALUE, b"f")])
    assert bench.node.topic("table").partitions[0].start_offset == 0


def test_a_partition_opens_when_more_than_a_chunk_of_it_was_worked_off_and_removed(
    bench: Any,
) -> None:
    """The state log still tells of all of it, in batches that reach below the start."""
    bench.make(topic={"trace_sample": None}, group={"leases_per_consumer_max": 100_000})
    for _ in range(7):
        bench.publish(*[b"x"] * 10_000)
        bench.node.ack(bench.group, bench.receipts(10_000))
    bench.publish(b"next")
    bench.node.delete_records(bench.topic, 0, CHUNK + 1)
    bench.reopen()
    after = bench.node.queue_statistics(bench.group)
    assert (after.ready, after.acked, after.delivered) == (1, 70_000, 70_000)
    assert bench.values() == [b"next"]


def test_acks_that_wait_for_the_disk_while_their_messages_are_deleted_end_well(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "CHUNK", 16)
    monkeypatch.setattr(window, "CHUNK_BITS", 4)
    bench.make()
    bench.publish(*[b"x"] * 20)
    bench.lease(20)
    partition = bench.partition()
    (view,) = partition.views.values()
    event = state.Acked(view.group_id, "ann", bench.clock.time_ms, [0, 20])
    partition.write(view, event, bench.clock.time_ms, wait=True)
    bench.node.delete_records(bench.topic, 0, 18)
    bench.publish(b"next")
    assert [bench.state(offset) for offset in range(18, 21)] == ["acked", "acked", "pending"]
    assert bench.node.queue_statistics(bench.group).acked == 20
    bench.reopen()
    assert bench.values() == [b"next"]


def test_a_delayed_retry_is_not_early_after_a_restart(bench: Any) -> None:
    """It was retried before, with a delay that is over."""
    bench.make(topic={"trace_sample": None})
    bench.publish(b"x")
    bench.node.nack(bench.group, bench.receipts(1), delay_ms=0)
    bench.node.nack(bench.group, bench.receipts(1), delay_ms=5_000)
    bench.reopen()
    bench.skip(1_000)
    assert bench.values() == []
    bench.skip(4_000)
    assert bench.values() == [b"x"]


def test_keys_are_in_order_when_records_are_deleted_up_to_the_middle_of_a_batch(
    bench: Any,
) -> None:
    bench.make(topic={"ordering": "key"})
    outgoing = [Outgoing(b"%d" % n, b"k%d" % (n % 2)) for n in range(20)]
    bench.node.publish(bench.topic, outgoing)
    bench.node.delete_records(bench.topic, 0, 13)
    bench.disk.remove_tree(f"{bench.partition().path}/attributes")
    bench.crash()
    assert bench.values(20) == [b"13", b"14"]
