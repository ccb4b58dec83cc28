"""Traces of messages with a past: nothing is told that did not happen, and nothing of
another message."""

from __future__ import annotations

import pytest
from tests.contract.conftest import SdkBackend
from tests.contract.test_sdk_traces import kinds, state_of

import headrace
from headrace import testing
from headrace.core import limits

LETTERS = "__dead-letters"


def links(trace: headrace.MessageTrace) -> list[tuple[str, str]]:
    return [(each.relation, each.id) for each in trace.links]


def reject(handle: headrace.Headrace, topic: str, reason: str) -> None:
    with handle.queue(topic, "billing") as queue:
        queue.reject(queue.lease(1), error=reason)


def test_a_message_that_is_redriven_in_place_tells_all_of_it(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1)
    handle.publish("orders", b"x")
    for reason in ("first", "second"):
        reject(handle, "orders", reason)
        handle.dead_letters("orders").redrive()
    with handle.queue("orders", "billing") as queue:
        queue.ack(queue.lease(1))
    trace = handle.trace("orders:0:0")
    once = ["leased", "dead-lettered", "redriven"]
    assert kinds(trace) == ["published", *once, *once, "leased", "acked"]
    assert {each.reason for each in trace.events if each.kind == "redriven"} == {"in place"}
    assert [each.attempt for each in trace.events if each.kind == "leased"] == [1, 1, 1]
    assert state_of(trace, "billing") == "acked"
    assert links(trace) == [("dead-letter", "orders.dlq:0:0"), ("dead-letter", "orders.dlq:0:1")]
    for number in range(2):
        letter = handle.trace(f"orders.dlq:0:{number}")
        assert links(letter) == [("origin", "orders:0:0"), ("redriven-to", "orders:0:0")]
        assert (letter.events[-1].to, letter.events[-1].reason) == ("orders:0:0", "in place")


def test_a_message_that_is_redriven_as_a_copy_is_a_chain(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1)
    handle.publish("orders", b"x")
    reject(handle, "orders", "first")
    handle.delete_records("orders", 0, 1)
    handle.dead_letters("orders").redrive()
    reject(handle, "orders", "second")
    handle.dead_letters("orders").redrive()
    assert links(handle.trace("orders:0:0")) == [("dead-letter", "orders.dlq:0:0")]
    letter = handle.trace("orders.dlq:0:0")
    assert links(letter) == [("origin", "orders:0:0"), ("redriven-to", "orders:0:1")]
    assert (letter.events[-1].to, letter.events[-1].reason) == ("orders:0:1", "as a copy")
    copy = handle.trace("orders:0:1")
    assert links(copy) == [
        ("redriven-from", "orders.dlq:0:0"), ("dead-letter", "orders.dlq:0:1"),
    ]  # fmt: skip
    assert kinds(copy) == ["published", "leased", "dead-lettered", "redriven"]
    assert copy.events[2].error == "second"
    assert links(handle.trace("orders.dlq:0:1")) == [
        ("origin", "orders:0:1"), ("redriven-to", "orders:0:1"),
    ]  # fmt: skip


def test_a_dead_letter_is_redriven_or_purged_and_nobody_acked_it(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1)
    handle.publish_many("orders", [b"a", b"b", b"c"])
    for reason in ("one", "two", "three"):
        reject(handle, "orders", reason)
    handle.dead_letters("orders").redrive(filter=lambda letter: letter.offset == 0)
    handle.dead_letters("orders").purge(filter=lambda letter: letter.offset == 1)
    letters = list(handle.traces(topic="orders.dlq"))
    assert [state_of(each, LETTERS) for each in letters] == ["redriven", "purged", "pending"]
    [purged] = handle.traces(topic="orders.dlq", outcome="purged")
    assert kinds(purged) == ["published", "purged"]
    # The message itself did go to the dead letters, whatever became of it there.
    assert state_of(handle.trace("orders:0:1"), "billing") == "dead-lettered"


