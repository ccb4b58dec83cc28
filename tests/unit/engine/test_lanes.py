"""Lanes in a whole queue: shares, urgency and patience, over partitions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from headrace.core import limits
from headrace.core.values import Outgoing
from headrace.engine.lane import WEIGHTS
from headrace.record import attribute_headers

NAMES = ("critical", "high", "normal", "low", "background")
UNLIMITED = {"leases_per_consumer_max": 1_000_000}


def publish_many(bench: Any, count: int, lane: str, *, partition: int = 0) -> None:
    headers = attribute_headers(priority=lane) if lane != "normal" else ()
    bench.node.publish_values(bench.topic, [b"x"] * count, headers=headers, partition=partition)


@pytest.mark.parametrize("call_size", [1, 7, 100])
@pytest.mark.parametrize("partitions", [1, 3])
def test_shares_of_a_saturated_queue_follow_the_weights(
    bench: Any, call_size: int, partitions: int
) -> None:
    bench.make(partitions=partitions, group=UNLIMITED)
    for name in NAMES:
        for partition in range(partitions):
            publish_many(bench, 6_000, name, partition=partition)
    delivered: Counter[int] = Counter()
    while delivered.total() < 10_000:
        delivered.update(delivery.lane for delivery in bench.lease(call_size))
    for lane, weight in enumerate(WEIGHTS):
        assert abs(100 * delivered[lane] / delivered.total() - weight) <= 2


@pytest.mark.parametrize("published", ["after the group", "before the group", "and reopened"])
@pytest.mark.parametrize("partition", [0, 2])
def test_a_critical_message_behind_many_normal_ones_is_first_in_the_next_call(
    bench: Any, published: str, partition: int
) -> None:
    bench.node.create_topic(bench.topic, partitions=3)
    if published == "after the group":
        bench.node.open_queue(bench.group, [bench.topic], "ann", UNLIMITED)
        publish_many(bench, 100_000, "normal")
        bench.lease(137)
    else:
        publish_many(bench, 100_000, "normal")
    publish_many(bench, 1, "critical", partition=partition)
    if published != "after the group":
        bench.node.open_queue(bench.group, [bench.topic], "ann", UNLIMITED)
    if published == "and reopened":
        bench.reopen()
    (first,) = bench.lease(1)
    assert (first.lane, first.partition) == (0, partition)
    assert bench.lease(1)[0].lane == 2


def test_a_starving_lane_earns_one_message_after_its_wait(bench: Any) -> None:
    bench.make(group={**UNLIMITED, "starvation_ms": 1_000})
    publish_many(bench, 500, "critical")
    publish_many(bench, 5, "background")
    # Small calls never get beyond the critical lane's share of a round.
    assert [d.lane for d in bench.lease(10)] == [0] * 10
    bench.skip(999)
    assert [d.lane for d in bench.lease(10)] == [0] * 10
    bench.skip(1)
    assert Counter(d.lane for d in bench.lease(10)) == {0: 9, 4: 1}
    assert [d.lane for d in bench.lease(10)] == [0] * 10


def test_within_a_lane_messages_come_in_order(bench: Any) -> None:
    bench.make()
    bench.publish(b"n0", b"n1")
    bench.publish(b"h0", b"h1", priority="high")
    bench.publish(b"n2")
    order = [bench.values(1)[0] for _ in range(5)]
    assert [value for value in order if value.startswith(b"n")] == [b"n0", b"n1", b"n2"]
    assert order[:2] == [b"h0", b"h1"]


def test_a_message_keeps_its_lane_when_it_comes_back(bench: Any) -> None:
    bench.make()
    bench.publish(b"low", priority="low")
    bench.publish(b"normal")
    bench.node.nack(bench.group, bench.receipts(2), delay_ms=0)
    assert bench.values(1) == [b"normal"]
    bench.reopen()
    assert {(d.value, d.lane) for d in bench.lease()} == {(b"low", 3), (b"normal", 2)}


def test_every_partition_gets_its_turn(bench: Any) -> None:
    bench.make(partitions=3, group=UNLIMITED)
    for partition in range(3):
        publish_many(bench, 100, "normal", partition=partition)
    seen = Counter(bench.lease(1)[0].partition for _ in range(30))
    assert seen == {0: 10, 1: 10, 2: 10}


@pytest.mark.parametrize("what", ["large messages", "scattered messages"])
def test_shares_follow_the_weights_where_a_lease_ends_before_its_count(
    bench: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    if what == "large messages":
        monkeypatch.setattr(limits, "LEASE_BYTES_MAX", 20 * 100)
    else:
        monkeypatch.setattr(limits, "LEASE_OPENED_BYTES_MAX", 10_000)
    bench.make(group=UNLIMITED)
    # Between them lie others that are not ready.
    headers = [attribute_headers(priority=lane) for lane in NAMES]
    headers += [attribute_headers(delay_ms=1_000_000)] * 45
    for _ in range(200):
        messages = [Outgoing(b"x" * 100, None, each) for each in headers * 4]
        bench.node.publish(bench.topic, messages)
    delivered: Counter[int] = Counter()
    while delivered.total() < 1_000:
        leased = bench.lease(1_000)
        assert 0 < len(leased) < 100
        delivered.update(delivery.lane for delivery in leased)
    for lane, weight in enumerate(WEIGHTS):
        assert abs(100 * delivered[lane] / delivered.total() - weight) <= 2
