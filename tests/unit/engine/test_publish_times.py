"""Times that publishers give their messages, and the bounds that a topic has for them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.values import Outgoing
from headrace.engine.conversion import InvalidTimestamp

BOUNDS = {"timestamp_before_max_ms": 1_000, "timestamp_after_max_ms": 1_000}


def test_a_message_of_a_time_beyond_the_bounds_is_refused_with_all_beside_it(bench: Any) -> None:
    bench.make(topic=BOUNDS)
    now_ms = bench.clock.time_ms
    for timestamp_ms in (now_ms - 1_001, now_ms + 1_001):
        with pytest.raises(InvalidTimestamp, match="_max_ms"):
            bench.node.publish(
                bench.topic, [Outgoing(b"a"), Outgoing(b"b", timestamp_ms=timestamp_ms)]
            )
        with pytest.raises(InvalidTimestamp):
            bench.node.publish(bench.topic, [Outgoing(b"b", timestamp_ms=timestamp_ms)])
    assert bench.partition().log.end_offset == 0
    inside = [Outgoing(b"c", timestamp_ms=now_ms + away) for away in (-1_000, 1_000)]
    bench.node.publish(bench.topic, inside)
    assert bench.values() == [b"c", b"c"]


def test_a_topic_with_the_time_of_appending_takes_any(bench: Any) -> None:
    bench.make(topic={**BOUNDS, "timestamp_type": "LogAppendTime"})
    bench.node.publish(bench.topic, [Outgoing(b"a", timestamp_ms=1)])
    ((record,), _) = bench.node.read(bench.topic, 0, 0)
    assert record.timestamp_ms == bench.clock.time_ms


def test_what_was_placed_in_a_transaction_is_not_too_old_when_it_is_written(bench: Any) -> None:
    bench.make(topic=BOUNDS)
    broker, now_ms = bench.node._broker, bench.clock.time_ms
    topic = broker.topics.named(bench.topic)
    messages = [Outgoing(b"a", timestamp_ms=now_ms - 1_000)]
    placed = broker.publisher.place(topic, messages, now_ms)
    producer = broker.new_producer_id(now_ms), 0
    broker.publisher.publish_in_transaction(topic, placed, producer, now_ms + 5, broker.commit())
    assert bench.partition().log.end_offset == 1
    with pytest.raises(InvalidTimestamp):
        broker.publisher.place(topic, messages, now_ms + 5)
