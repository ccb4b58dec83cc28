"""Topics that are made because a client named them: at a rate, and never at the cost of
those that the node needs itself."""

from __future__ import annotations

import pytest
from tests.unit.server.asking import Asking, run
from tests.unit.server.transaction_door import NEW, Transactor

from headrace.core import limits
from headrace.core.errors import LimitExceeded
from headrace.core.settings import TopicSettings
from headrace.engine.creation_rate import BURST_SECONDS, CreationRate
from headrace.engine.refused_topics import RefusedTopics
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.errors import Error
from headrace.testing import ManualClock
from headrace.wire.kafka.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.kafka.generated.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.kafka.generated.metadata_request import MetadataRequest, MetadataRequestTopic

METADATA, FIND_COORDINATOR, CREATE_TOPICS = 3, 10, 19


def named(*names: str) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names])


def test_a_burst_is_made_and_then_as_many_as_the_rate_brings() -> None:
    rate = CreationRate(2)
    assert [rate.take(1_000) for _ in range(21)] == [True] * 20 + [False]
    assert not rate.take(1_499)
    assert rate.take(1_500)
    assert not rate.take(1_500)
    assert sum(rate.take(10_000_000) for _ in range(50)) == 2 * BURST_SECONDS


def test_without_a_rate_there_is_no_limit() -> None:
    rate = CreationRate(None)
    assert all(rate.take(0) for _ in range(1_000))


def test_topics_beyond_the_rate_are_made_when_the_client_asks_again() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        asking = Asking(MemoryDisk(), clock=clock)
        asking.broker.topics.auto_creation = CreationRate(1)
        names = [f"topic-{number}" for number in range(40)]
        answer = await asking.ask(METADATA, 12, named(*names))
        codes = [each.error_code for each in answer.topics]
        assert codes == [Error.NONE] * 10 + [Error.LEADER_NOT_AVAILABLE] * 30
        clock.skip(5)
        answer = await asking.ask(METADATA, 12, named(*names))
        assert [each.error_code for each in answer.topics].count(Error.NONE) == 15

    run(scenario)


def test_topics_of_dead_letters_do_not_make_a_wait_for_the_rate_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk(), clock=ManualClock())
        monkeypatch.setattr(limits, "TOPICS_MAX", 4)
        topics, now_ms = asking.broker.topics, asking.service.clock.now_ms()
        for name in "ab":
            topics.ensure_dead_letters(topics.create(name, 1, TopicSettings(), now_ms), now_ms)
        topics.auto_creation = CreationRate(0)
        answer = await asking.ask(METADATA, 12, named("c"))
        assert answer.topics[0].error_code == Error.LEADER_NOT_AVAILABLE
        for name in "cd":
            topics.create(name, 1, TopicSettings(), now_ms)
        answer = await asking.ask(METADATA, 12, named("e"))
        assert answer.topics[0].error_code == Error.POLICY_VIOLATION

    run(scenario)


def test_what_the_node_needs_itself_does_not_count_against_the_topics_of_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "TOPICS_MAX", 50)

    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        answer = await asking.ask(METADATA, 12, named(*"abcd", *map(str, range(47))))
        codes = [each.error_code for each in answer.topics]
        assert codes == [Error.NONE] * 50 + [Error.POLICY_VIOLATION]
        topics, now_ms = asking.broker.topics, asking.service.clock.now_ms()
        topics.create("__cursors", 1, TopicSettings(), now_ms, internal=True)
        topics.ensure_dead_letters(topics.named("a"), now_ms)
        with pytest.raises(LimitExceeded, match="50 topics"):
            topics.create("e", 1, TopicSettings(), now_ms)
        topics.delete(topics.named("b"), now_ms)
        topics.create("e", 1, TopicSettings(), now_ms)
        request = FindCoordinatorRequest(key="group", coordinator_keys=("group",))
        found = await asking.ask(FIND_COORDINATOR, 4, request)
        assert found.coordinators[0].error_code == Error.NONE
        await Transactor(asking, NEW, "a transactional id").init()
        assert "__transaction_state" in topics.catalog.topics

    run(scenario)


def test_a_name_that_is_said_often_is_one_topic() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        answer = await asking.ask(METADATA, 12, named(*["same"] * 500))
        assert [each.name for each in answer.topics] == ["same"]

    run(scenario)


def test_a_topic_that_was_refused_is_not_made_because_a_client_names_it() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        asking = Asking(MemoryDisk(), clock=clock)

        async def make(*, partitions: int = 1, replicas: int = 1, validate_only: bool) -> int:
            topic = CreatableTopic("orders", partitions, replicas)
            request = CreateTopicsRequest([topic], validate_only=validate_only)
            return int((await asking.ask(CREATE_TOPICS, 7, request)).topics[0].error_code)

        async def code() -> int:
            answer = await asking.ask(METADATA, 12, named("orders"))
            return int(answer.topics[0].error_code)

        assert await make(replicas=3, validate_only=False) == Error.INVALID_REPLICATION_FACTOR
        assert await code() == Error.UNKNOWN_TOPIC_OR_PARTITION
        clock.skip(limits.REFUSED_TOPIC_MS / 1000 - 1)
        assert await code() == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert await make(partitions=0, validate_only=False) == Error.INVALID_PARTITIONS
        clock.skip(limits.REFUSED_TOPIC_MS / 1000 - 1)
        assert await code() == Error.UNKNOWN_TOPIC_OR_PARTITION
        # Nobody has asked for it for long.
        clock.skip(1)
        # To ask whether it would be refused is not to ask for it.
        assert await make(replicas=3, validate_only=True) == Error.INVALID_REPLICATION_FACTOR
        assert await code() == Error.NONE
        assert await make(validate_only=False) == Error.TOPIC_ALREADY_EXISTS

    run(scenario)


def test_refused_names_are_bounded_and_the_oldest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REFUSED_TOPICS_MAX", 2)
    refused = RefusedTopics()
    for number, name in enumerate(("a", "b", "a", "c")):
        refused.note(name, "why", number)
    assert [refused.reason(name, 10) for name in "abc"] == ["why", None, "why"]
    refused.forget("a")
    refused.forget("a")
    assert refused.reason("a", 10) is None
