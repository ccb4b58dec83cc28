"""ListGroups, versions 0 to 5: every group of this node, of whatever kind.

    type        what it is here
    classic     a Kafka group, a stream group of the SDK, or committed offsets alone
    consumer    a group with assignment by the broker (KIP-848)
    share       a queue group
    streams     the instances of a Kafka Streams application (KIP-1071)

From version 4 on the answer can be narrowed down by state, from 5 on by type; both
without regard to case, and a state or type that does not exist matches nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.engine.coordinator.classic import ClassicGroup
from headrace.engine.coordinator.consumer import ConsumerGroup
from headrace.engine.coordinator.streams.group import StreamsGroup
from headrace.server.kafka.door import Call
from headrace.wire.kafka.generated.list_groups_request import ListGroupsRequest
from headrace.wire.kafka.generated.list_groups_response import ListedGroup, ListGroupsResponse


def handle(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return ListGroupsResponse(
        groups=tuple(
            group
            for group in sorted(_groups(call))
            if (not states or group.group_state.lower() in states)
            and (not types or group.group_type in types)
        )
    )


def _groups(call: Call) -> Iterator[ListedGroup]:
    broker = call.broker
    registry = call.door.groups.registry
    queues = broker.topics.catalog.groups
    now_ms = call.service.clock.now_ms()
    seen = set(queues)
    for queue in queues.values():
        if not queue.is_internal:
            group = registry.find(queue.name)
            is_read = broker.groups.members(queue, now_ms) or (group and not group.is_empty())
            yield ListedGroup(queue.name, "share", "Stable" if is_read else "Empty", "share")
    for name in broker.cursors.groups():
        if broker.cursors.members(name):
            seen.add(name)
            yield ListedGroup(name, "consumer", "Stable", "classic")
    for group in registry:
        if group.name in seen:
            continue
        if isinstance(group, ClassicGroup):
            protocol_type = group.describe().protocol_type or "consumer"
            listed = ListedGroup(group.name, protocol_type, group.state, "classic")
        elif isinstance(group, ConsumerGroup):
            listed = ListedGroup(group.name, "consumer", group.state(), "consumer")
        elif isinstance(group, StreamsGroup):
            if not group.is_known():
                continue
            listed = ListedGroup(group.name, "streams", group.state(), "streams")
        else:
            listed = ListedGroup(group.name, "share", group.describe().state, "share")
        seen.add(group.name)
        yield listed
    for name in broker.cursors.groups() - seen:
        yield ListedGroup(name, "consumer", "Empty", "classic")
