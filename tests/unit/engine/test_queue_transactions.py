"""Queue groups and transactions: what is leasable when, and what never is."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.conftest import Bench
from tests.unit.engine.transactions import Writer

from headrace.core.values import MessageId, Outgoing
from headrace.engine import scanner
from headrace.engine.contents import Heavy, Light, look_into
from headrace.engine.foreign import append_foreign
from headrace.record import NewRecord, attribute_headers, build_batch, read_header

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
OTHERS = "others"


def begin(bench: Bench, isolation: str = COMMITTED, **topic: Any) -> Writer:
    bench.make(topic=topic or None, group={"isolation": isolation})
    return Writer(bench.partition(), bench.clock.time_ms)


def test_a_queue_group_waits_for_the_end_of_a_transaction(bench: Bench) -> None:
    writer = begin(bench)
    writer.write(-1, b"before")
    writer.write(1, b"in it")
    writer.write(-1, b"behind")
    writer.sync()
    assert bench.values() == [b"before"]
    assert bench.values() == []
    writer.commit(1)
    assert bench.values() == []
    writer.sync()
    assert bench.values() == [b"in it", b"behind"]


def test_aborted_messages_are_terminal_and_hold_nothing_up(bench: Bench) -> None:
    writer = begin(bench)
    writer.write(1, b"void", b"void")
    writer.write(2, b"good")
    writer.abort(1)
    writer.commit(2)
    writer.sync()
    deliveries = bench.lease()
    assert [delivery.value for delivery in deliveries] == [b"good"]
    bench.node.ack(bench.group, [delivery.receipt for delivery in deliveries])
    view = next(iter(bench.partition().views.values()))
    assert view.window.start == view.window.end == 5


def test_a_group_may_read_what_is_not_committed(bench: Bench) -> None:
    writer = begin(bench, UNCOMMITTED)
    bench.node.open_queue(OTHERS, [bench.topic], "bob", {"isolation": COMMITTED})
    writer.write(1, b"a")
    writer.sync()
    assert bench.values() == [b"a"]
    assert bench.values(group=OTHERS) == []
    writer.abort(1)
    writer.write(2, b"b")
    writer.commit(2)
    writer.sync()
    assert bench.values() == [b"b"]
    assert bench.values(group=OTHERS) == [b"b"]


@pytest.mark.parametrize("cleanly", [True, False])
@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
def test_a_restart_does_not_show_what_is_undecided(
    bench: Bench, cleanly: bool, isolation: str
) -> None:
    writer = begin(bench, isolation)
    writer.write(-1, b"plain")
    writer.write(1, b"void")
    writer.abort(1)
    writer.write(2, b"open")
    writer.write(-1, b"behind")
    writer.sync()
    seen = bench.values()
    if cleanly:
        bench.reopen()
    else:
        bench.crash()
    bench.skip(60_000)
    assert bench.values() == seen
    assert seen == (
        [b"plain"] if isolation == COMMITTED else [b"plain", b"void", b"open", b"behind"]
    )
    writer = Writer(bench.partition(), bench.clock.time_ms)
    writer.abort(2)
    writer.sync()
    assert bench.values() == ([b"behind"] if isolation == COMMITTED else [])


def test_records_deleted_up_to_the_middle_of_a_transaction_do_not_show_the_rest_of_it(
    bench: Bench,
) -> None:
    writer = begin(bench)
    writer.write(1, b"gone", b"open")
    writer.sync()
    bench.node.delete_records(bench.topic, 0, 1)
    bench.crash()
    assert bench.values() == []
    writer = Writer(bench.partition(), bench.clock.time_ms)
    writer.abort(1)
    writer.sync()
    assert bench.values() == []


def test_a_long_transaction_holds_back_more_than_memory_keeps(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "HELD_BACK_MAX", 5)
    writer = begin(bench)
    bench.node.open_queue(OTHERS, [bench.topic], "bob", {"isolation": UNCOMMITTED})
    writer.write(1, b"first")
    for number in range(20):
        writer.write(2 + number % 3, b"%d" % number)
        writer.write(-1, b"plain")
        if number % 4 == 3:
            writer.end(2 + number % 3, commit=number % 8 == 3)
        writer.sync()
    assert len(bench.values(100, group=OTHERS)) == 41
    assert bench.values(100) == []
    for producer in (1, 2, 3, 4):
        if bench.partition().producers.open_of(producer) is not None:
            writer.commit(producer)
    writer.sync()
    shown, _ = bench.node.read(bench.topic, 0, 0)
    assert bench.values(100) == [record.value for record in shown]
    assert 21 < len(shown) < 41


def test_delays_priorities_and_lives_hold_within_transactions(bench: Bench) -> None:
    writer = begin(bench)
    soon = attribute_headers(delay_ms=1_000)
    urgent = attribute_headers(priority=0)
    brief = attribute_headers(ttl_ms=500)
    writer.write(1, b"late", headers=soon)
    writer.write(1, b"urgent", headers=urgent)
    writer.write(1, b"brief", headers=brief)
    writer.write(2, b"void late", headers=soon)
    writer.write(2, b"void urgent", headers=urgent)
    writer.abort(2)
    writer.sync()
    assert bench.node.delayed(bench.topic) == []
    assert not bench.node.cancel(MessageId(bench.topic, 0, 0))
    bench.skip(600)
    assert bench.values() == []
    writer.now_ms = bench.clock.time_ms
    writer.commit(1)
    writer.sync()
    (delayed,) = bench.node.delayed(bench.topic)
    assert delayed.value == b"late"
    assert bench.values() == [b"urgent"]
    bench.skip(500)
    assert bench.values() == [b"late"]
    assert bench.state(2) == "expired"


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_order_is_kept_around_aborted_messages(bench: Bench, ordering: str) -> None:
    writer = begin(bench, ordering=ordering)
    writer.write(1, b"void", key=b"k")
    writer.write(2, b"first", key=b"k")
    writer.write(1, b"void", key=b"k")
    writer.write(2, b"second", key=b"k")
    writer.abort(1)
    writer.commit(2)
    writer.sync()
    for value in (b"first", b"second"):
        (delivery,) = bench.lease()
        assert delivery.value == value
        bench.node.ack(bench.group, [delivery.receipt])
    assert bench.lease() == []


def test_a_group_can_change_how_it_reads(bench: Bench) -> None:
    writer = begin(bench)
    writer.write(1, b"a")
    writer.sync()
    assert bench.values() == []
    bench.node.alter_group(bench.group, {"isolation": UNCOMMITTED})
    assert bench.values() == [b"a"]
    bench.node.alter_group(bench.group, {"isolation": COMMITTED})
    writer.write(2, b"b")
    writer.sync()
    assert bench.values() == []
    bench.crash()
    assert bench.values() == [b"a"]
    writer = Writer(bench.partition(), bench.clock.time_ms)
    writer.commit(1)
    writer.abort(2)
    writer.sync()
    assert bench.values() == []


def test_a_group_that_begins_at_the_end_sees_an_open_transaction_whole(bench: Bench) -> None:
    bench.node.create_topic(bench.topic)
    writer = Writer(bench.partition(), bench.clock.time_ms)
    writer.write(-1, b"old")
    writer.write(1, b"one")
    writer.sync()
    bench.node.open_queue(bench.group, [bench.topic], "ann", {"start": "latest"})
    writer.write(1, b"two")
    writer.commit(1)
    writer.sync()
    assert bench.values() == [b"one", b"two"]


def test_an_id_whose_record_was_aborted_can_be_published_again(bench: Bench) -> None:
    writer = begin(bench, dedup=True)
    headers = attribute_headers(dedup_id=b"once")
    partition = bench.partition()

    def publish() -> bool:
        [place] = bench.node.publish(bench.topic, [Outgoing(b"value", None, headers, partition=0)])
        return place.duplicate

    writer.write(1, b"void", headers=headers)
    writer.sync()
    assert partition.find_duplicate(b"once", bench.clock.time_ms, 1) == 0
    writer.abort(1)
    writer.sync()
    assert not publish()
    assert publish()
    assert bench.values() == [b"value"]
    bench.crash()
    assert publish()


def test_a_batch_of_a_transaction_leaves_out_what_counts_for_its_producer(bench: Bench) -> None:
    begin(bench, dedup=True)
    partition = bench.partition()
    sequences = [0, 0]

    def write(producer_id: int, *ids: bytes) -> int:
        """How many records of the batch were new."""
        batch = build_batch(
            [NewRecord(None, each, attribute_headers(dedup_id=each)) for each in ids],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequences[producer_id],
            transactional=True,
        )
        sequences[producer_id] += len(ids)
        contents = look_into(batch, partition.scanner, partition.dedup, Light())
        assert not isinstance(contents, Heavy)
        header = read_header(batch)
        return append_foreign(partition, batch, header, contents, bench.clock.time_ms).records

    def end(producer_id: int, *, commit: bool) -> None:
        partition.end_transaction(
            producer_id, 0, commit=commit, coordinator_epoch=0, now_ms=bench.clock.time_ms
        )
        partition.log.sync_now()
        partition.on_synced(bench.clock.time_ms)

    # What it wrote itself is there for it, and what it aborted is not.
    assert [write(0, b"a", b"b"), write(0, b"b", b"c"), write(0, b"a")] == [2, 1, 0]
    end(0, commit=False)
    assert write(0, b"c") == 1
    end(0, commit=True)
    # What others have committed is there for everybody, and their open one is not.
    assert [write(1, b"c"), write(1, b"d"), write(0, b"d")] == [0, 1, 1]
    end(1, commit=False)
    end(0, commit=True)
    assert bench.values() == [b"c", b"d"]
    bench.crash()
    assert bench.values() == [b"c", b"d"]
