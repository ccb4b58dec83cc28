"""FindCoordinator, versions 0 to 6: who looks after a group or a transaction.

A node alone looks after everything: groups (0), transactions (1) and the state of
share groups (2). Versions up to 3 ask for one key, later ones for many.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from headrace.core.steps import Steps
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.nodes import address_for
from headrace.server.slices import answer
from headrace.wire.kafka.generated.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.kafka.generated.find_coordinator_response import (
    Coordinator,
    FindCoordinatorResponse,
)

_KEY_TYPES = (0, 1, 2)
_MANY_KEYS_FIRST = 4


def handle(
    call: Call, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    if call.version >= _MANY_KEYS_FIRST:
        return answer(len(request.coordinator_keys), _find_all(call, request))
    _, node_id, host, port, code, message = _find(call, request.key, request.key_type)
    return FindCoordinatorResponse(0, code, message, node_id, host, port)


def _find_all(call: Call, request: FindCoordinatorRequest) -> Steps[FindCoordinatorResponse]:
    found = []
    for key in request.coordinator_keys:
        found.append(_find(call, key, request.key_type))
        yield
    return FindCoordinatorResponse(coordinators=found)


def _find(call: Call, key: str, key_type: int) -> Coordinator:
    if key_type not in _KEY_TYPES:
        return Coordinator(
            key, -1, "", -1, Error.INVALID_REQUEST, f"there is no kind of key {key_type}"
        )
    address = address_for(call)
    return Coordinator(key, call.service.node_id, address.host, address.port, Error.NONE, None)
