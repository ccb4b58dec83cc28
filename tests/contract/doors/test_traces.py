"""Traces, at every door: where a message is, and what happened to it."""

from __future__ import annotations

from tests.contract.doors.door import Door, New
from tests.contract.doors.test_messages import refused

from headrace import testing
from headrace.core.trace_values import GroupTrace, MessageTrace, TraceEvent, TraceLink

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def kinds(trace: MessageTrace) -> list[str]:
    return [each.kind for each in trace.events]


def ids(traces: list[MessageTrace]) -> list[str]:
    return [str(each.id) for each in traces]


def test_the_life_of_a_message_is_told_from_publish_to_redrive(
    door: Door, topic: str, group: str, clock: testing.ManualClock
) -> None:
    began = clock.now_ms()
    headers = {"traceparent": TRACEPARENT.encode()}
    door.publish(topic, New(b"four", b"k", headers, {"delay": 5}))
    clock.skip(5)
    [first] = door.lease(topic, group, settings={"backoff_ms": 0})
    leased = door.trace(first.receipt)
    assert leased.published_at_ms == began
    assert (leased.key, leased.value_bytes, leased.traceparent) == (b"k", 4, TRACEPARENT)
    [standing] = leased.groups
    consumer, until = standing.consumer, clock.now_ms() + 30_000
    assert standing == GroupTrace(group, "queue", "leased", 1, consumer, until)
    assert door.settle("nack", [first.receipt], error="busy") == [None]
    [second] = door.lease(topic, group)
    assert door.settle("reject", [second.receipt], reason="bad") == [None]
    told, event, at = door.trace(f"{topic}:0:0"), TraceEvent, began + 5000
    second_consumer = told.events[4].consumer
    assert told.events == (
        event(began, "published"),
        event(began, "delayed", until_ms=began + 5000),
        event(at, "leased", group, consumer, 1, at + 30_000),
        event(at, "nacked", group, consumer, until_ms=at, error="busy"),
        event(at, "leased", group, second_consumer, 2, at + 30_000),
        event(
            at, "dead-lettered", group, second_consumer, reason="rejected", error="bad",
            to=f"{topic}.dlq:0:0",
        ),
    )  # fmt: skip
    assert told.groups == (GroupTrace(group, "queue", "dead-lettered", 2),)
    assert told.links == (TraceLink("dead-letter", f"{topic}.dlq:0:0"),)
    # A receipt that is not good any more still says which message it was for.
    assert door.trace(first.receipt) == told
    assert door.redrive(topic, door.letters(topic)) == (1, 1, 0)
    letter = door.trace(f"{topic}.dlq:0:0")
    assert letter.links == (
        TraceLink("origin", f"{topic}:0:0"),
        TraceLink("redriven-to", f"{topic}:0:0"),
    )
    assert (letter.events[-1].to, letter.events[-1].reason) == (f"{topic}:0:0", "in place")
    assert letter.traceparent == TRACEPARENT
    again = door.trace(f"{topic}:0:0")
    assert again.events == (*told.events, event(at, "redriven", group, reason="in place"))
    assert again.groups == (GroupTrace(group, "queue", "pending", 0),)
    [third] = door.lease(topic, group)
    assert door.settle("ack", [third.receipt]) == [None]
    kinds = [each.kind for each in door.trace(f"{topic}:0:0").events]
    assert kinds[-4:] == ["dead-lettered", "redriven", "leased", "acked"]


def test_a_stream_group_has_read_what_its_cursor_has_passed(door: Door, topic: str) -> None:
    door.publish(topic, New(b"a"), New(b"b"))
    door.seek(f"audit-{topic}", topic, 1)
    [read], [unread] = (door.trace(f"{topic}:0:{number}").groups for number in range(2))
    assert (read.kind, read.state, read.cursor) == ("stream", "read", 1)
    assert (unread.kind, unread.state, unread.cursor) == ("stream", "unread", 1)
    assert read.at_ms is not None


def test_messages_are_found_by_what_is_known_of_them(
    door: Door, topic: str, group: str, clock: testing.ManualClock
) -> None:
    began = clock.now_ms()
    door.publish(
        topic,
        New(b"x", b"\xfe key", {"shard": b"1"}),
        *(New(b"y", b"other") for _ in range(3)),
        New(b"z", b"\xfe key", {"shard": b"2"}),
    )
    clock.skip(1)
    middle = clock.now_ms()
    door.publish(topic, New(b"late"))
    all_of_them = [f"{topic}:0:{number}" for number in range(6)]
    assert ids(door.traces(topic=topic)) == all_of_them
    assert ids(door.traces(topic=topic, key=b"\xfe key")) == [all_of_them[0], all_of_them[4]]
    assert ids(door.traces(topic=topic, header=("shard", b"2"))) == [all_of_them[4]]
    assert ids(door.traces(topic=topic, header=("shard", None))) == [all_of_them[0], all_of_them[4]]
    assert ids(door.traces(topic=topic, since=middle)) == all_of_them[5:]
    assert ids(door.traces(topic=topic, since=began, until=middle)) == all_of_them[:5]
    leased = door.lease(topic, group, 2)
    door.settle("ack", [leased[0].receipt])
    assert ids(door.traces(topic=topic, group=group, outcome="acked")) == all_of_them[:1]
    assert ids(door.traces(topic=topic, outcome="leased")) == all_of_them[1:2]
    door.seek(f"audit-{topic}", topic, 6)
    assert ids(door.traces(topic=topic, group=f"audit-{topic}", outcome="unread")) == []


def test_what_was_never_there_is_refused_by_name(door: Door, topic: str) -> None:
    with refused("unknown-message", f"{topic}:0:7"):
        door.trace(f"{topic}:0:7")
    with refused("unknown-topic", "never-made"):
        door.trace("never-made:0:0")
    with refused("unknown-partition"):
        door.trace(f"{topic}:9:0")
    with refused("invalid-argument", "nonsense"):
        door.trace("nonsense")
    with refused("unknown-topic", "never-made"):
        door.traces(topic="never-made")
    with refused("unknown-group", "nobody"):
        door.traces(topic=topic, group="nobody")
    with refused("invalid-argument", "lost"):
        door.traces(topic=topic, outcome="lost")


def test_a_message_of_a_transaction_names_its_producer(door: Door, topic: str, group: str) -> None:
    door.publish(topic, New(b"in"))
    [leased] = door.lease(topic, group)
    door.transact([(topic, New(b"out"))], [leased.receipt])
    assert kinds(door.trace(f"{topic}:0:0")) == ["published", "leased", "ack-held", "acked"]
    out = door.trace(f"{topic}:0:1")
    assert out.producer is not None
    assert out.transaction is None
