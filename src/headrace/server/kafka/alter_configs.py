"""AlterConfigs, versions 0 to 2: a resource gets exactly these configurations.

What the request does not name goes back to its default, except what is chosen once,
when a topic is made. Clients are better served by IncrementalAlterConfigs, which
changes what it names and nothing else.
"""

from __future__ import annotations

from collections.abc import Set

from headrace.server.kafka.config_resources import alter, attempt, check_request, named_twice
from headrace.server.kafka.configs import Changeable, Given, Values, given_values
from headrace.server.kafka.door import Call
from headrace.server.slices import Slices
from headrace.wire.kafka.generated.alter_configs_request import (
    AlterConfigsRequest,
    AlterConfigsResource,
)
from headrace.wire.kafka.generated.alter_configs_response import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    commit = call.service.commit()
    responses, slices = [], Slices()
    twice = named_twice(request.resources)
    for resource in request.resources:
        responses.append(_alter(call, resource, twice, validate_only=request.validate_only))
        await slices.rest()
    await call.finish(commit)
    return AlterConfigsResponse(responses=responses)


def _alter(
    call: Call,
    resource: AlterConfigsResource,
    twice: Set[tuple[int, str]],
    *,
    validate_only: bool,
) -> AlterConfigsResourceResponse:
    kind, name, configs = resource

    def replaced(table: Changeable[Values], settings: Values, given: Given) -> tuple[Values, Given]:
        values = given_values(configs)
        after = table.given_after(given, values, whole=True)
        return table.replaced(settings, values, given), after

    def work() -> None:
        check_request(kind, name, [(of, value is None) for of, value in configs], twice)
        alter(call, kind, name, replaced, validate_only=validate_only)

    outcome, _ = attempt(work)
    return AlterConfigsResourceResponse(outcome.code, outcome.message, kind, name)
