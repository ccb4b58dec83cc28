"""DescribeGroups, versions 0 to 6: groups of the classic protocol, and stream groups
whose members are inside this process.

A group that has nothing but committed offsets is Empty. One that does not exist is
Dead, as Kafka has always said, and from version 6 on also GROUP_ID_NOT_FOUND.
Groups with assignment by the broker are described by ConsumerGroupDescribe, and
queue groups by ShareGroupDescribe.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from headrace.core.errors import shortened
from headrace.core.steps import Steps
from headrace.engine.coordinator.classic import ClassicGroup
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.slices import answer
from headrace.wire.kafka.generated import (
    consumer_protocol_assignment,
    consumer_protocol_subscription,
)
from headrace.wire.kafka.generated.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
)
from headrace.wire.kafka.generated.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from headrace.wire.kafka.generated.describe_groups_request import DescribeGroupsRequest
from headrace.wire.kafka.generated.describe_groups_response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)

# What a consumer's metadata begins with: the version of the embedded protocol.
_VERSION_0 = b"\x00\x00"


def handle(
    call: Call, request: DescribeGroupsRequest
) -> DescribeGroupsResponse | Coroutine[Any, Any, DescribeGroupsResponse]:
    return answer(len(request.groups), _describe_all(call, request))


def _describe_all(call: Call, request: DescribeGroupsRequest) -> Steps[DescribeGroupsResponse]:
    described = []
    for name in request.groups:
        described.append(_describe(call, name))
        yield
    return DescribeGroupsResponse(groups=described)


def _describe(call: Call, name: str) -> DescribedGroup:
    groups, cursors = call.door.groups, call.broker.cursors
    group = groups.registry.find(name)
    if groups.is_queue(name):
        return _dead(call, name, shortened(f"the group {name!r} is a queue"))
    if cursors.members(name):
        return _describe_embedded(call, name)
    if isinstance(group, ClassicGroup):
        state, _, protocol_type, protocol, members = group.describe()
        return DescribedGroup(
            group_id=name,
            group_state=state,
            protocol_type=protocol_type or "consumer",
            protocol_data=protocol,
            members=tuple(DescribedGroupMember(*member) for member in members),
        )
    if group is not None and not group.is_empty():
        return _dead(call, name, shortened(f"the group {name!r} is not of the classic protocol"))
    if name in cursors.groups():
        return DescribedGroup(group_id=name, group_state="Empty", protocol_type="consumer")
    return _dead(call, name, shortened(f"there is no group {name!r}"))


def _describe_embedded(call: Call, name: str) -> DescribedGroup:
    """Members inside this process, written as a consumer would have."""
    cursors = call.broker.cursors
    members = []
    for member in cursors.members(name):
        _, assigned = cursors.membership(name, member)
        by_topic: dict[str, list[int]] = {}
        for topic, index in assigned:
            by_topic.setdefault(topic, []).append(index)
        subscription = ConsumerProtocolSubscription(topics=tuple(cursors.topics_of(name)))
        assignment = ConsumerProtocolAssignment(
            tuple(
                consumer_protocol_assignment.TopicPartition(topic, tuple(indexes))
                for topic, indexes in by_topic.items()
            )
        )
        metadata = consumer_protocol_subscription.ENCODERS[0](subscription)
        partitions = consumer_protocol_assignment.ENCODERS[0](assignment)
        members.append(
            DescribedGroupMember(
                member,
                client_id="headrace",
                client_host="localhost",
                member_metadata=b"".join((_VERSION_0, *metadata)),
                member_assignment=b"".join((_VERSION_0, *partitions)),
            )
        )
    return DescribedGroup(
        group_id=name,
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=tuple(members),
    )


def _dead(call: Call, name: str, reason: str) -> DescribedGroup:
    if call.version < 6:
        return DescribedGroup(group_id=name, group_state="Dead")
    return DescribedGroup(Error.GROUP_ID_NOT_FOUND, reason, name, "Dead")
