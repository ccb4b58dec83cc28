"""Heartbeat, versions 0 to 4: a member of a classic group is alive.

REBALANCE_IN_PROGRESS asks it to join again. After a restart of the node every
member hears UNKNOWN_MEMBER_ID once, and joins as a new one.
"""

from __future__ import annotations

from headrace.server.kafka.door import Call
from headrace.wire.kafka.generated.heartbeat_request import HeartbeatRequest
from headrace.wire.kafka.generated.heartbeat_response import HeartbeatResponse


def handle(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    error = call.door.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=error)
