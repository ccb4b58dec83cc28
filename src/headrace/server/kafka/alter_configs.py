"""AlterConfigs, versions 0 to 2: a resource gets exactly these configurations.

What the request does not name goes back to its default, except what is chosen once,
when a topic is made. Clients are better served by IncrementalAlterConfigs, which
changes what it names and nothing else.
"""

from __future__ import annotations

from headrace.engine.commit import Commit
from headrace.server.kafka.config_resources import alter, attempt
from headrace.server.kafka.configs import Given, Settings, Table, given_values
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
    for resource in request.resources:
        responses.append(_alter(call, resource, commit, validate_only=request.validate_only))
        await slices.rest()
    await call.service.finish(commit)
    return AlterConfigsResponse(responses=responses)


def _alter(
    call: Call, resource: AlterConfigsResource, commit: Commit, *, validate_only: bool
) -> AlterConfigsResourceResponse:
    kind, name, configs = resource

    def replaced(
        table: Table[Settings], settings: Settings, given: Given
    ) -> tuple[Settings, Given]:
        values = given_values(configs)
        after = table.given_after(given, values, whole=True)
        return table.replaced(settings, values, given), after

    outcome, _ = attempt(
        lambda: alter(call, kind, name, replaced, commit, validate_only=validate_only)
    )
    return AlterConfigsResourceResponse(outcome.code, outcome.message, kind, name)
