"""OffsetFetch, versions 1 to 10.

    from    difference
    2       no topics means everything that the group has committed
    8       several groups at once
    9       a member of a consumer group says its epoch, and a stale one is told so
    10      topics are named by their ids

What was never committed has the offset -1, which is no error. Only what is on disk
and decided is shown. Whoever says `require_stable` (from 7 on) is told
UNSTABLE_OFFSET_COMMIT of a position that a transaction is about to change.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from headrace.core.errors import HeadraceError
from headrace.core.steps import Steps
from headrace.engine.catalog import Topic
from headrace.engine.cursor import Place
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.names import kafka_name, topic_of
from headrace.server.slices import answer
from headrace.wire.kafka.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.kafka.generated.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)


class _Topic(Protocol):
    """What topics of both forms of the request have."""

    @property
    def partition_indexes(self) -> Sequence[int]: ...


def handle(
    call: Call, request: OffsetFetchRequest
) -> OffsetFetchResponse | Coroutine[Any, Any, OffsetFetchResponse]:
    return answer(_size(call, request), _answer(call, request))


def _size(call: Call, request: OffsetFetchRequest) -> int:
    """About how many positions are asked for."""
    if call.version < 8:
        return _count(call, request.group_id, request.topics)
    return sum(1 + _count(call, group.group_id, group.topics) for group in request.groups)


def _count(call: Call, group: str, topics: Sequence[_Topic] | None) -> int:
    if topics is None:
        return call.broker.cursors.count(group)
    return len(topics) + sum(len(topic.partition_indexes) for topic in topics)


def _answer(call: Call, request: OffsetFetchRequest) -> Steps[OffsetFetchResponse]:
    if call.version >= 8:
        groups = []
        for group in request.groups:
            groups.append((yield from _fetch(call, group, request.require_stable)))
            yield
        return OffsetFetchResponse(groups=groups)
    return (yield from _fetch_of_one(call, request))


def _fetch_of_one(call: Call, request: OffsetFetchRequest) -> Steps[OffsetFetchResponse]:
    """Up to version 7 a request is about one group."""
    wanted = None
    if request.topics is not None:
        wanted = []
        for topic in request.topics:
            wanted.append(
                OffsetFetchRequestTopics(topic.name, partition_indexes=topic.partition_indexes)
            )
            yield
    found = yield from _fetch(
        call, OffsetFetchRequestGroup(request.group_id, topics=wanted), request.require_stable
    )
    answered = found.topics
    if found.error_code and wanted is not None:
        # Version 1 has no code for the whole, so every partition has it.
        answered = yield from _all_refused(wanted, found.error_code)
    topics = []
    for name, _, held in answered:
        partitions = []
        for partition in held:
            partitions.append(OffsetFetchResponsePartition(*partition))
            yield
        topics.append(OffsetFetchResponseTopic(name, partitions))
        yield
    return OffsetFetchResponse(topics=topics, error_code=found.error_code)


def _all_refused(
    wanted: Sequence[OffsetFetchRequestTopics], code: int
) -> Steps[list[OffsetFetchResponseTopics]]:
    topics = []
    for topic in wanted:
        partitions = []
        for index in topic.partition_indexes:
            partitions.append(OffsetFetchResponsePartitions(index, -1, error_code=code))
            yield
        topics.append(OffsetFetchResponseTopics(topic.name, partitions=partitions))
        yield
    return topics


def _fetch(
    call: Call, wanted: OffsetFetchRequestGroup, stable: bool
) -> Steps[OffsetFetchResponseGroup]:
    name = wanted.group_id
    refusal = call.door.groups.check_fetch(name, wanted.member_id, wanted.member_epoch)
    if refusal:
        return OffsetFetchResponseGroup(name, error_code=refusal)
    if wanted.topics is None:
        return OffsetFetchResponseGroup(name, (yield from _everything(call, name, stable)))
    topics = []
    for topic in wanted.topics:
        topics.append((yield from _fetch_topic(call, name, topic, stable)))
        yield
    return OffsetFetchResponseGroup(name, topics)


def _everything(call: Call, group: str, stable: bool) -> Steps[Sequence[OffsetFetchResponseTopics]]:
    broker = call.broker
    by_topic: dict[bytes, list[OffsetFetchResponsePartitions]] = {}
    for place in sorted(broker.cursors.of(group)):
        by_topic.setdefault(place[0], []).append(_partition(call, group, place, stable))
        yield
    topics = broker.topics.catalog.topics_by_id
    return tuple(
        OffsetFetchResponseTopics(kafka_name(topics[topic_id]), topic_id, tuple(partitions))
        for topic_id, partitions in by_topic.items()
        if topic_id in topics
    )


def _fetch_topic(
    call: Call, group: str, wanted: OffsetFetchRequestTopics, stable: bool
) -> Steps[OffsetFetchResponseTopics]:
    unknown = Error.UNKNOWN_TOPIC_ID if call.version >= 10 else Error.NONE
    topic: Topic | None
    try:
        topic = topic_of(call.service, wanted.name, wanted.topic_id)
    except HeadraceError:
        topic = None
    partitions = []
    for index in wanted.partition_indexes:
        if topic is None:
            partitions.append(OffsetFetchResponsePartitions(index, -1, error_code=unknown))
        else:
            partitions.append(_partition(call, group, (topic.id, index), stable))
        yield
    return OffsetFetchResponseTopics(wanted.name, wanted.topic_id, partitions)


def _partition(call: Call, group: str, place: Place, stable: bool) -> OffsetFetchResponsePartitions:
    cursors = call.broker.cursors
    if stable and not cursors.is_stable(group, place):
        unstable = Error.UNSTABLE_OFFSET_COMMIT
        return OffsetFetchResponsePartitions(place[1], -1, error_code=unstable)
    cursor = cursors.find(group, place)
    if cursor is None:
        return OffsetFetchResponsePartitions(place[1], -1)
    return OffsetFetchResponsePartitions(
        place[1], cursor.offset, cursor.leader_epoch, cursor.metadata
    )
