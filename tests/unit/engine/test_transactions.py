"""Transactions in a partition: what is open, what is decided, and what is stable."""

from __future__ import annotations

import pytest
from tests.unit.engine.conftest import Bench, copy_of
from tests.unit.engine.transactions import Writer

from headrace.core import limits
from headrace.core.errors import (
    FencedCoordinator,
    FencedProducer,
    InvalidTransactionState,
    LimitExceeded,
)
from headrace.engine.partition import Appended
from headrace.log import AbortedTransaction
from headrace.record import read_control, read_header


def begin(bench: Bench) -> Writer:
    bench.node.create_topic(bench.topic)
    return Writer(bench.partition())


def test_the_first_transactional_batch_opens_a_transaction(bench: Bench) -> None:
    writer = begin(bench)
    writer.write(-1, b"plain")
    writer.write(7, b"a")
    writer.write(7, b"b")
    writer.sync()
    (opened,) = bench.partition().open_transactions()
    assert opened == (7, 0, 1, writer.now_ms)
    assert bench.partition().last_stable_offset == 1
    assert bench.partition().high_watermark == 3


def test_a_marker_decides_and_is_a_control_batch(bench: Bench) -> None:
    writer = begin(bench)
    partition = bench.partition()
    writer.write(7, b"a", b"b")
    appended = writer.end(7, commit=True, coordinator_epoch=5)
    assert appended == Appended(2, 3, False)
    writer.sync()
    assert partition.open_transactions() == []
    assert partition.last_stable_offset == 3
    batch = partition.log.read(2, 1000)
    marker = read_control(batch, read_header(batch))
    assert marker[:2] == (1, 2) and marker[3:] == (7, 0, 5)
    assert partition.aborted_between(0, 3) == []


def test_an_abort_is_remembered_with_its_extent(bench: Bench) -> None:
    writer = begin(bench)
    writer.write(7, b"a")
    writer.write(8, b"b")
    writer.abort(8)
    writer.abort(7)
    writer.sync()
    partition = bench.partition()
    assert partition.last_stable_offset == 4
    assert partition.aborted_between(0, 4) == [
        AbortedTransaction(8, 1, 2, 0),
        AbortedTransaction(7, 0, 3, 4),
    ]
    assert partition.aborted_between(3, 4) == [AbortedTransaction(7, 0, 3, 4)]
    assert partition.aborted_between(0, 1) == [AbortedTransaction(7, 0, 3, 4)]


def test_the_oldest_open_transaction_holds_the_last_stable_offset(bench: Bench) -> None:
    writer = begin(bench)
    partition = bench.partition()
    for producer in (1, 2, 3):
        writer.write(producer, b"x")
    writer.sync()
    writer.commit(2)
    writer.sync()
    assert partition.last_stable_offset == 0
    writer.abort(1)
    writer.sync()
    assert partition.last_stable_offset == 2
    writer.commit(3)
    writer.sync()
    assert partition.last_stable_offset == 6


def test_a_marker_above_the_high_watermark_does_not_count_yet(bench: Bench) -> None:
    writer = begin(bench)
    partition = bench.partition()
    writer.write(1, b"x")
    writer.sync()
    writer.commit(1)
    assert partition.open_transactions() == []
    assert partition.last_stable_offset == 0
    writer.sync()
    assert partition.last_stable_offset == 2


def test_what_is_written_after_an_open_transaction_is_not_stable(bench: Bench) -> None:
    writer = begin(bench)
    writer.write(1, b"x")
    writer.write(-1, b"plain")
    writer.sync()
    assert bench.partition().last_stable_offset == 0


def test_an_older_epoch_may_not_decide(bench: Bench) -> None:
    writer = begin(bench)
    writer.write(1, b"x", epoch=3)
    with pytest.raises(FencedProducer):
        writer.end(1, commit=True, epoch=2)
    writer.end(1, commit=False, epoch=4)
    with pytest.raises(FencedProducer):
        writer.write(1, b"y", epoch=3)
    writer.write(1, b"y", epoch=4)


def test_an_older_coordinator_may_not_decide(bench: Bench) -> None:
    writer = begin(bench)
    writer.write(1, b"x")
    writer.end(1, commit=True, coordinator_epoch=4)
    writer.write(1, b"y")
    with pytest.raises(FencedCoordinator):
        writer.end(1, commit=True, coordinator_epoch=3)
    assert len(bench.partition().open_transactions()) == 1


def test_a_repeated_marker_is_not_written_again(bench: Bench) -> None:
    writer = begin(bench)
    writer.write(1, b"x")
    first = writer.commit(1)
    end = bench.partition().log.end_offset
    again = writer.commit(1)
    assert again == Appended(end, end, True)
    assert again.next_offset == first.next_offset == bench.partition().log.end_offset


def test_a_marker_for_an_unknown_producer_fences_what_comes_late(bench: Bench) -> None:
    writer = begin(bench)
    assert not writer.end(1, commit=False, epoch=1).duplicate
    with pytest.raises(FencedProducer):
        writer.write(1, b"late", epoch=0)


def test_a_plain_batch_within_a_transaction_is_refused(bench: Bench) -> None:
    writer = begin(bench)
    writer.write(1, b"x")
    with pytest.raises(InvalidTransactionState):
        writer.write(1, b"y", transactional=False)
    writer.commit(1)
    writer.write(1, b"y", transactional=False)
    assert bench.partition().open_transactions() == []


