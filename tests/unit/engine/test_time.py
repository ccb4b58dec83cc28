"""What time does to messages: delays, lives, leases and retries."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.errors import StaleReceipt, TooManyLeases
from headrace.core.values import MessageId
from headrace.engine.clock_steps import move_along

TEN_YEARS_MS = 10 * 365 * 24 * 3600 * 1000


def test_a_delay_of_ten_years_survives_a_reopen(bench: Any) -> None:
    bench.make()
    bench.publish(b"later", delay_ms=TEN_YEARS_MS)
    bench.reopen()
    due_ms = bench.clock.time_ms + TEN_YEARS_MS
    assert bench.node.status(MessageId(bench.topic, 0, 0), bench.group).due_ms == due_ms
    assert bench.node.next_due_ms(bench.group, [bench.topic]) == due_ms
    bench.skip(TEN_YEARS_MS - 1)
    assert bench.values() == []
    bench.skip(1)
    assert bench.values() == [b"later"]


def test_a_delayed_message_neither_pins_memory_nor_holds_up_ready_ones(bench: Any) -> None:
    bench.make(group={"leases_per_consumer_max": 200_000})
    bench.publish(b"later", delay_ms=TEN_YEARS_MS)
    bench.node.publish_values(bench.topic, [b"x"] * 150_000, partition=0)
    for _ in range(15):
        held = bench.receipts(10_000)
        assert len(held) == 10_000
        assert not any(bench.node.ack(bench.group, held))
    (view,) = bench.partition().views.values()
    assert view.window.start == 0
    bench.partition().snapshot(bench.clock.time_ms, force=True)
    chunks = view.window._chunks
    # What lies behind the delayed message is packed to almost nothing.
    assert sorted(chunks) == [0, 1, 2]
    packed = [chunk for chunk in chunks.values() if chunk.packed is not None]
    assert len(packed) == 2
    assert all(len(chunk.packed[0]) < 1_000 and not chunk.state for chunk in packed)
    bench.skip(TEN_YEARS_MS)
    assert bench.values() == [b"later"]


def test_a_group_that_opens_at_the_end_leaves_the_delays_of_others_alone(bench: Any) -> None:
    bench.make()
    bench.publish(b"later", delay_ms=1_000)
    bench.node.open_queue("late", [bench.topic], "bob", {"start": "latest"})
    bench.skip(1_000)
    assert bench.values() == [b"later"]
    assert bench.values(group="late") == []


def test_a_cancelled_message_stays_cancelled_after_its_time_and_a_reopen(bench: Any) -> None:
    bench.make()
    bench.publish(b"off", delay_ms=1_000)
    bench.publish(b"on")
    bench.node.ack(bench.group, bench.receipts())
    assert bench.node.cancel(MessageId(bench.topic, 0, 0))
    assert not bench.node.cancel(MessageId(bench.topic, 0, 0))
    bench.skip(2_000)
    bench.reopen()
    bench.node.open_queue("later", [bench.topic], "eve")
    assert bench.values() == []
    assert bench.values(group="later") == [b"on"]
    assert bench.state(0) == "cancelled"
    assert bench.node.queue_statistics(bench.group).cancelled == 1


def test_what_has_expired_can_not_be_cancelled(bench: Any) -> None:
    bench.make(topic={"dead_letter_expired": True})
    bench.publish(b"0", delay_ms=5_000, ttl_ms=1_000)
    bench.skip(1_000)
    assert bench.state(0) == "expired"
    assert not bench.node.cancel(MessageId(bench.topic, 0, 0))


def test_a_dead_letter_whose_delay_was_not_over_can_not_be_cancelled(bench: Any) -> None:
    bench.make(topic={"dead_letter_expired": True})
    bench.publish(b"0", delay_ms=5_000, ttl_ms=1_000)
    bench.skip(1_000)
    assert bench.state(0) == "expired"
    assert not bench.node.cancel(MessageId("orders.dlq", 0, 0))
    bench.reopen()
    assert len(bench.node.dead_letters(bench.topic)) == 1


@pytest.mark.parametrize("buries", [False, True])
def test_an_expired_message_is_counted_and_buried_where_the_topic_asks(
    bench: Any, buries: bool
) -> None:
    bench.make(topic={"dead_letter_expired": buries})
    bench.publish(b"short", ttl_ms=100)
    bench.publish(b"long", ttl_ms=10_000)
    bench.skip(100)
    assert bench.values() == [b"long"]
    assert bench.state(0) == "expired"
    for _ in ("before", "after a restart"):
        numbers = bench.node.queue_statistics(bench.group)
        assert (numbers.expired, numbers.dead_lettered) == (1, buries)
        overview = bench.node.overview()
        assert [group.dead_lettered for group in overview.groups] == [buries]
        assert overview.topics[0].dead_letters == buries
        bench.reopen()
    letters = bench.node.dead_letters(bench.topic)
    assert [(letter.value, letter.reason) for letter in letters] == (
        [(b"short", "expired")] if buries else []
    )
    bench.reopen()
    assert bench.state(0) == "expired"
    assert len(bench.node.dead_letters(bench.topic)) == buries


def test_a_message_that_outlives_its_ttl_under_lease_can_be_acked(bench: Any) -> None:
    bench.make()
    bench.publish(b"0", ttl_ms=100)
    held = bench.receipts()
    bench.skip(200)
    assert bench.state(0) == "leased"
    assert bench.node.ack(bench.group, held) == [None]


@pytest.mark.parametrize("how", ["nack", "release", "lease end"])
def test_a_message_that_outlived_its_ttl_under_lease_ends_when_it_comes_back(
    bench: Any, how: str
) -> None:
    bench.make()
    bench.publish(b"0", ttl_ms=100)
    held = bench.receipts()
    bench.skip(200)
    if how == "nack":
        bench.node.nack(bench.group, held, delay_ms=500)
    elif how == "release":
        bench.node.release(bench.group, held)
    else:
        bench.skip(30_000)
    assert bench.state(0) == "expired"
    assert bench.node.queue_statistics(bench.group).depth == 0


def test_a_lease_ends_at_its_deadline_and_not_before(bench: Any) -> None:
    bench.make(group={"visibility_ms": 1_000})
    bench.publish(b"0")
    held = bench.receipts()
    bench.skip(999)
    assert bench.values() == []
    bench.skip(1)
    (outcome,) = bench.node.ack(bench.group, held)
    assert isinstance(outcome, StaleReceipt)
    (again,) = bench.lease()
    assert (again.attempt, again.failed_at_ms) == (2, bench.clock.time_ms)
    assert "lease ended" in again.error


@pytest.mark.parametrize("reopens", [False, True])
def test_a_message_brings_its_own_attempts_and_visibility(bench: Any, reopens: bool) -> None:
    bench.make(group={"visibility_ms": 1_000, "max_attempts": 3})
    bench.publish(b"0", max_attempts=2, visibility_ms=50)
    if reopens:
        bench.reopen()
    (first,) = bench.lease()
    assert (first.max_attempts, first.deadline_ms) == (2, bench.clock.time_ms + 50)
    if reopens:
        bench.reopen()
    else:
        bench.skip(50)
    (second,) = bench.lease()
    assert (second.attempt, second.max_attempts) == (2, 2)
    if reopens:
        bench.reopen()
    else:
        bench.skip(50)
    assert bench.values() == []
    assert bench.state(0) == "dead-lettered"


def test_retries_back_off_and_a_nack_may_say_when(bench: Any) -> None:
    bench.make(group={"backoff_ms": 100, "backoff_factor": 3, "backoff_max_ms": 250})
    bench.publish(b"0", max_attempts=9)
    for attempt, rest_ms in ((1, 100), (2, 250), (3, 250)):
        (held,) = bench.lease()
        assert held.attempt == attempt
        bench.node.nack(bench.group, [held.receipt])
        bench.skip(rest_ms - 1)
        assert bench.state(0) == "retrying"
        assert bench.values() == []
        bench.skip(1)
    bench.node.nack(bench.group, bench.receipts(), delay_ms=7)
    bench.skip(7)
    assert bench.lease()[0].attempt == 5


def test_a_retry_lasts_as_long_as_it_is_to_where_the_clock_is_set_before_it_is_safe(
    bench: Any,
) -> None:
    bench.make()
    bench.publish(b"x")
    (receipt,) = bench.receipts(1)
    broker = bench.node._broker
    with bench.node._writing() as (now_ms, commit):
        group = broker.groups.named(bench.group)
        broker.settling.nack(group, [receipt], 10_000, None, now_ms, commit)
        move_along(broker, 3_600_000, 0)
    bench.skip(3_600_000 + 9_999)
    assert bench.values() == []
    bench.skip(1)
    assert bench.values() == [b"x"]


def test_a_consumer_holds_no_more_than_its_cap(bench: Any) -> None:
    bench.make(group={"leases_per_consumer_max": 3})
    bench.publish(*[b"x"] * 9)
    assert len(bench.lease(10)) == 3
    with pytest.raises(TooManyLeases):
        bench.lease(1)
    assert len(bench.lease(10, by="bob")) == 3
    held = bench.node.held(bench.group, "ann")
    bench.node.ack(bench.group, list(held.values())[:1])
    assert len(bench.lease(10)) == 1


def test_who_leaves_gives_everything_back_at_no_cost(bench: Any) -> None:
    bench.make()
    bench.publish(b"0", b"1")
    held = bench.receipts()
    bench.node.leave(bench.group, "ann")
    assert all(isinstance(o, StaleReceipt) for o in bench.node.ack(bench.group, held))
    assert [d.attempt for d in bench.lease(by="bob")] == [1, 1]
    assert bench.node.held(bench.group, "ann") == {}


def test_a_reopen_ends_leases_and_keeps_attempts(bench: Any) -> None:
    bench.make()
    bench.publish(b"0")
    held = bench.receipts()
    bench.crash()
    assert isinstance(bench.node.ack(bench.group, held)[0], StaleReceipt)
    assert bench.lease()[0].attempt == 2


def test_a_lease_over_messages_of_different_attempts_counts_each_by_itself(bench: Any) -> None:
    bench.make(group={"max_attempts": 9})
    bench.publish(*[b"%d" % number for number in range(5)])
    for count in (4, 2, 1):
        bench.node.nack(bench.group, bench.receipts(count), delay_ms=0)
    expected = [4, 3, 2, 2, 1]
    assert [delivery.attempt for delivery in bench.lease()] == expected
    assert [bench.attempts(offset) for offset in range(5)] == expected
    bench.reopen()
    assert [bench.attempts(offset) for offset in range(5)] == expected
