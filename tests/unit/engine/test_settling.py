"""What one call settles of several consumers is credited to each."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.conftest import GROUP, TOPIC, Bench

from headrace.core.values import MessageId, Outgoing
from headrace.engine.queue import QueueView


@pytest.mark.parametrize("how", ["ack", "nack", "reject", "release"])
def test_each_message_is_credited_to_the_consumer_that_held_it(bench: Bench, how: str) -> None:
    bench.make()
    node = bench.node
    node.publish(TOPIC, [Outgoing(b"one"), Outgoing(b"two"), Outgoing(b"three")])
    owners = ["ann", "bob", "cid"]
    leased = [node.lease(GROUP, [TOPIC], owner, 1)[0] for owner in owners]
    outcomes = getattr(node, how)(GROUP, [each.receipt for each in leased])
    assert outcomes == [None] * 3
    for offset, owner in enumerate(owners):
        trace = node.trace(str(MessageId(TOPIC, 0, offset)))
        settled = [each for each in trace.events if each.kind not in ("published", "leased")]
        assert [each.consumer for each in settled][:1] == [owner], settled


def test_a_call_of_one_group_leaves_the_time_of_all_others_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of groups may read a partition: a lease must not ask each of them."""
    bench.make()
    node = bench.node
    node.publish(TOPIC, [Outgoing(b"one")])
    for number in range(5):
        node.open_queue(f"other-{number}", [TOPIC], "ann", None)
    asked: list[int] = []
    tick = QueueView.tick

    def counted(view: QueueView, now_ms: int) -> Any:
        asked.append(view.group_id)
        return tick(view, now_ms)

    monkeypatch.setattr(QueueView, "tick", counted)
    [leased] = node.lease(GROUP, [TOPIC], "ann", 1)
    assert node.ack(GROUP, [leased.receipt]) == [None]
    assert len(asked) == 2
    assert len(set(asked)) == 1
