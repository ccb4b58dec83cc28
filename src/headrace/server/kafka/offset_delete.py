"""OffsetDelete, version 0: forget what a group has committed for some partitions.

Refused for topics that the group's members read (GROUP_SUBSCRIBED_TO_TOPIC), and
altogether while it has members whose topics cannot be known (NON_EMPTY_GROUP).
What was never committed is gone already: that is no error.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.errors import HeadraceError
from headrace.engine.coordinator.classic import ClassicGroup
from headrace.engine.coordinator.consumer import ConsumerGroup
from headrace.engine.coordinator.streams.group import StreamsGroup
from headrace.engine.cursor import Commitment, Place
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.names import kafka_name, topic_of
from headrace.server.kafka.parts import joined, parts_of
from headrace.server.slices import Slices
from headrace.wire.kafka.generated.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
)
from headrace.wire.kafka.generated.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from headrace.wire.kafka.primitives import ZERO_UUID


async def handle(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    slices = Slices()
    partitions: list[OffsetDeleteResponsePartition] = []
    for part in parts_of(request.topics) if request.topics else ([],):
        subscribed = _subscribed(call, request.group_id)
        if subscribed is Error.GROUP_ID_NOT_FOUND and partitions:
            # The part before had all that was left of it.
            subscribed = frozenset()
        if isinstance(subscribed, Error):
            return OffsetDeleteResponse(error_code=subscribed)
        try:
            partitions += await _delete(call, request.group_id, part, subscribed)
        except (HeadraceError, OSError):
            return OffsetDeleteResponse(error_code=Error.COORDINATOR_NOT_AVAILABLE)
        await slices.rest()
    topics = []
    for topic, codes in joined(request.topics, iter(partitions)):
        topics.append(OffsetDeleteResponseTopic(topic.name, codes))
        await slices.rest()
    return OffsetDeleteResponse(topics=topics)


async def _delete(
    call: Call, group: str, topics: Sequence[OffsetDeleteRequestTopic], subscribed: frozenset[str]
) -> list[OffsetDeleteResponsePartition]:
    service = call.service
    cursors = call.broker.cursors
    positions: dict[Place, Commitment | None] = {}
    answered = [
        each for topic in topics for each in _check_topic(call, topic, subscribed, positions)
    ]
    committed = cursors.of(group)
    positions = {place: None for place in positions if place in committed}
    if positions:
        commit = service.commit()
        commit.data.append(cursors.commit(group, positions, service.clock.now_ms()))
        waiting = call.submit(commit)
        if waiting is not None:
            await waiting
    return answered


def _subscribed(call: Call, name: str) -> frozenset[str] | Error:
    """The topics that members of the group read."""
    groups, cursors = call.door.groups, call.broker.cursors
    group = groups.registry.find(name)
    if groups.is_queue(name) or (group is None and name not in cursors.groups()):
        return Error.GROUP_ID_NOT_FOUND
    if cursors.members(name):
        return frozenset(cursors.topics_of(name))
    if group is None or group.is_empty():
        return frozenset()
    topics = None
    if isinstance(group, ClassicGroup | ConsumerGroup | StreamsGroup):
        topics = group.subscribed_topics()
    return Error.NON_EMPTY_GROUP if topics is None else topics


def _check_topic(
    call: Call,
    wanted: OffsetDeleteRequestTopic,
    subscribed: frozenset[str],
    positions: dict[Place, Commitment | None],
) -> list[OffsetDeleteResponsePartition]:
    try:
        topic = topic_of(call.service, wanted.name, ZERO_UUID)
    except HeadraceError:
        topic = None
    partitions = []
    for (index,) in wanted.partitions:
        if topic is None or not 0 <= index < topic.partitions:
            error = Error.UNKNOWN_TOPIC_OR_PARTITION
        elif kafka_name(topic) in subscribed:
            error = Error.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            error = Error.NONE
            positions[topic.id, index] = None
        partitions.append(OffsetDeleteResponsePartition(index, error))
    return partitions