def test_a_partition_has_a_limit_of_open_transactions(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert limits.OPEN_TRANSACTIONS_PER_PARTITION_MAX == 10_000
    monkeypatch.setattr("headrace.engine.producer.OPEN_TRANSACTIONS_PER_PARTITION_MAX", 2)
    writer = begin(bench)
    writer.write(1, b"x")
    writer.write(2, b"x")
    with pytest.raises(LimitExceeded):
        writer.write(3, b"x")
    writer.write(1, b"x")
    writer.commit(2)
    writer.write(3, b"x")


@pytest.mark.parametrize("cleanly", [True, False])
def test_open_and_aborted_transactions_survive_a_restart(bench: Bench, cleanly: bool) -> None:
    writer = begin(bench)
    writer.write(1, b"a")
    writer.abort(1)
    writer.write(2, b"b")
    writer.write(3, b"c", epoch=2)
    writer.end(2, commit=True, coordinator_epoch=6)
    writer.write(1, b"d")
    writer.sync()
    before = bench.partition()
    known = before.open_transactions(), before.aborted_between(0, 99), before.producers.active()
    assert before.last_stable_offset == 3
    if cleanly:
        bench.reopen()
    else:
        bench.crash()
    after = bench.partition()
    assert after.last_stable_offset == 3
    assert known == (
        after.open_transactions(),
        after.aborted_between(0, 99),
        after.producers.active(),
    )
    writer = Writer(after)
    writer.end(3, commit=False, epoch=2)
    writer.commit(1)
    writer.sync()
    assert after.last_stable_offset == after.high_watermark == 8
    assert len(after.aborted_between(0, 8)) == 2


@pytest.mark.parametrize("damage", ["gone", "short", "flipped"])
def test_a_damaged_index_of_aborted_transactions_is_made_again(bench: Bench, damage: str) -> None:
    writer = begin(bench)
    for producer in range(5):
        writer.write(producer, b"x")
        writer.end(producer, commit=producer % 2 == 0)
    writer.sync()
    known = bench.partition().aborted_between(0, 10)
    assert len(known) == 2
    bench.node.close()
    (name,) = bench.files(".txnindex")
    disk = copy_of(bench.disk)
    if damage == "gone":
        del disk.names[name]
    elif damage == "short":
        del disk.names[name].data[-34:]
    else:
        disk.names[name].data[20] ^= 4
    bench.crash(disk)
    assert bench.partition().aborted_between(0, 10) == known
    bench.reopen()
    assert bench.partition().aborted_between(0, 10) == known


def test_a_lost_marker_leaves_its_transaction_open_again(bench: Bench) -> None:
    writer = begin(bench)
    writer.write(1, b"a")
    writer.write(2, b"b")
    writer.abort(1)
    writer.commit(2)
    writer.sync()
    partition = bench.partition()
    partition.truncate_to(2, writer.now_ms)
    assert [each[:3] for each in partition.open_transactions()] == [(1, 0, 0), (2, 0, 1)]
    assert partition.last_stable_offset == 0
    assert partition.aborted_between(0, 99) == []
    writer.commit(1)
    writer.abort(2)
    writer.sync()
    assert partition.last_stable_offset == 4
    assert partition.aborted_between(0, 4) == [AbortedTransaction(2, 1, 3, 4)]


def test_deleting_records_under_an_open_transaction_moves_the_stable_offset(bench: Bench) -> None:
    writer = begin(bench)
    writer.write(1, b"a")
    writer.write(-1, b"b", b"c")
    writer.sync()
    bench.node.delete_records(bench.topic, 0, 2)
    assert bench.partition().last_stable_offset == 2
    assert len(bench.partition().open_transactions()) == 1


def streamed(bench: Bench, offset: int = 0) -> list[bytes | None]:
    records, _ = bench.node.read(bench.topic, 0, offset)
    return [record.value for record in records]


def test_a_stream_shows_what_is_committed_and_nothing_else(bench: Bench) -> None:
    writer = begin(bench)
    writer.write(1, b"a1", b"a2")
    writer.write(2, b"b1")
    writer.write(-1, b"plain")
    writer.sync()
    assert streamed(bench) == []
    writer.write(1, b"a3")
    writer.abort(1)
    writer.sync()
    assert streamed(bench) == []
    writer.write(3, b"c1")
    writer.commit(2)
    writer.sync()
    assert streamed(bench) == [b"b1", b"plain"]
    writer.abort(3)
    writer.write(1, b"a4")
    writer.commit(1)
    writer.sync()
    assert streamed(bench) == [b"b1", b"plain", b"a4"]
    assert streamed(bench, 4) == [b"a4"]


def test_a_stream_passes_over_an_aborted_stretch_in_one_call(bench: Bench) -> None:
    writer = begin(bench)
    for _ in range(30):
        writer.write(1, *(b"void" for _ in range(100)))
    writer.abort(1)
    writer.write(2, b"good")
    writer.commit(2)
    writer.sync()
    records, following = bench.node.read(bench.topic, 0, 0, count_max=10)
    assert [record.value for record in records] == [b"good"]
    assert following == bench.partition().log.end_offset


def test_latest_begins_before_what_is_undecided(bench: Bench) -> None:
    writer = begin(bench)
    writer.write(-1, b"old")
    writer.write(1, b"first")
    writer.sync()
    assert bench.node.topic(bench.topic).partitions[0].last_stable_offset == 1
    bench.node.join_stream("readers", [bench.topic], "ann", "latest")
    _, positions = bench.node.assignment("readers", "ann")
    assert positions[bench.topic, 0] == 1
    assert bench.node.offset_at(bench.topic, 0, writer.now_ms + 1) == 1
