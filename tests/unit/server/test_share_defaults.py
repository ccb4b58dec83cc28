"""What a share group begins with: what Kafka's begin with on its port, ours in the SDK."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.asking import run
from tests.unit.server.configuring import BROKER, alter
from tests.unit.server.configuring import GROUP as CONFIGURED_GROUP
from tests.unit.server.share_door import GROUP, RELEASE, TOPIC, Shared, ranges

from headrace.wire.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

DESCRIBE_CONFIGS = 32
GROUP_RESOURCE = 32


async def by_heartbeat(**node: Any) -> Shared:
    """The group is made by its first heartbeat, and begins at the end unless the node's
    settings say otherwise."""
    shared = Shared(node=node)
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


@pytest.mark.parametrize(
    ("setting", "value", "config"),
    [
        ("share_start", "earliest", "share.auto.offset.reset"),
        ("share_start", "by_duration:PT1H", "share.auto.offset.reset"),
        ("share_isolation", "read_committed", "share.isolation.level"),
        ("share_deliveries_max", 7, "share.delivery.count.limit"),
        ("share_lock_ms", 20_000, "share.record.lock.duration.ms"),
        ("share_partition_locks_max", 100, "share.partition.max.record.locks"),
    ],
)
@pytest.mark.parametrize("is_live", [False, True])
def test_what_a_group_is_not_told_is_the_nodes_to_say(
    setting: str, value: int | str, config: str, is_live: bool
) -> None:
    async def scenario() -> None:
        shared = await by_heartbeat(**({} if is_live else {setting: value}))
        if is_live:
            name = {
                "share_start": "headrace.share_start",
                "share_isolation": "headrace.share_isolation",
            }.get(setting, f"group.{config}")
            values: dict[str, Any] = {name: value}
            assert await alter(shared, BROKER, "1", **values) == (0, None)
            shared.broker.groups.delete(
                shared.broker.groups.named(GROUP), 0, shared.service.commit()
            )
            await shared.beat("m2")
        assert (await described(shared))[config] == (str(value), 5)
        # What the group is told comes first.
        others = {
            "share.auto.offset.reset": "latest",
            "share.isolation.level": "read_uncommitted",
        }
        told: dict[str, Any] = {config: others.get(config, 101)}
        assert await alter(shared, CONFIGURED_GROUP, GROUP, **told) == (0, None)
        assert (await described(shared))[config] == (str(told[config]), 8)
        told[config] = None
        assert await alter(shared, CONFIGURED_GROUP, GROUP, **told) == (0, None)
        assert (await described(shared))[config] == (str(value), 5)

    run(scenario)


def test_a_new_group_begins_where_the_node_says() -> None:
    async def scenario() -> None:
        shared = Shared(node={"share_start": "earliest"})
        shared.broker.groups.delete(shared.broker.groups.named(GROUP), 0, shared.service.commit())
        await shared.publish(b"x")
        await shared.beat()
        assert ranges(await shared.fetch(0)) == [(0, 0, 1)]

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
