"""ConsumerGroupDescribe (KIP-848), versions 0 and 1: groups with assignment by the
broker, with what every member has and what it is going to have.

A group of another kind, or one that does not exist, is GROUP_ID_NOT_FOUND; clients
then ask with DescribeGroups.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from headrace.core.errors import shortened
from headrace.core.steps import Steps
from headrace.engine.coordinator import values
from headrace.engine.coordinator.consumer import ConsumerGroup
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.names import kafka_name
from headrace.server.slices import answer
from headrace.wire.kafka.generated.consumer_group_describe_request import (
    ConsumerGroupDescribeRequest,
)
from headrace.wire.kafka.generated.consumer_group_describe_response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

# Which protocol a member speaks (version 1 on).
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def handle(
    call: Call, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse | Coroutine[Any, Any, ConsumerGroupDescribeResponse]:
    return answer(len(request.group_ids), _describe_all(call, request))


def _describe_all(
    call: Call, request: ConsumerGroupDescribeRequest
) -> Steps[ConsumerGroupDescribeResponse]:
    described = []
    for name in request.group_ids:
        described.append(_describe(call, name))
        yield
    return ConsumerGroupDescribeResponse(groups=described)


def _describe(call: Call, name: str) -> DescribedGroup:
    group = call.door.groups.registry.find(name)
    if not isinstance(group, ConsumerGroup):
        reason = shortened(f"there is no group {name!r} with assignment by the broker")
        return DescribedGroup(Error.GROUP_ID_NOT_FOUND, reason, name)
    state, group_epoch, assignment_epoch, assignor, members = group.describe()
    return DescribedGroup(
        group_id=name,
        group_state=state,
        group_epoch=group_epoch,
        assignment_epoch=assignment_epoch,
        assignor_name=assignor,
        members=tuple(
            Member(
                member.member_id,
                member.instance_id,
                member.rack_id,
                member.member_epoch,
                member.client_id,
                member.client_host,
                member.subscribed_topic_names,
                member.subscribed_topic_regex,
                _assignment(call, member.assignment),
                _assignment(call, member.target_assignment),
                _CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
            )
            for member in members
        ),
    )


def _assignment(call: Call, assignment: values.Assignment) -> Assignment:
    topics = call.broker.topics.catalog.topics_by_id
    return Assignment(
        tuple(
            TopicPartitions(topic_id, kafka_name(topics[topic_id]), partitions)
            for topic_id, partitions in assignment
            # A topic that was deleted leaves with the members' next heartbeats.
            if topic_id in topics
        )
    )
