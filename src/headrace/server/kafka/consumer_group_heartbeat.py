"""ConsumerGroupHeartbeat (KIP-848), versions 0 and 1.

A member of a group with assignment by the broker joins, lives and leaves with this
one request. From version 1 on it brings its own id and may subscribe by a pattern;
in version 0 it gets an id with its first answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from headrace.core.errors import shortened
from headrace.engine.coordinator import values
from headrace.engine.coordinator.consumer import ConsumerGroup
from headrace.engine.coordinator.values import JOIN_EPOCH, GroupError
from headrace.server.kafka.door import Call
from headrace.server.kafka.heartbeat_interval import interval_ms
from headrace.server.kafka.member_journal import NOT_WRITTEN, is_written
from headrace.wire.kafka.generated.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from headrace.wire.kafka.generated.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


def handle(
    call: Call, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Coroutine[Any, Any, ConsumerGroupHeartbeatResponse]:
    groups = call.door.groups
    member_id = request.member_id
    if not member_id and call.version == 0 and request.member_epoch == JOIN_EPOCH:
        member_id = groups.new_id()
    names, owned = request.subscribed_topic_names, request.topic_partitions
    answer, waiting = groups.consumer_heartbeat(
        request.group_id,
        values.HeartbeatRequest(
            member_id,
            request.member_epoch,
            request.instance_id,
            request.rack_id,
            request.rebalance_timeout_ms,
            None if names is None else tuple(names),
            request.subscribed_topic_regex,
            request.server_assignor,
            None
            if owned is None
            else tuple((topic.topic_id, tuple(topic.partitions)) for topic in owned),
            call.client_id,
            call.connection.peer_host,
        ),
    )
    assignment = None
    if answer.assignment is not None:
        assignment = Assignment(
            tuple(TopicPartitions(topic_id, parts) for topic_id, parts in answer.assignment)
        )
    response = ConsumerGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=None if answer.message is None else shortened(answer.message),
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=_interval_ms(call, request.group_id),
        assignment=assignment,
    )
    return response if waiting is None else _answer_later(response, waiting)


async def _answer_later(
    response: ConsumerGroupHeartbeatResponse, waiting: asyncio.Future[None]
) -> ConsumerGroupHeartbeatResponse:
    if await is_written(waiting):
        return response
    return response._replace(
        error_code=GroupError.COORDINATOR_NOT_AVAILABLE,
        error_message=NOT_WRITTEN,
        assignment=None,
    )


def _interval_ms(call: Call, name: str) -> int:
    group = call.door.groups.registry.find(name)
    return interval_ms(
        call,
        name,
        "consumer.heartbeat.interval.ms",
        call.door.live.rules(name).consumer_heartbeat_interval_ms,
        is_settled=not isinstance(group, ConsumerGroup) or group.state() in ("Stable", "Empty"),
    )