def test_a_message_that_outlives_its_time_while_leased_expires_with_its_lease(
    handle: headrace.Headrace, clock: testing.ManualClock
) -> None:
    handle.create_topic("orders", 1)
    id = handle.publish("orders", b"x", ttl=10).id
    with handle.queue("orders", "billing", visibility=20) as queue:
        queue.lease(1)
        clock.skip(15)
        assert state_of(handle.trace(id), "billing") == "leased"
        clock.skip(10)
        assert state_of(handle.trace(id), "billing") == "expired"
        assert kinds(handle.trace(id)) == ["published", "leased", "lease-expired", "expired"]


def test_a_topic_with_the_name_of_another_is_not_taken_for_it(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1, trace_sample=1)
    handle.publish("orders", b"old")
    with handle.queue("orders", "billing") as queue:
        [message] = queue.lease(1)
        message.reject(error="bad")
    handle.delete_topic("orders")
    with pytest.raises(headrace.InvalidReceipt):
        handle.trace(message.receipt)
    handle.create_topic("orders", 1)
    with pytest.raises(headrace.UnknownMessage):
        handle.trace("orders:0:0")
    handle.publish("orders", b"new")
    new = handle.trace("orders:0:0")
    assert (kinds(new), new.groups, new.links) == (["published"], (), ())
    with pytest.raises(headrace.InvalidReceipt):
        handle.trace(message.receipt)


def test_lanes_and_receipts_of_former_leases_lead_to_the_right_message(
    handle: headrace.Headrace, clock: testing.ManualClock
) -> None:
    handle.create_topic("orders", 1)
    handle.publish("orders", b"low", priority="low")
    handle.publish("orders", b"high", priority="critical")
    with handle.queue("orders", "billing", visibility=5) as queue:
        [first] = queue.lease(1)
        assert kinds(handle.trace("orders:0:0")) == ["published"]
        clock.skip(6)
        [second] = queue.lease(1)
        second.ack()
        assert first.receipt != second.receipt
        assert handle.trace(first.receipt) == handle.trace(second.receipt)
        told = handle.trace(first.receipt)
        assert str(told.id) == "orders:0:1"
        assert kinds(told) == ["published", "leased", "lease-expired", "leased", "acked"]


def test_ids_of_nothing_are_refused_and_not_guessed_at(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1)
    handle.publish("orders", b"x")
    for offset in ("1", "9" * 19):
        with pytest.raises(headrace.UnknownMessage):
            handle.trace(f"orders:0:{offset}")
    for place in ("0:" + "9" * 20, "0:" + "9" * 5000, "0:-1", "-1:0", "0:0 ", "0:1_0", "0:\u0660"):
        with pytest.raises(headrace.InvalidArgument) as refused:
            handle.trace(f"orders:{place}")
        assert len(str(refused.value)) < 200
    with pytest.raises(headrace.UnknownPartition):
        handle.trace("orders:1:0")
    with pytest.raises(headrace.UnknownTopic):
        handle.trace("__trace:0:0")


def test_the_place_of_a_marker_holds_no_message(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1)
    with handle.transaction() as transaction:
        transaction.publish("orders", b"x")
    assert handle.trace("orders:0:0").transaction is None
    with pytest.raises(headrace.UnknownMessage, match="marker"):
        handle.trace("orders:0:1")


def test_of_a_message_that_is_never_done_the_last_events_are_told(
    handle: headrace.Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRACE_EVENTS_MAX", 10)
    handle.create_topic("orders", 1)
    handle.publish("orders", b"x")
    with handle.queue("orders", "billing") as queue:
        for _ in range(25):
            [message] = queue.lease(1)
            message.release()
        told = handle.trace("orders:0:0")
        assert kinds(told) == ["published", *["leased", "released"] * 5]
        assert told.is_cut
        queue.ack(queue.lease(1))
    assert kinds(handle.trace("orders:0:0"))[-2:] == ["leased", "acked"]


def test_a_restart_is_no_event_of_its_own(sdk_backend: SdkBackend) -> None:
    handle = sdk_backend.open()
    handle.create_topic("orders", 1)
    id = handle.publish("orders", b"x", delay=60).id
    late = handle.publish("orders", b"y", delay=60).id
    handle.cancel(id)
    before = [handle.trace(id), handle.trace(late)]
    handle.close()
    handle = sdk_backend.open()
    assert [handle.trace(id), handle.trace(late)] == before
    assert kinds(before[0]) == ["published", "delayed", "cancelled"]
