"""ShareGroupDescribe, version 1: who is in a share group, and asks which partitions."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from headrace.core.errors import shortened
from headrace.core.steps import Steps
from headrace.engine.coordinator.values import ShareMemberDescription
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.slices import answer
from headrace.wire.kafka.generated.share_group_describe_request import ShareGroupDescribeRequest
from headrace.wire.kafka.generated.share_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)


def handle(
    call: Call, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse | Coroutine[Any, Any, ShareGroupDescribeResponse]:
    return answer(len(request.group_ids), _describe_all(call, request))


def _describe_all(
    call: Call, request: ShareGroupDescribeRequest
) -> Steps[ShareGroupDescribeResponse]:
    described = []
    for name in request.group_ids:
        described.append(_describe(call, name))
        yield
    return ShareGroupDescribeResponse(groups=described)


def _describe(call: Call, name: str) -> DescribedGroup:
    live = call.door.shares.describe(name)
    if live is None:
        if call.door.shares.group(name) is None:
            return DescribedGroup(
                Error.GROUP_ID_NOT_FOUND, shortened(f"there is no share group {name!r}"), name
            )
        return DescribedGroup(group_id=name, group_state="Empty", assignor_name="simple")
    found = live.describe()
    return DescribedGroup(
        group_id=name,
        group_state=found.state,
        group_epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        assignor_name=found.assignor,
        members=tuple(_member(call, member) for member in found.members),
    )


def _member(call: Call, member: ShareMemberDescription) -> Member:
    by_id = call.broker.topics.catalog.topics_by_id
    return Member(
        member.member_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        member.subscribed_topic_names,
        Assignment(
            tuple(
                TopicPartitions(topic_id, by_id[topic_id].name, partitions)
                for topic_id, partitions in member.assignment
                if topic_id in by_id
            )
        ),
    )
