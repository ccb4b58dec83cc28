"""OffsetCommit, versions 2 to 10 (from 10 on topics are named by their ids).

    who commits                      generation or epoch
    a member of a classic group      its generation
    a member of a consumer group     its epoch
    a member of a streams group      its epoch; or an older one, for tasks that it had then
    nobody in particular             -1, and only while the group has no members

Offsets below 0 are kept as they are, as Kafka keeps them: KafkaJS commits -1 and -2 for "from
the end" and "from the beginning" and reads them back. For everybody else they are no position.

Answered once the offsets are on disk. Retention that a client asks for (up to
version 4) is not kept: what a group has committed stays until it is deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Iterator

from headrace.core import limits
from headrace.core.errors import HeadraceError, LimitExceeded
from headrace.core.event_log import log_event
from headrace.engine.cursor import Commitment, Place
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.names import is_listed, topic_of
from headrace.server.kafka.parts import is_whole, joined, parts_of
from headrace.server.slices import Slices
from headrace.wire.kafka.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
)
from headrace.wire.kafka.generated.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def handle(
    call: Call, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    is_small = is_whole(request.topics)
    return _commit(call, request) if is_small else _commit_in_parts(call, request)


async def _commit_in_parts(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    slices = Slices()
    partitions: list[OffsetCommitResponsePartition] = []
    for part in parts_of(request.topics):
        found = _commit(call, request._replace(topics=part))
        answered = await found if isinstance(found, asyncio.Future) else found
        partitions += (each for topic in answered.topics for each in topic.partitions)
        await slices.rest()
    topics = []
    for topic, codes in joined(request.topics, iter(partitions)):
        topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, codes))
        await slices.rest()
    return OffsetCommitResponse(topics=topics)


def _commit(
    call: Call, request: OffsetCommitRequest
) -> OffsetCommitResponse | asyncio.Future[OffsetCommitResponse]:
    refusal = call.door.groups.check_commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        lambda: _places(call, request.topics),
    )
    if refusal:
        return _all_of_it(request, refusal)
    positions: dict[Place, Commitment | None] = {}
    topics = tuple(check_topic(call, topic, positions) for topic in request.topics)
    response = OffsetCommitResponse(topics=topics)
    if not positions:
        return response
    if is_one_too_many(call, request.group_id, positions):
        return _all_of_it(request, Error.POLICY_VIOLATION)
    service = call.service
    commit = service.commit()
    try:
        written = call.broker.cursors.commit(request.group_id, positions, service.clock.now_ms())
    except (HeadraceError, OSError):
        log_event(
            service.logger,
            logging.ERROR,
            "offsets were not written",
            exc_info=True,
            group=request.group_id,
        )
        return _unavailable(request)
    commit.data.append(written)
    waiting = call.submit(commit)
    if waiting is None:
        return response
    answer: asyncio.Future[OffsetCommitResponse] = service.loop.create_future()

    def on_safe(done: asyncio.Future[None]) -> None:
        if not answer.done():
            failed = done.cancelled() or done.exception() is not None
            answer.set_result(_unavailable(request) if failed else response)

    waiting.add_done_callback(on_safe)
    return answer


def _places(call: Call, topics: Iterable[OffsetCommitRequestTopic]) -> Iterator[tuple[str, int]]:
    """What is to be committed, with names of topics also where the request has ids."""
    by_id = call.broker.topics.catalog.topics_by_id
    for topic in topics:
        name = topic.name
        if topic.topic_id in by_id:
            name = by_id[topic.topic_id].name
        for index, *_ in topic.partitions:
            yield name, index


def check_topic(
    call: Call, topic: OffsetCommitRequestTopic, positions: dict[Place, Commitment | None]
) -> OffsetCommitResponseTopic:
    """What is right goes into `positions`; the answer if that comes off."""
    unknown = Error.UNKNOWN_TOPIC_ID if call.version >= 10 else Error.UNKNOWN_TOPIC_OR_PARTITION
    try:
        found = topic_of(call.service, topic.name, topic.topic_id)
    except HeadraceError:
        found = None
    partitions = []
    for index, offset, leader_epoch, metadata in topic.partitions:
        text = metadata or ""
        if found is None:
            error = unknown
        elif not is_listed(found) or not 0 <= index < found.partitions:
            error = Error.UNKNOWN_TOPIC_OR_PARTITION
        elif len(text.encode()) > limits.METADATA_BYTES_MAX:
            error = Error.OFFSET_METADATA_TOO_LARGE
        else:
            error = Error.NONE
            positions[found.id, index] = Commitment(offset, text, leader_epoch)
        partitions.append(OffsetCommitResponsePartition(index, error))
    return OffsetCommitResponseTopic(topic.name, topic.topic_id, tuple(partitions))


def is_one_too_many(call: Call, group: str, places: Iterable[Place]) -> bool:
    """Whether this would be the first commit of a group for which there is no room."""
    cursors = call.broker.cursors
    # Nearly always something of it was committed before, and nothing is counted.
    if any(cursors.find(group, place) is not None for place in places):
        return False
    try:
        cursors.check_room(group)
    except LimitExceeded:
        return True
    return False


def _all_of_it(request: OffsetCommitRequest, error: int) -> OffsetCommitResponse:
    """The same answer for every partition."""
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                tuple(
                    OffsetCommitResponsePartition(index, error) for index, *_ in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _unavailable(request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Nothing of it is known to be on disk; a client tries again."""
    return _all_of_it(request, Error.COORDINATOR_NOT_AVAILABLE)
