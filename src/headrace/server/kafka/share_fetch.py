"""ShareFetch, versions 1 and 2: acknowledge what was, and acquire what comes next.

    epoch 0     opens a session; acknowledgements make no sense yet
    epoch n     goes on
    epoch -1    acknowledges, gives back the rest and closes

Acknowledgements of a partition hold together or not at all; their outcome is in
the answer, once it is on disk. When nothing is ready the answer waits, also for
what time alone brings: the end of a delay, a backoff, somebody's lease.
"""

from __future__ import annotations

import asyncio

from headrace.core.errors import CorruptLog, HeadraceError, InvalidArgument, TooManyLeases
from headrace.engine.catalog import Group
from headrace.engine.partition import Partition
from headrace.engine.sharing import Acknowledgement, Acquired
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.share_groups import FINAL_EPOCH, Place, ShareSession
from headrace.server.kafka.share_records import read_acquired
from headrace.wire.kafka.generated.share_fetch_request import ShareFetchRequest
from headrace.wire.kafka.generated.share_fetch_response import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)

WAIT_MS_MAX = 60_000
RECORDS_DEFAULT = 500

Outcomes = dict[Place, HeadraceError | None]


async def handle(call: Call, request: ShareFetchRequest) -> ShareFetchResponse:
    shares = call.door.shares
    name, member = request.group_id or "", request.member_id or ""
    group = shares.group(name)
    if group is None:
        return ShareFetchResponse(error_code=Error.GROUP_ID_NOT_FOUND)
    acknowledgements = _acknowledgements(request)
    if request.share_session_epoch == 0:
        if acknowledgements:
            return ShareFetchResponse(
                error_code=Error.INVALID_REQUEST,
                error_message="a session opens without acknowledgements",
            )
        session = shares.open_session(name, member)
    else:
        session = shares.session(name, member, request.share_session_epoch)
    if isinstance(session, Error):
        return ShareFetchResponse(error_code=session)
    session.change(
        (
            (topic.topic_id, [p.partition_index for p in topic.partitions])
            for topic in request.topics
        ),
        ((topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data),
    )
    outcomes = await acknowledge(call, group, member, acknowledgements)
    if request.share_session_epoch == FINAL_EPOCH:
        shares.end_session(name, member)
        return _response(group, session, [], outcomes)
    call.connection.end_with(name, member)
    if request.is_renew_ack:
        # Time was asked for, not records.
        return _response(group, session, [], outcomes)
    acquired = await _acquire(call, group, session, request, can_wait=not acknowledgements)
    return _response(group, session, acquired, outcomes)


def _acknowledgements(request: ShareFetchRequest) -> dict[Place, list[Acknowledgement]]:
    return {
        (topic.topic_id, partition.partition_index): [
            Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
            for batch in partition.acknowledgement_batches
        ]
        for topic in request.topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    }


async def acknowledge(
    call: Call, group: Group, member: str, wanted: dict[Place, list[Acknowledgement]]
) -> Outcomes:
    """What became of each partition's acknowledgements, once it is on disk."""
    outcomes: Outcomes = {}
    if not wanted:
        return outcomes
    service = call.service
    now_ms = service.clock.now_ms()
    commit = service.commit()
    changed: list[Partition] = []
    for place, batches in wanted.items():
        partition = service.broker.topics.find(*place)
        try:
            if partition is None:
                outcomes[place] = InvalidArgument("there is no such partition")
                continue
            service.broker.sharing.acknowledge(group, partition, member, batches, now_ms, commit)
            outcomes[place] = None
            changed.append(partition)
        except HeadraceError as error:
            outcomes[place] = error
    await service.finish(commit)
    # Released messages, and those that waited for their turn, may be had now.
    service.wake_partitions(changed)
    return outcomes


async def _acquire(
    call: Call,
    group: Group,
    session: ShareSession,
    request: ShareFetchRequest,
    *,
    can_wait: bool,
) -> list[Acquired]:
    service = call.service
    partitions = call.door.shares.partitions(session.places)
    count = request.max_records if request.max_records > 0 else RECORDS_DEFAULT
    deadline = service.loop.time() + min(request.max_wait_ms, WAIT_MS_MAX) / 1000
    news = asyncio.Event()
    service.wait_on(partitions, news.set)
    try:
        while not call.connection.is_closed:
            news.clear()
            now_ms = service.clock.now_ms()
            try:
                acquired = service.broker.sharing.acquire(
                    group, partitions, session.member, count, now_ms
                )
            except TooManyLeases:
                acquired = []
            if service.broker.moves:
                await service.finish(service.commit())
            left = deadline - service.loop.time()
            if acquired or left <= 0 or not can_wait:
                return acquired
            due_ms = service.broker.groups.next_due_of(group, partitions)
            if due_ms is not None:
                left = min(left, max(0.001, (due_ms - now_ms) / 1000))
            try:
                await asyncio.wait_for(news.wait(), left)
            except TimeoutError:
                pass
        return []
    finally:
        service.stop_waiting(partitions, news.set)


def _response(
    group: Group, session: ShareSession, acquired: list[Acquired], outcomes: Outcomes
) -> ShareFetchResponse:
    found: dict[Place, PartitionData] = {}
    for partition, ranges in acquired:
        place = (partition.topic.id, partition.index)
        try:
            records = read_acquired(partition, ranges)
        except CorruptLog as error:
            partition.stopped = error
            found[place] = PartitionData(partition.index, code_of(error), str(error))
            continue
        found[place] = PartitionData(
            partition.index,
            records=records,
            acquired_records=tuple(
                AcquiredRecords(start, end - 1, deliveries) for start, end, deliveries in ranges
            ),
        )
    for place, error in outcomes.items():
        data = found.get(place) or PartitionData(place[1])
        if error is not None:
            data = data._replace(
                acknowledge_error_code=code_of(error), acknowledge_error_message=str(error)
            )
        found[place] = data
    topics: dict[bytes, list[PartitionData]] = {}
    for (topic_id, _), data in found.items():
        topics.setdefault(topic_id, []).append(data)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=group.settings.visibility_ms,
        responses=tuple(
            ShareFetchableTopicResponse(topic_id, tuple(parts))
            for topic_id, parts in topics.items()
        ),
    )
