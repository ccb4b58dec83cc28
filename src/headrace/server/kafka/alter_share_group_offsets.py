"""AlterShareGroupOffsets, version 0: let a share group read from elsewhere.

Only while the group has no members. Whatever became of messages before counts no
more: all from the new start on are ready, with no deliveries yet. A topic that the
group did not read so far is read from then on, and a group that is not there is made.
"""

from __future__ import annotations

from headrace.core.errors import HeadraceError, OffsetOutOfRange, UnknownPartition, shortened
from headrace.core.steps import Steps
from headrace.engine.catalog import Topic
from headrace.engine.commit import Commit
from headrace.engine.partition import Partition
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.scanning import scan_ahead
from headrace.server.slices import in_slices
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
    calls = call.door.shares.calls.asked_by(call.context)
    await scan_ahead(calls, [topic.topic_name for topic in request.topics])
    # Messages that are on their way to the dead letters arrive there first.
    try:
        await call.finish(call.service.commit())
    except HeadraceError as error:
        return AlterShareGroupOffsetsResponse(error_code=code_of(error), error_message=str(error))
    name, shares = request.group_id, call.door.shares
    group = shares.idle_group(name)
    is_new = group is Error.GROUP_ID_NOT_FOUND and shares.may_be_made(name)
    if isinstance(group, Error) and not is_new:
        return AlterShareGroupOffsetsResponse(error_code=group, error_message=_REASONS[group])
    commit = call.service.commit()
    try:
        steps = _alter_all(call, name, request, commit)
        responses = await in_slices(steps, call.service.wait_for)
        await call.finish(commit)
    except HeadraceError as error:
        return AlterShareGroupOffsetsResponse(error_code=code_of(error), error_message=str(error))
    return AlterShareGroupOffsetsResponse(responses=responses)


def _alter_all(
    call: Call, name: str, request: AlterShareGroupOffsetsRequest, commit: Commit
) -> Steps[list[AlterShareGroupOffsetsResponseTopic]]:
    topics = []
    for topic in request.topics:
        topics.append((yield from _alter_topic(call, name, topic, commit)))
        yield
    return topics


_REASONS = {
    Error.GROUP_ID_NOT_FOUND: "there is no such share group",
    Error.NON_EMPTY_GROUP: "the group has members; close them first",
}


def _alter_topic(
    call: Call, name: str, wanted: AlterShareGroupOffsetsRequestTopic, commit: Commit
) -> Steps[AlterShareGroupOffsetsResponseTopic]:
    broker = call.broker
    topic = broker.topics.catalog.topics.get(wanted.topic_name)
    if topic is None or topic.is_internal:
        why = shortened(f"there is no topic {wanted.topic_name!r}")
        unknown = [
            _refused(each, Error.UNKNOWN_TOPIC_OR_PARTITION, why) for each in wanted.partitions
        ]
        return AlterShareGroupOffsetsResponseTopic(wanted.topic_name, partitions=unknown)
    results = []
    is_open = False
    for each in wanted.partitions:
        live = call.door.shares.describe(name)
        if live is not None and not live.is_empty():
            # Somebody has come since the request began.
            results.append(_refused(each, Error.NON_EMPTY_GROUP, _REASONS[Error.NON_EMPTY_GROUP]))
            continue
        try:
            partition = _check(call, topic, each)
            if not is_open:
                settings = call.door.shares.first_settings(name)
                now_ms = call.service.clock.now_ms()
                yield from broker.groups.opening(
                    name, [topic], settings, now_ms, commit, any_name=True
                )
                is_open = True
            group, now_ms = broker.groups.named(name), call.service.clock.now_ms()
            broker.groups.restart_view(group, partition, each.start_offset, now_ms, commit)
            results.append(AlterShareGroupOffsetsResponsePartition(each.partition_index))
        except HeadraceError as error:
            results.append(_refused(each, code_of(error), str(error)))
        yield
    return AlterShareGroupOffsetsResponseTopic(wanted.topic_name, topic.id, results)


def _refused(
    wanted: AlterShareGroupOffsetsRequestPartition, code: int, why: str
) -> AlterShareGroupOffsetsResponsePartition:
    return AlterShareGroupOffsetsResponsePartition(wanted.partition_index, code, why)


def _check(call: Call, topic: Topic, wanted: AlterShareGroupOffsetsRequestPartition) -> Partition:
    index, start = wanted
    partition = call.broker.topics.find(topic.id, index)
    if partition is None:
        raise UnknownPartition(f"topic {topic.name!r} has no partition {index}")
    first, end = partition.log.start_offset, partition.high_watermark
    if not first <= start <= end:
        raise OffsetOutOfRange(f"offset {start} is outside of {first} to {end}")
    return partition
