"""Short ways to ask a door for configurations, and to change them."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.unit.server.asking import Asking

from headrace.wire.kafka.generated import alter_configs_request as whole
from headrace.wire.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.kafka.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE = 0, 1


class Shown(NamedTuple):
    value: str | None
    source: int
    is_read_only: bool
    synonyms: list[tuple[str, str | None, int]]


def name_of(given: str) -> str:
    return given if "." in given else given.replace("_", ".")


async def describe(asking: Asking, kind: int, name: str) -> dict[str, Shown]:
    request = DescribeConfigsRequest(
        (DescribeConfigsResource(kind, name, None),), include_synonyms=True
    )
    [result] = (await asking.ask(DESCRIBE_CONFIGS, 4, request)).results
    assert result.error_code == 0, result
    return {
        each.name: Shown(
            each.value, each.config_source, each.read_only, [tuple(s) for s in each.synonyms]
        )
        for each in result.configs
    }


async def alter(
    asking: Asking, kind: int, name: str, *, is_tried: bool = False, **values: Any
) -> tuple[int, str | None]:
    """Names with points, or with underscores for all of them; None deletes. With `is_tried` it
    is validated and not done. Returns the error, if any."""
    configs = tuple(
        AlterableConfig(
            name_of(each),
            DELETE if value is None else SET,
            None if value is None else str(value),
        )
        for each, value in values.items()
    )
    request = IncrementalAlterConfigsRequest((AlterConfigsResource(kind, name, configs),), is_tried)
    [result] = (await asking.ask(INCREMENTAL_ALTER_CONFIGS, 1, request)).responses
    return result.error_code, result.error_message


async def replace(
    asking: Asking, kind: int, name: str, *, is_tried: bool = False, **values: Any
) -> tuple[int, str | None]:
    """As `alter`, of the request that says all that shall be."""
    configs = tuple(
        whole.AlterableConfig(name_of(each), str(value)) for each, value in values.items()
    )
    resource = whole.AlterConfigsResource(kind, name, configs)
    request = whole.AlterConfigsRequest((resource,), is_tried)
    [result] = (await asking.ask(ALTER_CONFIGS, 2, request)).responses
    return result.error_code, result.error_message
