"""IncrementalAlterConfigs, versions 0 to 1: change what is named, and nothing else.

    0  set        to the value
    1  delete     back to the default; also for a name that is not set, or unknown
    2  append     for lists, of which there are none that can hold several values
    3  subtract   likewise

All changes of one resource hold together, or none does.
"""

from __future__ import annotations

from headrace.core.errors import InvalidArgument
from headrace.engine.commit import Commit
from headrace.server.kafka.config_resources import alter, attempt
from headrace.server.kafka.configs import InvalidConfig, Settings, Table
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


async def handle(
    call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    commit = call.service.commit()
    responses, slices = [], Slices()
    for resource in request.resources:
        responses.append(_alter(call, resource, commit, validate_only=request.validate_only))
        await slices.rest()
    await call.service.finish(commit)
    return IncrementalAlterConfigsResponse(responses=responses)


def _alter(
    call: Call, resource: AlterConfigsResource, commit: Commit, *, validate_only: bool
) -> AlterConfigsResourceResponse:
    kind, name, _ = resource

    def changed(table: Table[Settings], settings: Settings) -> Settings:
        return table.changed(settings, _values(resource))

    outcome, _ = attempt(
        lambda: alter(call, kind, name, changed, commit, validate_only=validate_only)
    )
    return AlterConfigsResourceResponse(outcome.code, outcome.message, kind, name)


def _values(resource: AlterConfigsResource) -> dict[str, str | None]:
    """What each name shall be; None for its default."""
    values: dict[str, str | None] = {}
    for name, operation, value in resource.configs:
        if name in values:
            raise InvalidArgument(f"the request names {name} twice")
        if operation == SET:
            if value is None:
                raise InvalidConfig(f"{name} cannot be set to nothing; delete it instead")
            values[name] = value
        elif operation == DELETE:
            values[name] = None
        else:
            raise InvalidConfig(f"{name} holds one value: it can be set or deleted")
    return values
