"""What requests about configurations may ask, and what their answers hold: of any resource."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.asking import Asking, run
from tests.unit.server.configuring import (
    ALTER_CONFIGS,
    BROKER,
    CLIENT_METRICS,
    DESCRIBE_CONFIGS,
    GROUP,
    INCREMENTAL_ALTER_CONFIGS,
    SET,
    TOPIC,
    describe,
    replace,
)

from headrace.core.settings import TopicSettings
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated import alter_configs_request as whole
from headrace.wire.kafka.generated import incremental_alter_configs_request as incremental
from headrace.wire.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

NAME = "orders"
Config = tuple[str, str | None]
both = pytest.mark.parametrize("api", ["AlterConfigs", "IncrementalAlterConfigs"])


def with_a_topic() -> Asking:
    asking = Asking(MemoryDisk())
    asking.broker.topics.create(NAME, 1, TopicSettings(), asking.service.clock.now_ms())
    return asking


async def codes(asking: Asking, api: str, *resources: tuple[int, str, list[Config]]) -> list[int]:
    """Of a request that sets these."""
    request: Any
    if api == "AlterConfigs":
        key, version = ALTER_CONFIGS, 2
        request = whole.AlterConfigsRequest(
            tuple(
                whole.AlterConfigsResource(
                    kind, name, tuple(whole.AlterableConfig(*each) for each in configs)
                )
                for kind, name, configs in resources
            )
        )
    else:
        key, version = INCREMENTAL_ALTER_CONFIGS, 1
        request = incremental.IncrementalAlterConfigsRequest(
            tuple(
                incremental.AlterConfigsResource(
                    kind,
                    name,
                    tuple(incremental.AlterableConfig(of, SET, value) for of, value in configs),
                )
                for kind, name, configs in resources
            )
        )
    answer = await asking.ask(key, version, request)
    return [each.error_code for each in answer.responses]


@both
def test_a_configuration_is_not_set_to_nothing(api: str) -> None:
    """Whatever else is wrong with it, as with Kafka."""

    async def scenario() -> None:
        asking = with_a_topic()
        asked: list[tuple[int, str, list[Config]]] = [
            (TOPIC, NAME, [("retention.ms", None)]),
            (TOPIC, "absent", [("retention.ms", None)]),
            (GROUP, "g", [("no.such.config", "1"), ("share.auto.offset.reset", None)]),
        ]
        assert await codes(asking, api, *asked) == [Error.INVALID_REQUEST] * 3

    run(scenario)


@both
def test_a_request_names_a_configuration_once(api: str) -> None:
    async def scenario() -> None:
        asking = with_a_topic()
        twice: list[Config] = [("retention.ms", "1000"), ("retention.ms", "2000")]
        assert await codes(asking, api, (TOPIC, NAME, twice)) == [Error.INVALID_REQUEST]
        assert asking.broker.topics.named(NAME).settings == TopicSettings()

    run(scenario)


@both
def test_a_request_names_a_resource_once(api: str) -> None:
    async def scenario() -> None:
        asking = with_a_topic()
        asked: list[tuple[int, str, list[Config]]] = [
            (TOPIC, NAME, [("retention.ms", "1000")]),
            (GROUP, NAME, [("share.delivery.count.limit", "7")]),
            (TOPIC, NAME, [("segment.ms", "100000")]),
        ]
        refused = Error.INVALID_REQUEST
        assert await codes(asking, api, *asked) == [refused, Error.NONE, refused]
        assert asking.broker.topics.named(NAME).settings == TopicSettings()
        assert (await describe(asking, GROUP, NAME))["share.delivery.count.limit"].value == "7"

    run(scenario)


@pytest.mark.parametrize(
    ("kind", "name", "first", "second"),
    [
        (BROKER, "1", {"num_partitions": 5}, {"max_connections": 7}),
        (BROKER, "", {"num_partitions": 5}, {"max_connections": 7}),
        (
            GROUP, "g",
            {"share_delivery_count_limit": 7, "consumer_session_timeout_ms": 46_000},
            {"share_record_lock_duration_ms": 20_000},
        ),
        (CLIENT_METRICS, "s", {"interval_ms": 5_000}, {"metrics": "org.apache"}),
    ],
)  # fmt: skip
def test_all_that_is_given_replaces_what_anything_was_told_before(
    kind: int, name: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())

        async def told() -> dict[str, str]:
            configs = asking.broker.topics.catalog.configs
            return {each.replace(".", "_"): value for each, value in configs[kind, name].items()}

        assert await replace(asking, kind, name, **first) == (0, None)
        assert await told() == {each: str(value) for each, value in first.items()}
        assert await replace(asking, kind, name, is_tried=True, **second) == (0, None)
        assert (await told()).keys() == first.keys()
        assert await replace(asking, kind, name, **second) == (0, None)
        assert await told() == {each: str(value) for each, value in second.items()}
        shown = await describe(asking, kind, name)
        for each, value in second.items():
            assert shown[each.replace("_", ".")].value == str(value)

    run(scenario)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(TOPIC, NAME), (GROUP, "g"), (BROKER, "1"), (BROKER, ""), (CLIENT_METRICS, "s")],
)
def test_a_list_of_no_names_asks_for_all_of_them(kind: int, name: str) -> None:
    async def scenario() -> None:
        asking = with_a_topic()

        async def shown(names: tuple[str, ...] | None) -> list[str]:
            resource = DescribeConfigsResource(kind, name, names)
            request = DescribeConfigsRequest((resource,))
            [result] = (await asking.ask(DESCRIBE_CONFIGS, 4, request)).results
            return [each.name for each in result.configs]

        every = await shown(None)
        assert every and await shown(()) == every
        assert await shown((every[0], "no.such.config")) == every[:1]

    run(scenario)


@pytest.mark.parametrize(
    ("kind", "name", "config", "meaning"),
    [
        (TOPIC, NAME, "retention.ms", "how long records are kept"),
        (TOPIC, NAME, "headrace.dedup", "headrace-dedup-id"),
        (GROUP, "g", "share.delivery.count.limit", "how often a message is delivered"),
        (GROUP, "g", "consumer.session.timeout.ms", "how long a member may be silent"),
        (BROKER, "1", "num.partitions", "topics that do not say"),
    ],
)
def test_what_a_configuration_means_is_told_who_asks_for_it(
    kind: int, name: str, config: str, meaning: str
) -> None:
    async def scenario() -> None:
        asking = with_a_topic()
        resource = DescribeConfigsResource(kind, name, (config,))
        for is_asked in (True, False):
            request = DescribeConfigsRequest((resource,), include_documentation=is_asked)
            [result] = (await asking.ask(DESCRIBE_CONFIGS, 4, request)).results
            [entry] = result.configs
            assert meaning in entry.documentation if is_asked else entry.documentation is None

    run(scenario)


@pytest.mark.parametrize(
    ("address", "is_secret"),
    [("http://user:secret@collector:4318", True), ("http://collector:4318", False)],
)
def test_an_address_with_a_password_in_it_is_not_shown(address: str, is_secret: bool) -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk(), otlp_endpoint=address)
        resource = DescribeConfigsResource(BROKER, "1", ("headrace.otlp_endpoint",))
        request = DescribeConfigsRequest((resource,), include_synonyms=True)
        [result] = (await asking.ask(DESCRIBE_CONFIGS, 4, request)).results
        [entry] = result.configs
        assert entry.is_sensitive == is_secret
        assert entry.value == (None if is_secret else address)
        assert "secret" not in str(result)

    run(scenario)
