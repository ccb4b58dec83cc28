"""Traces by the SDK: where a message is, and what happened to it."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.conftest import SdkBackend

import headrace
from headrace import testing
from headrace.core.trace_values import TraceState

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def kinds(trace: headrace.MessageTrace) -> list[str]:
    return [event.kind for event in trace.events]


def state_of(trace: headrace.MessageTrace, group: str) -> TraceState:
    [found] = [each for each in trace.groups if each.group == group]
    return found.state


def test_the_life_of_a_message_is_told_from_publish_to_ack(
    handle: headrace.Headrace, clock: testing.ManualClock
) -> None:
    handle.create_topic("orders", 1)
    began = clock.now_ms()
    id = handle.publish("orders", b"x", key="k", delay=5).id
    assert kinds(handle.trace(id)) == ["published", "delayed"]
    with handle.queue("orders", "billing", consumer="worker", backoff_ms=1000) as queue:
        assert handle.trace(id).groups == (
            headrace.GroupTrace("billing", "queue", "delayed", due_ms=began + 5000),
        )
        clock.skip(5)
        [message] = queue.lease(1)
        leased = handle.trace(message)
        assert leased.groups == (
            headrace.GroupTrace(
                "billing", "queue", "leased", 1, "worker", due_ms=clock.now_ms() + 30_000
            ),
        )
        assert handle.trace(message.receipt) == leased
        message.nack(error="busy")
        assert handle.trace(id).groups == (
            headrace.GroupTrace("billing", "queue", "retrying", 1, due_ms=clock.now_ms() + 1000),
        )
        clock.skip(1)
        [message] = queue.lease(1)
        clock.skip(30)
        assert state_of(handle.trace(id), "billing") == "pending"
        [message] = queue.lease(1)
        message.extend(10)
        message.release()
        [message] = queue.lease(1)
        message.ack()
    trace = handle.trace(id)
    event = headrace.TraceEvent
    at = began + 5000
    assert trace.events == (
        event(began, "published"),
        event(began, "delayed", until_ms=began + 5000),
        event(at, "leased", "billing", "worker", 1, at + 30_000),
        event(at, "nacked", "billing", "worker", until_ms=at + 1000, error="busy"),
        event(at + 1000, "leased", "billing", "worker", 2, at + 31_000),
        event(at + 31_000, "lease-expired", "billing"),
        event(at + 31_000, "leased", "billing", "worker", 3, at + 61_000),
        event(at + 31_000, "extended", "billing", "worker", until_ms=at + 41_000),
        event(at + 31_000, "released", "billing", "worker"),
        event(at + 31_000, "leased", "billing", "worker", 3, at + 61_000),
        event(at + 31_000, "acked", "billing", "worker"),
    )
    assert state_of(trace, "billing") == "acked"
    assert trace.published_at_ms == began
    assert trace.key == b"k"


def test_origin_dead_letter_and_redriven_copy_link_both_ways_and_keep_their_trace_context(
    handle: headrace.Headrace,
) -> None:
    handle.create_topic("orders", 1)
    handle.publish_many("orders", [b"a", b"b", b"c"], headers={"traceparent": TRACEPARENT})
    with handle.queue("orders", "billing") as queue:
        queue.reject(queue.lease(3), error="bad")
    for number in range(3):
        origin = handle.trace(f"orders:0:{number}")
        assert kinds(origin) == ["published", "leased", "dead-lettered"]
        assert origin.events[-1].reason == "rejected"
        assert origin.events[-1].error == "bad"
        assert origin.events[-1].to == f"orders.dlq:0:{number}"
        assert origin.links == (headrace.TraceLink("dead-letter", f"orders.dlq:0:{number}"),)
    # Without their records they come back as copies.
    handle.delete_records("orders", 0, 3)
    handle.dead_letters("orders").redrive()
    letter = handle.trace("orders.dlq:0:1")
    assert letter.links == (
        headrace.TraceLink("origin", "orders:0:1"),
        headrace.TraceLink("redriven-to", "orders:0:4"),
    )
    assert kinds(letter) == ["published", "redriven"]
    copy = handle.trace("orders:0:4")
    assert copy.links == (headrace.TraceLink("redriven-from", "orders.dlq:0:1"),)
    assert {each.traceparent for each in (letter, copy)} == {TRACEPARENT}
    with handle.queue("orders", "billing") as queue:
        carried = {dict(each.headers)["traceparent"] for each in queue.lease(3)}
        assert carried == {TRACEPARENT.encode()}


def test_a_stream_group_has_read_what_its_cursor_has_passed(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1)
    handle.publish_many("orders", [b"a", b"b"])
    with handle.stream("orders", "audit", auto_commit=None) as stream:
        stream.poll(1)
        stream.commit()
    states = [handle.trace(f"orders:0:{number}").groups for number in range(2)]
    assert [(group.kind, group.state, group.cursor) for [group] in states] == [
        ("stream", "read", 1),
        ("stream", "unread", 1),
    ]


def test_what_a_group_never_saw_is_skipped(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1)
    handle.publish("orders", b"before")
    with handle.queue("orders", "late", start="latest"):
        handle.publish("orders", b"after")
        assert state_of(handle.trace("orders:0:0"), "late") == "skipped"
        assert state_of(handle.trace("orders:0:1"), "late") == "pending"


def test_expired_cancelled_and_purged_messages_say_so(
    handle: headrace.Headrace, clock: testing.ManualClock
) -> None:
    handle.create_topic("orders", 1)
    with handle.queue("orders", "billing") as queue:
        short = handle.publish("orders", b"a", ttl=1).id
        late = handle.publish("orders", b"b", delay=60).id
        handle.publish("orders", b"c")
        assert handle.cancel(late)
        clock.skip(2)
        queue.reject(queue.lease(3), error="bad")
    handle.dead_letters("orders").purge()
    assert kinds(handle.trace(short)) == ["published", "expired"]
    assert kinds(handle.trace(late)) == ["published", "delayed", "cancelled"]
    assert kinds(handle.trace("orders.dlq:0:0")) == ["published", "purged"]


def test_a_search_goes_over_all_topics_and_finds_what_matches(
    handle: headrace.Headrace, clock: testing.ManualClock
) -> None:
    handle.create_topic("orders", 2)
    handle.create_topic("users", 1)
    for number in range(250):
        handle.publish("orders", b"x", key=f"k{number % 5}", headers={"shard": f"{number % 2}"})
    clock.skip(1)
    middle = clock.now_ms() / 1000
    handle.publish("users", b"y", key="k3")
    assert len(list(handle.traces())) == 251
    assert len(list(handle.traces(topic="orders", key="k3"))) == 50
    assert len(list(handle.traces(key="k3"))) == 51
    assert len(list(handle.traces(key="k3", header=("shard", "1")))) == 25
    assert [each.id.topic for each in handle.traces(since=middle)] == ["users"]
    assert len(list(handle.traces(until=middle))) == 250
    with handle.queue("orders", "billing") as queue:
        queue.ack(queue.lease(30))
    acked = list(handle.traces(group="billing", outcome="acked"))
    assert len(acked) == 30
    assert all(kinds(each) == ["published", "leased", "acked"] for each in acked)
    assert len(list(handle.traces(outcome="pending"))) == 220


def test_messages_that_never_were_are_unknown(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1)
    with pytest.raises(headrace.UnknownMessage):
        handle.trace("orders:0:0")
    with pytest.raises(headrace.UnknownTopic):
        handle.trace("nothing:0:0")
    with pytest.raises(headrace.UnknownPartition):
        handle.trace("orders:9:0")
    with pytest.raises(headrace.InvalidArgument):
        handle.trace("nonsense")
    with pytest.raises(headrace.InvalidArgument):
        list(handle.traces(outcome="lost"))  # type: ignore[arg-type]


def test_messages_of_transactions_say_how_they_stand(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1)
    handle.create_topic("paid", 1)
    handle.publish("orders", b"x")
    with handle.queue("orders", "billing", consumer="worker") as queue:
        [message] = queue.lease(1)
        with handle.transaction() as transaction:
            transaction.publish("paid", b"y")
            transaction.ack(message)
    assert kinds(handle.trace("orders:0:0")) == ["published", "leased", "ack-held", "acked"]
    paid = handle.trace("paid:0:0")
    assert paid.transaction is None
    assert paid.producer is not None


def test_tracing_is_awaited_for_asyncio(sdk_backend: SdkBackend) -> None:
    async def trace() -> tuple[headrace.MessageTrace, list[headrace.MessageTrace]]:
        async with sdk_backend.open_async() as handle:
            await handle.create_topic("orders", 1)
            id = (await handle.publish("orders", b"x", key="k")).id
            found = [each async for each in handle.traces(key="k")]
            return await handle.trace(id), found

    one, found = asyncio.run(trace())
    assert found == [one]
    assert kinds(one) == ["published"]
