"""Regular expressions at the Kafka door: in turns, and refused beyond their limits."""

from __future__ import annotations

import pytest
from tests.unit.server.asking import run
from tests.unit.server.test_groups import CONSUMER_HEARTBEAT, GROUP, door_with_topic
from tests.unit.server.transaction_door import NEW, Transactor

from headrace.core import limits
from headrace.core.settings import TopicSettings
from headrace.engine.coordinator.consumer import ConsumerGroup
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from headrace.wire.kafka.generated.list_transactions_request import ListTransactionsRequest

HEAVY = "(.*)" * 120 + "x"


def joining(group: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex=HEAVY,
        topic_partitions=(),
    )


def test_groups_with_patterns_take_turns_until_all_are_matched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(limits, "TOPIC_PATTERN_VISITS_PER_TURN", 500)
        asking = door_with_topic()
        now_ms = asking.service.clock.now_ms()
        for name in ("a" * 20, "bx"):
            asking.broker.topics.create(name, 1, TopicSettings(), now_ms)
        groups = asking.door.groups
        names = [f"{GROUP}{number}" for number in range(3)]
        order: list[str] = []
        tick = ConsumerGroup.tick

        def ticking(self: ConsumerGroup, *arguments: object) -> list[str]:
            order.append(self.name)
            return tick(self, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(ConsumerGroup, "tick", ticking)
        for name in names:
            answer = await asking.ask(CONSUMER_HEARTBEAT, 1, joining(name))
            assert answer.error_code == Error.NONE and not answer.assignment.topic_partitions
        living = [group for group in groups.registry if isinstance(group, ConsumerGroup)]
        while any(group.is_behind() for group in living):
            await asking.skip(0.01)
        assert order[:6] == names * 2, "one group a turn"
        assert all(group.subscribed_topics() == {"bx"} for group in living)

    run(scenario)


def test_a_pattern_for_transactions_that_takes_too_long_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        for name in ("a" * 100, "bx"):
            await Transactor(asking, NEW, name).init()
        request = ListTransactionsRequest((), (), -1, HEAVY)
        answer = await asking.ask(66, 2, request)
        assert [each.transactional_id for each in answer.transaction_states] == ["bx"]
        monkeypatch.setattr(limits, "TOPIC_PATTERN_VISITS_MAX", 10_000)
        answer = await asking.ask(66, 2, request)
        assert answer.error_code == Error.INVALID_REGULAR_EXPRESSION
        assert not answer.transaction_states

    run(scenario)
