"""Who reads as a group: those who stay until they leave, and those who hold leases."""

from __future__ import annotations

import pytest
from tests.unit.engine.conftest import GROUP, TOPIC, Bench

from headrace.core import limits
from headrace.core.overview_values import GroupTotals


def members(bench: Bench) -> tuple[str, ...]:
    return bench.node.group(GROUP).consumers


def totals(bench: Bench, name: str = GROUP) -> GroupTotals:
    [found] = [each for each in bench.node.overview().groups if each.name == name]
    return found


def test_a_consumer_that_opened_the_queue_stays_until_it_leaves(bench: Bench) -> None:
    bench.make()
    bench.publish(b"x")
    [receipt] = bench.receipts()
    bench.node.ack(GROUP, [receipt])
    bench.skip(1_000_000)
    assert members(bench) == ("ann",)
    assert totals(bench).members == 1
    bench.node.leave(GROUP, "ann")
    assert members(bench) == ()


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_consumer_that_only_leases_is_there_while_it_holds_something(
    bench: Bench, partitions: int
) -> None:
    bench.make(partitions=partitions)
    bench.node.leave(GROUP, "ann")
    bench.publish(b"a", b"b")
    first, second = bench.lease(by="bob")
    assert members(bench) == ("bob",)
    bench.node.ack(GROUP, [first.receipt])
    assert (members(bench), totals(bench).members) == (("bob",), 1)
    bench.node.nack(GROUP, [second.receipt])
    assert (members(bench), totals(bench).members) == ((), 0)


def test_consumers_that_come_once_each_leave_nothing_in_memory(bench: Bench) -> None:
    bench.make()
    for number in range(1_000):
        bench.publish(b"x")
        [leased] = bench.lease(by=f"http-{number}")
        bench.node.ack(GROUP, [leased.receipt])
    broker = bench.node._broker
    serving = broker.groups.serving(broker.groups.named(GROUP))
    assert len(serving.consumers) < 100


def test_a_group_is_unread_when_nobody_leased_for_the_stated_time(bench: Bench) -> None:
    bench.make()
    bench.node.leave(GROUP, "ann")
    bench.skip(limits.GROUP_UNREAD_MS)
    assert totals(bench).is_unread
    # Also a lease that finds nothing.
    assert bench.lease(by="bob") == []
    bench.skip(limits.GROUP_UNREAD_MS - 1)
    assert not totals(bench).is_unread
    bench.skip(1)
    assert totals(bench).is_unread


def test_who_read_before_a_start_gets_as_long_to_come_back(bench: Bench) -> None:
    bench.make()
    bench.reopen()
    assert (totals(bench).members, totals(bench).is_unread) == (0, False)
    bench.skip(limits.GROUP_UNREAD_MS)
    assert totals(bench).is_unread


def test_a_stream_that_was_left_or_committed_just_now_is_not_unread(bench: Bench) -> None:
    bench.make()
    bench.node.join_stream("audit", [TOPIC], "ann", "earliest")
    bench.skip(10 * limits.GROUP_UNREAD_MS)
    bench.node.leave_stream("audit", "ann")
    bench.skip(limits.GROUP_UNREAD_MS - 1)
    assert not totals(bench, "audit").is_unread
    bench.skip(1)
    assert totals(bench, "audit").is_unread
    bench.node.commit("audit", {(TOPIC, 0): 0})
    assert not totals(bench, "audit").is_unread
