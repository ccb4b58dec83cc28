"""JoinGroup, versions 0 to 9.

    from    difference
    1       the rebalance timeout is given; before, it is the session timeout
    4       a new member is sent back with an id first (MEMBER_ID_REQUIRED)
    5       static members, by group_instance_id
    9       a leader can be told not to assign (skip_assignment)

The answer waits until every member has joined or the rebalance timeout is over.
Only the leader is told the members' metadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from headrace.core import limits
from headrace.engine.coordinator.values import GroupError, JoinAnswer, JoinRequest
from headrace.server.kafka.door import Call
from headrace.wire.kafka.generated.join_group_request import JoinGroupRequest
from headrace.wire.kafka.generated.join_group_response import (
    JoinGroupResponse,
    JoinGroupResponseMember,
)


def handle(
    call: Call, request: JoinGroupRequest
) -> JoinGroupResponse | Coroutine[Any, Any, JoinGroupResponse]:
    groups = call.door.groups
    if sum(len(protocol.metadata) for protocol in request.protocols) > limits.MEMBER_BYTES_MAX:
        return _response(call, JoinAnswer(GroupError.INVALID_REQUEST, request.member_id))
    has_timeout = request.rebalance_timeout_ms >= 0
    name = call.client_id if request.group_instance_id is None else request.group_instance_id
    answer = groups.join(
        request.group_id,
        JoinRequest(
            request.member_id,
            request.group_instance_id,
            call.client_id,
            call.connection.peer_host,
            request.protocol_type,
            # The request lies in the connection's buffer, which is used again.
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
            request.session_timeout_ms,
            request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
            requires_known_member_id=call.version >= 4,
            # A name may be as long as an id can be.
            new_member_id=f"{name[: limits.NAME_CHARACTERS_MAX]}-{groups.new_id()}",
            can_skip_assignment=call.version >= 9,
        ),
    )
    return _answer_later(call, answer)


async def _answer_later(call: Call, answer: asyncio.Future[JoinAnswer]) -> JoinGroupResponse:
    return _response(call, await answer)


def _response(call: Call, answer: JoinAnswer) -> JoinGroupResponse:
    protocol_name = answer.protocol_name
    if protocol_name is None and call.version < 7:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=tuple(JoinGroupResponseMember(*member) for member in answer.members),
    )
