"""DeleteGroups, versions 0 to 2: groups without members, and what they committed.

A queue group goes the same way, with all that it owed. Answered when it is on disk
that the groups are gone.
"""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.engine.commit import Commit
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.slices import Slices
from headrace.wire.kafka.generated.delete_groups_request import DeleteGroupsRequest
from headrace.wire.kafka.generated.delete_groups_response import (
    DeletableGroupResult,
    DeleteGroupsResponse,
)


async def handle(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    commit = call.service.commit()
    results, slices = [], Slices()
    for name in request.groups_names:
        try:
            error = _delete(call, name, commit)
        except HeadraceError as refusal:
            error = code_of(refusal)
        except OSError:
            error = Error.COORDINATOR_NOT_AVAILABLE
        results.append(DeletableGroupResult(name, error))
        await slices.rest()
    try:
        waiting = call.submit(commit)
        if waiting is not None:
            await waiting
    except HeadraceError:
        results = [
            result._replace(error_code=result.error_code or Error.COORDINATOR_NOT_AVAILABLE)
            for result in results
        ]
    return DeleteGroupsResponse(results=tuple(results))


def _delete(call: Call, name: str, commit: Commit) -> Error:
    groups, broker = call.door.groups, call.broker
    now_ms = call.service.clock.now_ms()
    group = groups.registry.find(name)
    if group is not None and not group.is_empty():
        return Error.NON_EMPTY_GROUP
    queue = broker.topics.catalog.groups.get(name)
    if queue is not None:
        if queue.is_internal:
            return Error.GROUP_ID_NOT_FOUND
        if broker.groups.members(queue, now_ms):
            return Error.NON_EMPTY_GROUP
        broker.groups.delete(queue, now_ms, commit)
        groups.delete(name)
        return Error.NONE
    if group is None and name not in broker.cursors.groups():
        return Error.GROUP_ID_NOT_FOUND
    written = broker.cursors.forget(name, now_ms)
    if written is not None:
        commit.data.append(written)
    groups.delete(name)
    return Error.NONE
