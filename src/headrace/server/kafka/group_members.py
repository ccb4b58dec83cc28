"""Members of groups that came by Kafka's protocols, for whoever looks at a group.

classic     each member's assignment is what the leader made of it: bytes, opened here
consumer    the broker assigned, and knows
streams     the broker assigned; tasks are shown as the partitions that they read
share       the same, and no partition is anybody's own
"""

from __future__ import annotations

from headrace.core.errors import MalformedMessage
from headrace.core.values import GroupMember
from headrace.engine.coordinator.classic import ClassicGroup
from headrace.engine.coordinator.consumer import ConsumerGroup
from headrace.engine.coordinator.streams.group import StreamsGroup
from headrace.engine.coordinator.values import Assignment
from headrace.server.kafka.groups import LiveGroups
from headrace.server.kafka.names import kafka_name
from headrace.server.kafka.share_groups import LiveShares
from headrace.server.service import Service
from headrace.wire.kafka.embedded import decode_assignment

Places = tuple[tuple[str, int], ...]


def members_of(groups: LiveGroups, shares: LiveShares, name: str) -> list[GroupMember]:
    found = groups.registry.find(name)
    if isinstance(found, ClassicGroup):
        return [
            GroupMember(each.member_id, each.client_id, each.client_host, _opened(each.assignment))
            for each in found.describe().members
        ]
    if isinstance(found, ConsumerGroup):
        return [
            GroupMember(
                each.member_id,
                each.client_id,
                each.client_host,
                _named(groups.service, each.assignment),
            )
            for each in found.describe().members
        ]
    if isinstance(found, StreamsGroup):
        return [
            GroupMember(
                each.member_id,
                each.client_id,
                each.client_host,
                tuple(
                    (topic, index)
                    for topic, partitions in found.partitions_read(each.assignment)
                    for index in partitions
                ),
            )
            for each in found.describe().members
        ]
    shared = shares.describe(name)
    if shared is None:
        return []
    return [
        GroupMember(each.member_id, each.client_id, each.client_host)
        for each in shared.describe().members
    ]


def _opened(assignment: bytes) -> Places:
    try:
        message = decode_assignment(assignment).message
    except MalformedMessage:
        # Before the first assignment there is nothing, and others than consumers
        # put there what they like.
        return ()
    return tuple(
        (topic.topic, index) for topic in message.assigned_partitions for index in topic.partitions
    )


def _named(service: Service, assignment: Assignment) -> Places:
    topics = service.broker.topics.catalog.topics_by_id
    return tuple(
        (kafka_name(topics[topic_id]), index)
        for topic_id, partitions in assignment
        if topic_id in topics
        for index in partitions
    )
