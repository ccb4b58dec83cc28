"""Acks in transactions: held until the marker, then all of it or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.conftest import Bench
from tests.unit.engine.transactions import Writer

from headrace.core.errors import GroupInUse, StaleReceipt
from headrace.core.values import Receipt
from headrace.engine.settling import Outcome

PRODUCER = 7


class Acking:
    """A queue, and a consumer who acks in transactions."""

    def __init__(self, bench: Bench, **settings: Any) -> None:
        self.bench = bench
        topic = settings.pop("topic", None)
        bench.make(topic=topic, group=settings)
        self.writer = Writer(bench.partition(), bench.clock.time_ms)

    def hold(self, receipts: list[Receipt], producer: int = PRODUCER) -> list[Outcome]:
        broker = self.bench.node._broker
        commit = broker.commit()
        outcomes = broker.settling.ack_in_transaction(
            broker.groups.named(self.bench.group),
            receipts,
            producer,
            0,
            self.bench.clock.time_ms,
            commit,
        )
        assert bool(commit.state) == any(outcome is None for outcome in outcomes)
        return outcomes

    def end(self, *, commit: bool, producer: int = PRODUCER) -> None:
        self.writer.now_ms = self.bench.clock.time_ms
        self.writer.end(producer, commit=commit)
        self.writer.sync()

    def crash(self, *, cleanly: bool = False) -> None:
        if cleanly:
            self.bench.reopen()
        else:
            self.bench.crash()
        self.writer = Writer(self.bench.partition(), self.bench.clock.time_ms)


def test_a_held_ack_counts_when_its_transaction_is_committed(bench: Bench) -> None:
    acking = Acking(bench)
    bench.publish(b"a", b"b")
    assert acking.hold(bench.receipts(1)) == [None]
    acking.writer.sync()
    assert bench.state(0) == "leased"
    acking.end(commit=True)
    assert bench.state(0) == "acked"
    numbers = bench.node.queue_statistics(bench.group)
    assert (numbers.acked, numbers.ready, numbers.depth) == (1, 1, 1)
    # The data log has heard nothing of it.
    assert bench.partition().log.end_offset == 2


def test_the_lease_of_a_held_message_does_not_end(bench: Bench) -> None:
    acking = Acking(bench, visibility_ms=1_000)
    bench.publish(b"a")
    receipts = bench.receipts()
    acking.hold(receipts)
    acking.writer.sync()
    bench.skip(1_000_000)
    assert bench.lease() == []
    assert bench.state(0) == "leased"
    acking.end(commit=True)
    assert bench.state(0) == "acked"


def test_a_held_message_cannot_be_settled_in_another_way(bench: Bench) -> None:
    acking = Acking(bench)
    bench.publish(b"a")
    receipts = bench.receipts()
    acking.hold(receipts)
    for settle in (bench.node.ack, bench.node.nack, bench.node.reject, bench.node.extend):
        [outcome] = settle(bench.group, receipts)
        assert isinstance(outcome, StaleReceipt)
    [outcome] = acking.hold(receipts)
    assert isinstance(outcome, StaleReceipt)
    acking.writer.sync()
    [outcome] = bench.node.release(bench.group, receipts)
    assert isinstance(outcome, StaleReceipt)


def test_after_an_abort_the_message_is_ready_again_and_the_delivery_counts(bench: Bench) -> None:
    acking = Acking(bench)
    bench.publish(b"a")
    receipts = bench.receipts()
    acking.hold(receipts)
    acking.end(commit=False)
    [outcome] = bench.node.ack(bench.group, receipts)
    assert isinstance(outcome, StaleReceipt)
    [delivery] = bench.lease()
    assert (delivery.value, delivery.attempt) == (b"a", 2)
    assert delivery.error is not None


def test_what_fails_in_every_transaction_ends_among_the_dead_letters(bench: Bench) -> None:
    acking = Acking(bench, max_attempts=2)
    bench.publish(b"poison")
    bench.publish(b"tougher", max_attempts=3)
    for attempt in (1, 2):
        deliveries = bench.lease()
        assert [delivery.attempt for delivery in deliveries] == [attempt, attempt]
        acking.hold([delivery.receipt for delivery in deliveries])
        acking.end(commit=False)
    assert bench.values() == [b"tougher"]
    [letter] = bench.node.dead_letters(bench.topic)
    assert (letter.value, letter.reason, letter.attempts) == (b"poison", "max-attempts", 2)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("cleanly", [True, False])
@pytest.mark.parametrize("snapshot", [True, False])
def test_an_undecided_ack_survives_a_restart(
    bench: Bench, commit: bool, cleanly: bool, snapshot: bool
) -> None:
    acking = Acking(bench)
    bench.publish(b"a", b"b", b"c")
    receipts = bench.receipts(2)
    acking.hold(receipts[:1])
    acking.writer.sync()
    if snapshot:
        bench.partition().snapshot(bench.clock.time_ms, force=True)
        acking.writer.sync()
    for _ in range(2):
        acking.crash(cleanly=cleanly)
        bench.skip(100_000)
        # The other lease has ended with the process; this one waits.
        assert bench.state(0) == "leased"
        assert [delivery.value for delivery in bench.lease(1)] == [b"b"]
        assert bench.partition().state is not None
    acking.end(commit=commit)
    assert bench.state(0) == ("acked" if commit else "pending")
    acking.crash(cleanly=cleanly)
    if commit:
        assert bench.state(0) == "acked"
    else:
        [delivery] = bench.lease(1)
        assert (delivery.value, delivery.attempt) == (b"a", 2)


def test_a_marker_that_was_lost_is_taken_again(bench: Bench) -> None:
    acking = Acking(bench)
    bench.publish(b"a")
    acking.hold(bench.receipts())
    acking.writer.sync()
    before = bench.disk.names
    kept = {name: bytes(content.data) for name, content in before.items()}
    acking.writer.end(PRODUCER, commit=True)
    # The power goes before it is synced.
    for name, content in bench.disk.names.items():
        content.data[:] = kept.get(name, b"")
    acking.crash()
    assert bench.state(0) == "leased"
    acking.end(commit=True)
    assert bench.state(0) == "acked"


def test_a_snapshot_between_the_marker_and_its_sync_knows_the_outcome(bench: Bench) -> None:
    acking = Acking(bench)
    for commit in (True, False):
        bench.publish(b"a")
        [receipt] = bench.receipts(1)
        acking.hold([receipt])
        acking.writer.end(PRODUCER, commit=commit)
        bench.partition().snapshot(bench.clock.time_ms, force=True)
        acking.writer.sync()
        acking.crash()
        assert bench.state(receipt.offset) == ("acked" if commit else "pending")
        state = bench.partition().state
        assert state is not None and not state.holding


def test_one_marker_decides_records_and_acks(bench: Bench) -> None:
    acking = Acking(bench)
    bench.publish(b"in")
    acking.hold(bench.receipts())
    acking.writer.write(PRODUCER, b"out")
    acking.writer.sync()
    assert bench.values() == []
    appended = acking.writer.end(PRODUCER, commit=True)
    assert not appended.duplicate and appended.state_end > 0
    acking.writer.sync()
    assert bench.state(0) == "acked"
    assert bench.values() == [b"out"]


def test_transactions_do_not_decide_for_each_other(bench: Bench) -> None:
    acking = Acking(bench)
    bench.publish(b"a", b"b", b"c")
    for producer, receipt in enumerate(bench.receipts()):
        acking.hold([receipt], producer)
    acking.end(commit=True, producer=1)
    acking.end(commit=False, producer=2)
    assert [bench.state(offset) for offset in range(2)] == ["leased", "acked"]
    assert bench.values() == [b"c"]
    acking.end(commit=True, producer=0)
    assert bench.state(0) == "acked"


def test_a_topic_that_does_not_wait_for_the_disk_decides_at_once(bench: Bench) -> None:
    acking = Acking(bench, topic={"durability": "os"})
    bench.publish(b"a", b"b")
    first, second = bench.receipts()
    acking.hold([first])
    acking.writer.end(PRODUCER, commit=True)
    assert bench.state(0) == "acked"
    acking.hold([second])
    acking.writer.end(PRODUCER, commit=False)
    assert bench.values() == [b"b"]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_order_waits_for_the_end_of_the_transaction(bench: Bench, ordering: str) -> None:
    acking = Acking(bench, topic={"ordering": ordering})
    bench.publish(b"a", b"b", key=b"k")
    acking.hold(bench.receipts())
    acking.writer.sync()
    assert bench.values() == []
    acking.crash()
    assert bench.values() == []
    acking.end(commit=False)
    assert bench.values() == [b"a"]


def test_a_group_cannot_be_moved_while_an_ack_is_held(bench: Bench) -> None:
    acking = Acking(bench)
    bench.publish(b"a")
    acking.hold(bench.receipts())
    acking.writer.sync()
    broker = bench.node._broker
    group = broker.groups.named(bench.group)
    with pytest.raises(GroupInUse):
        broker.groups.restart_view(group, bench.partition(), 0, 0, broker.commit())


def test_what_is_deleted_or_belongs_to_a_deleted_group_is_decided_quietly(bench: Bench) -> None:
    acking = Acking(bench)
    bench.publish(b"a", b"b")
    acking.hold(bench.receipts())
    acking.writer.sync()
    bench.node.delete_records(bench.topic, 0, 1)
    acking.end(commit=False)
    assert bench.values() == [b"b"]
    acking.hold(bench.receipts())
    bench.node.delete_group(bench.group)
    acking.end(commit=True)
    acking.crash()


@pytest.mark.parametrize("commit", [True, False])
def test_what_is_deleted_while_its_ack_is_held_counts_alike_after_a_restart(
    bench: Bench, commit: bool
) -> None:
    acking = Acking(bench)
    bench.publish(b"a", b"b")
    acking.hold(bench.receipts())
    acking.writer.sync()
    bench.node.delete_records(bench.topic, 0, 1)
    acking.end(commit=commit)
    before = bench.node.queue_statistics(bench.group)
    assert before.acked == (2 if commit else 0)
    acking.crash()
    after = bench.node.queue_statistics(bench.group)
    assert (after.acked, after.delivered) == (before.acked, before.delivered)
