"""StreamsGroupDescribe (KIP-1071), version 0: an application's topology, its members, and the
tasks that each has and should have.

A group whose members have left is described until the node is started anew: its topology is
what tools go by that reset its offsets or delete its internal topics.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from headrace.core.errors import shortened
from headrace.core.steps import Steps
from headrace.engine.coordinator.streams import values
from headrace.engine.coordinator.streams.group import StreamsGroup
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.slices import answer
from headrace.wire.kafka.generated.streams_group_describe_request import (
    StreamsGroupDescribeRequest,
)
from headrace.wire.kafka.generated.streams_group_describe_response import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)


def handle(
    call: Call, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse | Coroutine[Any, Any, StreamsGroupDescribeResponse]:
    return answer(len(request.group_ids), _describe_all(call, request))


def _describe_all(
    call: Call, request: StreamsGroupDescribeRequest
) -> Steps[StreamsGroupDescribeResponse]:
    described = []
    for name in request.group_ids:
        described.append(_describe(call, name))
        yield
    return StreamsGroupDescribeResponse(groups=described)


def _describe(call: Call, name: str) -> DescribedGroup:
    group = call.door.groups.registry.find(name)
    if not isinstance(group, StreamsGroup) or not group.is_known():
        reason = shortened(f"there is no streams group {name!r}")
        return DescribedGroup(Error.GROUP_ID_NOT_FOUND, reason, name)
    found = group.describe()
    return DescribedGroup(
        group_id=name,
        group_state=found.state,
        group_epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        topology=None if found.topology is None else _topology(found.topology),
        members=tuple(map(_member, found.members)),
    )


def _topology(topology: values.Topology) -> Topology:
    return Topology(
        topology.epoch,
        tuple(
            Subtopology(
                each.id,
                sorted(each.source_topics),
                sorted(each.repartition_sink_topics),
                _infos(each.changelog_topics),
                _infos(each.repartition_source_topics),
            )
            for each in topology.subtopologies
        ),
    )


def _infos(topics: Sequence[values.InternalTopic]) -> tuple[TopicInfo, ...]:
    return tuple(
        TopicInfo(name, partitions, replication_factor, _pairs(configs))
        for name, partitions, replication_factor, configs in sorted(topics)
    )


def _member(member: values.StreamsMemberDescription) -> Member:
    return Member(
        member.member_id,
        member.member_epoch,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if member.endpoint is None else Endpoint(*member.endpoint),
        client_tags=_pairs(member.client_tags),
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target_assignment),
    )


def _assignment(held: values.Held) -> Assignment:
    return Assignment(_tasks(held.active), _tasks(held.standby))


def _tasks(tasks: frozenset[values.Task]) -> tuple[TaskIds, ...]:
    return tuple(TaskIds(*each) for each in values.by_subtopology(tasks))


def _pairs(pairs: Sequence[tuple[str, str]]) -> tuple[KeyValue, ...]:
    return tuple(KeyValue(*pair) for pair in pairs)
