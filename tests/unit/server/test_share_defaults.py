"""What a share group begins with: what Kafka's begin with on its port, ours in the SDK."""

from __future__ import annotations

from tests.unit.server.asking import run
from tests.unit.server.share_door import GROUP, RELEASE, TOPIC, Shared, ranges

from headrace.wire.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

DESCRIBE_CONFIGS = 32
GROUP_RESOURCE = 32


async def by_heartbeat() -> Shared:
    """The group is made by its first heartbeat, and begins at the end."""
    shared = Shared()
    shared.broker.groups.delete(shared.broker.groups.named(GROUP), 0, shared.service.commit())
    await shared.beat()
    return shared


async def described(shared: Shared) -> dict[str, tuple[str, int]]:
    request = DescribeConfigsRequest((DescribeConfigsResource(GROUP_RESOURCE, GROUP, None),))
    [result] = (await shared.ask(DESCRIBE_CONFIGS, 4, request)).results
    return {each.name: (each.value, each.config_source) for each in result.configs}


def test_a_released_record_comes_again_at_once_five_times() -> None:
    async def scenario() -> None:
        shared = await by_heartbeat()
        await shared.publish(b"x")
        assert ranges(await shared.fetch(0)) == [(0, 0, 1)]
        for deliveries in range(2, 6):
            again = await shared.fetch(deliveries - 1, acks=((0, 0, (RELEASE,)),))
            assert ranges(again) == [(0, 0, deliveries)]
        assert ranges(await shared.fetch(5, acks=((0, 0, (RELEASE,)),))) == []
        [letters] = [
            partition
            for topic in shared.broker.topics.catalog.topics.values()
            if topic.name == f"{TOPIC}.dlq"
            for partition in shared.broker.topics.partitions(topic)
        ]
        assert letters.log.end_offset == 1

    run(scenario)


def test_a_group_of_kafkas_port_shows_kafkas_defaults() -> None:
    async def scenario() -> None:
        shared = await by_heartbeat()
        shown = await described(shared)
        assert shown["share.delivery.count.limit"] == ("5", 5)
        assert shown["headrace.backoff_ms"] == ("0", 5)

    run(scenario)


def test_a_group_of_the_sdk_keeps_its_limit_and_its_backoff() -> None:
    async def scenario() -> None:
        shared = Shared(backoff_ms=60_000)
        await shared.beat()
        await shared.publish(b"x")
        assert ranges(await shared.fetch(0)) == [(0, 0, 1)]
        assert ranges(await shared.fetch(1, acks=((0, 0, (RELEASE,)),))) == []
        shown = await described(shared)
        assert shown["share.delivery.count.limit"] == ("3", 8)
        assert shown["headrace.backoff_ms"] == ("60000", 8)

    run(scenario)
