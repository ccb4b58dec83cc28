"""StreamsGroupHeartbeat (KIP-1071), version 0: a member of a Kafka Streams application joins
(epoch 0), lives and leaves (-1).

    with the first one   the application's topology, its process and where it answers queries
    answered with        its tasks, where they changed, and what keeps the group from working

Internal topics that are missing are made here, with the configuration that the application
asks for, before the answer goes out. It still says that they were missing, as Kafka's does,
and the next heartbeat finds them; where one could not be made, it says why.

What the wire has a place for and Kafka 4.3 does not do is refused as it refuses it: static
members, warm-up tasks, offsets of tasks, source topics by regular expression.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.errors import InvalidName, shortened
from headrace.core.values import check_name
from headrace.engine.catalog import RESERVED_TOPICS
from headrace.engine.coordinator.streams import values
from headrace.engine.coordinator.streams.group import StreamsGroup
from headrace.engine.coordinator.streams.values import Status
from headrace.engine.coordinator.values import STATIC_LEAVE_EPOCH, GroupError
from headrace.server.kafka.create_topics import DEFAULT, create_all
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.heartbeat_interval import interval_ms
from headrace.server.kafka.member_journal import NOT_WRITTEN, is_written
from headrace.wire.kafka.generated import streams_group_heartbeat_request as asked
from headrace.wire.kafka.generated import streams_group_heartbeat_response as said
from headrace.wire.kafka.generated.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

# How many reasons an answer gives for topics that could not be made.
REASONS_MAX = 3
# States in which no member waits for another member's heartbeat. After one, a group is only
# still to be assigned when that has to wait for a while.
_SETTLED = ("Stable", "Empty", "Assigning")


async def handle(
    call: Call, request: asked.StreamsGroupHeartbeatRequest
) -> said.StreamsGroupHeartbeatResponse:
    refusal = _refuse(request)
    if refusal is not None:
        code, reason = refusal
        return said.StreamsGroupHeartbeatResponse(
            error_code=code,
            error_message=shortened(reason),
            member_id=request.member_id,
            member_epoch=request.member_epoch,
        )
    answer, waiting = call.door.groups.streams_heartbeat(request.group_id, _request(call, request))
    failed = await _make(call, answer.missing) if answer.missing else ""
    if waiting is not None and not await is_written(waiting):
        answer = values.StreamsAnswer(
            GroupError.COORDINATOR_NOT_AVAILABLE,
            NOT_WRITTEN,
            request.member_id,
            request.member_epoch,
        )
    held = answer.assignment
    return said.StreamsGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=None if answer.message is None else shortened(answer.message),
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=_interval_ms(call, request.group_id),
        status=tuple(
            said.Status(
                status, detail + failed if status is Status.MISSING_INTERNAL_TOPICS else detail
            )
            for status, detail in answer.statuses
        ),
        active_tasks=None if held is None else _tasks(held.active),
        standby_tasks=None if held is None else _tasks(held.standby),
        warmup_tasks=None if held is None else (),
        endpoint_information_epoch=answer.endpoint_epoch,
        partitions_by_user_endpoint=_endpoints(answer.endpoints),
    )


def _refuse(request: asked.StreamsGroupHeartbeatRequest) -> tuple[int, str] | None:
    """What only the wire can see: a code and the reason, or None if all is well."""
    if request.instance_id is not None or request.member_epoch == STATIC_LEAVE_EPOCH:
        return Error.INVALID_REQUEST, "Static membership is not supported."
    if request.task_offsets is not None or request.task_end_offsets is not None:
        return Error.INVALID_REQUEST, "Offsets of tasks are not supported."
    if request.warmup_tasks:
        return Error.INVALID_REQUEST, "Warm-up tasks are not supported."
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(each is None for each in tasks) and any(each is not None for each in tasks):
        return Error.INVALID_REQUEST, "If one kind of tasks is given, all have to be."
    subtopologies = request.topology.subtopologies if request.topology is not None else ()
    for each in subtopologies:
        if each.source_topic_regex or any(group[1] for group in each.copartition_groups):
            return (
                Error.INVALID_REQUEST,
                "Regular expressions for source topics are not supported.",
            )
        infos = (*each.repartition_source_topics, *each.state_changelog_topics)
        named = (*each.source_topics, *each.repartition_sink_topics, *(info[0] for info in infos))
        for name in named:
            try:
                check_name("topic", name)
            except InvalidName as error:
                return Error.STREAMS_INVALID_TOPOLOGY, str(error)
            if name in RESERVED_TOPICS:
                return (
                    Error.STREAMS_INVALID_TOPOLOGY,
                    f"The topic {name} is the node's own: no application reads or writes it.",
                )
    return None


# The request, as the coordinator sees it.


def _request(call: Call, request: asked.StreamsGroupHeartbeatRequest) -> values.StreamsRequest:
    owned = None
    if request.active_tasks is not None and request.standby_tasks is not None:
        owned = values.Held(_held(request.active_tasks), _held(request.standby_tasks))
    endpoint, tags = request.user_endpoint, request.client_tags
    return values.StreamsRequest(
        request.member_id,
        request.member_epoch,
        request.endpoint_information_epoch,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if request.topology is None else _topology(request.topology),
        owned,
        request.process_id,
        None if endpoint is None else values.Endpoint(*endpoint),
        None if tags is None else tuple((tag.key, tag.value) for tag in tags),
        request.shutdown_application,
        call.client_id,
        call.connection.peer_host,
    )


def _held(tasks: Sequence[asked.TaskIds]) -> frozenset[values.Task]:
    return values.one_by_one(tuple((each[0], tuple(each[1])) for each in tasks))


def _topology(topology: asked.Topology) -> values.Topology:
    return values.Topology(
        topology.epoch,
        tuple(
            values.Subtopology(
                each.subtopology_id,
                tuple(each.source_topics),
                tuple(each.repartition_sink_topics),
                tuple(map(_internal_topic, each.repartition_source_topics)),
                tuple(map(_internal_topic, each.state_changelog_topics)),
                tuple(
                    values.CopartitionGroup(
                        tuple(group.source_topics), tuple(group.repartition_source_topics)
                    )
                    for group in each.copartition_groups
                ),
            )
            for each in sorted(topology.subtopologies, key=lambda each: each.subtopology_id)
        ),
    )


def _internal_topic(info: asked.TopicInfo) -> values.InternalTopic:
    return values.InternalTopic(
        info.name,
        info.partitions,
        info.replication_factor,
        tuple(sorted((config.key, config.value) for config in info.topic_configs)),
    )


# The answer.


def _tasks(tasks: frozenset[values.Task]) -> tuple[said.TaskIds, ...]:
    return tuple(said.TaskIds(*each) for each in values.by_subtopology(tasks))


def _endpoints(
    endpoints: Sequence[values.EndpointPartitions] | None,
) -> tuple[said.EndpointToPartitions, ...] | None:
    if endpoints is None:
        return None
    return tuple(
        said.EndpointToPartitions(
            said.Endpoint(*endpoint),
            tuple(said.TopicPartition(*each) for each in active),
            tuple(said.TopicPartition(*each) for each in standby),
        )
        for endpoint, active, standby in endpoints
    )


async def _make(call: Call, missing: Sequence[values.InternalTopic]) -> str:
    """Make internal topics. Returns what to add to the status: why some could not be made."""
    results = await create_all(
        call,
        CreateTopicsRequest(
            tuple(
                CreatableTopic(
                    topic.name,
                    topic.partitions,
                    topic.replication_factor or DEFAULT,
                    configs=tuple(CreatableTopicConfig(*config) for config in topic.configs),
                )
                for topic in missing
            )
        ),
    )
    # Another member may have been quicker.
    fine = (Error.NONE, Error.TOPIC_ALREADY_EXISTS)
    failed = [f"{each.name} ({each.error_message})" for each in results if each[2] not in fine]
    if not failed:
        return ""
    more = len(failed) - REASONS_MAX
    shown = ", ".join(failed[:REASONS_MAX]) + (f", and {more} more" if more > 0 else "")
    return f"; Creation failed: {shortened(shown)}."


def _interval_ms(call: Call, name: str) -> int:
    group = call.door.groups.registry.find(name)
    chosen_ms = call.door.live.rules(name).streams_heartbeat_interval_ms
    if isinstance(group, StreamsGroup) and group.lacks_source_topics():
        # A client gives up after two intervals without its topics.
        return chosen_ms
    return interval_ms(
        call,
        name,
        "streams.heartbeat.interval.ms",
        chosen_ms,
        is_settled=not isinstance(group, StreamsGroup) or group.state() in _SETTLED,
    )
