"""SyncGroup, versions 0 to 5.

The leader hands in everyone's assignment; the others wait for theirs. From version
5 on a member also says which protocol it thinks was chosen, and a wrong one is
INCONSISTENT_GROUP_PROTOCOL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from headrace.engine.coordinator.values import SyncAnswer, SyncRequest
from headrace.server.kafka.door import Call
from headrace.wire.kafka.generated.sync_group_request import SyncGroupRequest
from headrace.wire.kafka.generated.sync_group_response import SyncGroupResponse


def handle(call: Call, request: SyncGroupRequest) -> Coroutine[Any, Any, SyncGroupResponse]:
    waiting = call.door.groups.sync(
        request.group_id,
        SyncRequest(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            request.protocol_type,
            request.protocol_name,
            # The request lies in the connection's buffer, which is used again.
            {each.member_id: bytes(each.assignment) for each in request.assignments},
        ),
    )
    return _answer_later(waiting)


async def _answer_later(waiting: asyncio.Future[SyncAnswer]) -> SyncGroupResponse:
    answer = await waiting
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
