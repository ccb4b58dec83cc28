"""IncrementalAlterConfigs, versions 0 to 1: change what is named, and nothing else.

    0  set        to the value
    1  delete     back to the default; also for a name that is not set, or unknown
    2  append     to a list, what is not in it
    3  subtract   from a list; one that would be empty may be what cannot be

All changes of one resource hold together, or none does.
"""

from __future__ import annotations

from collections.abc import Set

from headrace.core.errors import InvalidArgument
from headrace.server.kafka.config_resources import alter, attempt, check_request, named_twice
from headrace.server.kafka.configs import Changeable, Given, InvalidConfig, Values
from headrace.server.kafka.door import Call
from headrace.server.slices import Slices
from headrace.wire.kafka.generated.incremental_alter_configs_request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.kafka.generated.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3


async def handle(
    call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    commit = call.service.commit()
    responses, slices = [], Slices()
    twice = named_twice(request.resources)
    for resource in request.resources:
        responses.append(_alter(call, resource, twice, validate_only=request.validate_only))
        await slices.rest()
    await call.finish(commit)
    return IncrementalAlterConfigsResponse(responses=responses)


def _alter(
    call: Call,
    resource: AlterConfigsResource,
    twice: Set[tuple[int, str]],
    *,
    validate_only: bool,
) -> AlterConfigsResourceResponse:
    kind, name, configs = resource

    def changed(table: Changeable[Values], settings: Values, given: Given) -> tuple[Values, Given]:
        values = _values(resource, table, settings, given)
        return table.changed(settings, values, given=given), table.given_after(given, values)

    def work() -> None:
        lacking = [(of, operation != DELETE and value is None) for of, operation, value in configs]
        check_request(kind, name, lacking, twice)
        alter(call, kind, name, changed, validate_only=validate_only)

    outcome, _ = attempt(work)
    return AlterConfigsResourceResponse(outcome.code, outcome.message, kind, name)


def _values(
    resource: AlterConfigsResource, table: Changeable[Values], settings: Values, given: Given
) -> dict[str, str | None]:
    """What each name shall be; None for its default."""
    values: dict[str, str | None] = {}
    for name, operation, value in resource.configs:
        if operation == DELETE or value is None:
            values[name] = None
        elif operation == SET:
            values[name] = value
        elif operation in (APPEND, SUBTRACT):
            if not table.is_list(name):
                raise InvalidConfig(f"{name} is no list: it can be set or deleted")
            shown = table.shown(name, settings, given) or ""
            values[name] = _listed(shown, value, is_more=operation == APPEND)
        else:
            raise InvalidArgument(f"{name}: there is no operation {operation}")
    return values


def _listed(shown: str, value: str, *, is_more: bool) -> str:
    """The list with these elements, each once, or without them."""
    parts = [part.strip() for part in value.split(",")]
    before = [part.strip() for part in shown.split(",") if part.strip()]
    if is_more:
        return ",".join(dict.fromkeys(before + parts))
    return ",".join(part for part in before if part not in parts)
