"""What is carried over before a state log is cut: nothing is lost, and nothing counts
twice, whatever fails on the way."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core import limits
from headrace.core.errors import DiskFull
from headrace.core.values import Acknowledged, MessageId, Publication
from headrace.engine.following import REST_MS, Follower
from headrace.engine.state_log import StateLog
from headrace.engine.trace_topic import find_trace_partition


def cut(bench: Any) -> None:
    """Write a snapshot, and call until nothing waits to be carried any more."""
    bench.partition().snapshot(bench.clock.time_ms, force=True)
    # A round that has something to sync ends with the snapshot being safe.
    bench.publish(b"more")
    bench.node.ack(bench.group, bench.receipts(1))
    for _ in range(30):
        bench.node.release(bench.group, [])


def kinds(bench: Any, offset: int) -> list[str]:
    return [event.kind for event in bench.node.trace(f"{bench.topic}:0:{offset}").events]


def carried(bench: Any) -> int:
    found = find_trace_partition(bench.node._broker.topics)
    return 0 if found is None else found.log.end_offset


def start_of_state(bench: Any) -> int:
    return int(bench.partition().state.log.start_offset)


def test_the_history_of_a_sampled_message_outlives_the_state_log(bench: Any) -> None:
    bench.make(topic={"trace_sample": 1})
    bench.publish(b"a")
    bench.node.ack(bench.group, bench.receipts(1))
    cut(bench)
    assert start_of_state(bench) > 0
    assert kinds(bench, 0) == ["published", "leased", "acked"]
    assert bench.node.trace("orders:0:0").is_cut
    bench.crash()
    assert kinds(bench, 0) == ["published", "leased", "acked"]


def test_of_a_message_that_is_not_sampled_only_a_failure_is_kept(bench: Any) -> None:
    bench.make(topic={"trace_sample": 0}, group={"backoff_ms": 0})
    bench.publish(b"good", b"bad")
    good, bad = bench.receipts(2)
    bench.node.ack(bench.group, [good])
    bench.node.nack(bench.group, [bad], error="busy")
    cut(bench)
    assert kinds(bench, 0) == ["published"]
    assert kinds(bench, 1)[:3] == ["published", "leased", "nacked"]
    # It is followed on, though what it is doing now is no failure.
    bench.node.ack(bench.group, bench.receipts(5))
    cut(bench)
    assert kinds(bench, 1) == ["published", "leased", "nacked", "leased", "acked"]


def test_what_was_carried_and_not_cut_is_carried_again_and_told_once(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.make(topic={"trace_sample": 1})
    bench.publish(b"a")
    bench.node.ack(bench.group, bench.receipts(1))
    with monkeypatch.context() as patch:

        def refuse(self: StateLog, below: int) -> None:
            raise DiskFull("no")

        patch.setattr(StateLog, "cut", refuse)
        cut(bench)
        once = carried(bench)
        assert once > 0
        assert start_of_state(bench) == 0
    assert kinds(bench, 0) == ["published", "leased", "acked"]
    bench.skip(REST_MS)
    cut(bench)
    assert start_of_state(bench) > 0
    assert carried(bench) >= 2 * once
    assert kinds(bench, 0) == ["published", "leased", "acked"]


def test_a_state_log_does_not_wait_for_ever(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRACE_UNCARRIED_BYTES_MAX", 0)
    bench.make(topic={"trace_sample": 1})
    bench.publish(b"a")
    bench.node.ack(bench.group, bench.receipts(1))
    cut(bench)
    assert start_of_state(bench) > 0
    assert carried(bench) == 0
    assert kinds(bench, 0) == ["published"]
    assert bench.state(0) == "acked"


def test_where_tracing_is_off_nothing_is_kept(bench: Any) -> None:
    bench.make(topic={"trace_sample": None})
    bench.publish(b"a")
    bench.node.reject(bench.group, bench.receipts(1), reason="bad")
    cut(bench)
    assert start_of_state(bench) > 0
    assert carried(bench) == 0
    assert bench.node.trace("orders:0:0").groups[0].state == "dead-lettered"


def test_an_ack_of_a_transaction_is_told_across_cuts(bench: Any) -> None:
    bench.make(topic={"trace_sample": 1})
    bench.publish(b"a")
    [receipt] = bench.receipts(1)
    begun = bench.node.begin_transaction(
        [Publication(bench.topic, [])], [], [Acknowledged(bench.group, [receipt])]
    )
    bench.node.write_transaction(begun, [], [Acknowledged(bench.group, [receipt])])
    cut(bench)
    assert kinds(bench, 0) == ["published", "leased", "ack-held"]
    bench.node.end_transaction(begun, commits=True)
    assert kinds(bench, 0) == ["published", "leased", "ack-held", "acked"]
    cut(bench)
    assert kinds(bench, 0) == ["published", "leased", "ack-held", "acked"]


def test_the_history_outlives_the_record_too(bench: Any) -> None:
    bench.make(topic={"trace_sample": 1})
    bench.publish(b"a")
    bench.node.ack(bench.group, bench.receipts(1))
    cut(bench)
    bench.node.delete_records(bench.topic, 0, 1)
    trace = bench.node.trace("orders:0:0")
    assert trace.published_at_ms is None
    assert [event.kind for event in trace.events] == ["leased", "acked"]


def test_a_topic_of_the_same_name_has_nothing_of_the_other_ones_history(bench: Any) -> None:
    bench.make(topic={"trace_sample": 1})
    bench.publish(b"a")
    bench.node.ack(bench.group, bench.receipts(1))
    cut(bench)
    bench.node.delete_topic(bench.topic)
    bench.node.create_topic(bench.topic, partitions=1)
    bench.publish(b"b")
    assert kinds(bench, 0) == ["published"]
    assert bench.node.trace(str(MessageId(bench.topic, 0, 0))).groups == ()


@pytest.mark.parametrize("is_under_way", [False, True])
def test_what_another_node_led_meanwhile_is_carried_when_the_lead_comes_back(
    bench: Any, is_under_way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.make(topic={"trace_sample": 1})
    bench.publish(b"a")
    bench.node.ack(bench.group, bench.receipts(1))
    partition, broker = bench.partition(), bench.node._broker
    with monkeypatch.context() as patch:
        patch.setattr(Follower, "advance", lambda *arguments: None)
        partition.snapshot(bench.clock.time_ms, force=True)
        # A round that has something to sync ends with the snapshot being safe.
        bench.publish(b"more")
        bench.node.ack(bench.group, bench.receipts(1))
    assert partition in broker.follower.due
    if is_under_way:
        broker.follower.advance(bench.clock.time_ms, 1)
    broker.leading.resign(partition)
    start = start_of_state(bench)
    for _ in range(30):
        broker.follower.advance(bench.clock.time_ms, 1 << 20)
    # It is the other node's to cut.
    assert start_of_state(bench) == start and not broker.follower.due
    broker.leading.lead(partition, partition.epoch + 1, bench.clock.time_ms)
    cut(bench)
    assert start_of_state(bench) > start
    assert kinds(bench, 0) == ["published", "leased", "acked"]
