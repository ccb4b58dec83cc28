"""ShareGroupHeartbeat, version 1: a member joins (epoch 0), lives, leaves (-1)."""

from __future__ import annotations

from headrace.core.errors import shortened
from headrace.engine.coordinator.values import ShareRequest
from headrace.server.kafka.door import Call
from headrace.wire.kafka.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.kafka.generated.share_group_heartbeat_response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)


async def handle(call: Call, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    names = request.subscribed_topic_names
    answer = await call.door.shares.heartbeat(
        request.group_id,
        ShareRequest(
            request.member_id,
            request.member_epoch,
            request.rack_id,
            None if names is None else tuple(names),
            call.client_id,
            call.connection.peer_host,
        ),
        call.connection,
    )
    assignment = None
    if answer.assignment is not None:
        assignment = Assignment(
            tuple(TopicPartitions(topic_id, parts) for topic_id, parts in answer.assignment)
        )
    return ShareGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=None if answer.message is None else shortened(answer.message),
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )
