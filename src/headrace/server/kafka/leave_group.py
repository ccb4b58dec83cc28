"""LeaveGroup, versions 0 to 5.

Up to version 2 one member leaves and the answer has one code; from 3 on several can
be named, also by their instance id alone, and each has a code.
"""

from __future__ import annotations

from headrace.engine.coordinator.values import GroupError
from headrace.server.kafka.door import Call
from headrace.wire.kafka.generated.leave_group_request import LeaveGroupRequest
from headrace.wire.kafka.generated.leave_group_response import LeaveGroupResponse, MemberResponse


def handle(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if call.version < 3:
        errors = call.door.groups.leave(request.group_id, [(request.member_id, None)])
        return LeaveGroupResponse(
            error_code=errors if isinstance(errors, GroupError) else errors[0]
        )
    members = [(member.member_id, member.group_instance_id) for member in request.members]
    errors = call.door.groups.leave(request.group_id, members)
    if isinstance(errors, GroupError):
        if errors is not GroupError.UNKNOWN_MEMBER_ID:
            return LeaveGroupResponse(error_code=errors)
        errors = (errors,) * len(members)
    return LeaveGroupResponse(
        members=tuple(
            MemberResponse(member_id, instance_id, error)
            for (member_id, instance_id), error in zip(members, errors, strict=True)
        )
    )
