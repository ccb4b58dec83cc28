"""AlterShareGroupOffsets, version 0: let a share group read from elsewhere.

Only while the group has no members. Whatever became of messages before counts no
more: all from the new start on are ready, with no deliveries yet. A topic that the
group did not read so far is read from then on.
"""

from __future__ import annotations

from headrace.core.errors import HeadraceError, OffsetOutOfRange, UnknownPartition, shortened
from headrace.engine.catalog import Group, Topic
from headrace.engine.commit import Commit
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.wire.kafka.generated.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headrace.wire.kafka.generated.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)


async def handle(
    call: Call, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    # Messages that are on their way to the dead letters arrive there first.
    try:
        await call.service.finish(call.service.commit())
    except HeadraceError as error:
        return AlterShareGroupOffsetsResponse(error_code=code_of(error), error_message=str(error))
    group = call.door.shares.idle_group(request.group_id)
    if isinstance(group, Error):
        return AlterShareGroupOffsetsResponse(error_code=group, error_message=_REASONS[group])
    commit = call.service.commit()
    responses = tuple(_alter_topic(call, group, topic, commit) for topic in request.topics)
    try:
        await call.service.finish(commit)
    except HeadraceError as error:
        return AlterShareGroupOffsetsResponse(error_code=code_of(error), error_message=str(error))
    return AlterShareGroupOffsetsResponse(responses=responses)


_REASONS = {
    Error.GROUP_ID_NOT_FOUND: "there is no such share group",
    Error.NON_EMPTY_GROUP: "the group has members; close them first",
}


def _alter_topic(
    call: Call, group: Group, wanted: AlterShareGroupOffsetsRequestTopic, commit: Commit
) -> AlterShareGroupOffsetsResponseTopic:
    broker = call.service.broker
    topic = broker.topics.catalog.topics.get(wanted.topic_name)
    if topic is None or topic.is_internal:
        return AlterShareGroupOffsetsResponseTopic(
            wanted.topic_name,
            partitions=tuple(
                AlterShareGroupOffsetsResponsePartition(
                    each.partition_index,
                    Error.UNKNOWN_TOPIC_OR_PARTITION,
                    shortened(f"there is no topic {wanted.topic_name!r}"),
                )
                for each in wanted.partitions
            ),
        )
    results = []
    for each in wanted.partitions:
        try:
            _alter(call, group, topic, each, commit)
            results.append(AlterShareGroupOffsetsResponsePartition(each.partition_index))
        except HeadraceError as error:
            results.append(
                AlterShareGroupOffsetsResponsePartition(
                    each.partition_index, code_of(error), str(error)
                )
            )
    return AlterShareGroupOffsetsResponseTopic(wanted.topic_name, topic.id, tuple(results))


def _alter(
    call: Call,
    group: Group,
    topic: Topic,
    wanted: AlterShareGroupOffsetsRequestPartition,
    commit: Commit,
) -> None:
    broker, now_ms = call.service.broker, call.service.clock.now_ms()
    index, start = wanted
    partition = broker.topics.find(topic.id, index)
    if partition is None:
        raise UnknownPartition(f"topic {topic.name!r} has no partition {index}")
    first, end = partition.log.start_offset, partition.high_watermark
    if not first <= start <= end:
        raise OffsetOutOfRange(f"offset {start} is outside of {first} to {end}")
    broker.groups.open(group.name, [topic], {}, now_ms, commit)
    broker.groups.restart_view(group, partition, start, now_ms, commit)
