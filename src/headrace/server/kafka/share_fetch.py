"""ShareFetch, versions 1 and 2: acknowledge what was, and acquire what comes next.

    epoch 0     opens a session; acknowledgements make no sense yet
    epoch n     goes on
    epoch -1    acknowledges, gives back the rest and closes

Acknowledgements of a partition hold together or not at all; their outcome is in
the answer, once it is on disk. When nothing is ready the answer waits, also for
what time alone brings: the end of a delay, a backoff, somebody's lease. It waits no
longer once another request stands behind it (see turns.py).

The first records of a session are of one partition: members that begin together are not
heard of at the same moment, and the first one leaves something to the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple

from headrace.core import limits
from headrace.core.errors import HeadraceError, TooManyLeases, UnknownTopic
from headrace.engine.catalog import Group
from headrace.engine.partition import Partition
from headrace.engine.sharing import Acknowledgement, Acquired
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.share_groups import FINAL_EPOCH, Place, ShareSession
from headrace.server.service import Service
from headrace.server.waiting import SoughtPartitions, Stop
from headrace.wire.kafka.generated.share_fetch_request import ShareFetchRequest
from headrace.wire.kafka.generated.share_fetch_response import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)

WAIT_MS_MAX = 60_000
RECORDS_DEFAULT = 500
# How a client wants to be served: with whole batches, or with no more than it says (1).
BATCH_OPTIMIZED = 0
# Beyond it, one answer would keep everybody else waiting for too long.
RESPONSE_BYTES_MAX = 64 * 1024 * 1024

Outcomes = dict[Place, HeadraceError | None]


def handle(
    call: Call, request: ShareFetchRequest
) -> ShareFetchResponse | Awaitable[ShareFetchResponse]:
    shares = call.door.shares
    name, member = request.group_id or "", request.member_id or ""
    group = shares.group(name)
    if group is None:
        return ShareFetchResponse(error_code=Error.GROUP_ID_NOT_FOUND)
    wanted = _acknowledgements(request)
    if request.share_session_epoch == 0:
        if wanted:
            return ShareFetchResponse(
                error_code=Error.INVALID_REQUEST,
                error_message="a session opens without acknowledgements",
            )
        session = shares.open_session(name, member, call.connection)
    else:
        session = shares.session(name, member, request.share_session_epoch)
    if isinstance(session, Error):
        return ShareFetchResponse(error_code=session)
    fits = session.change(
        (
            (topic.topic_id, [p.partition_index for p in topic.partitions])
            for topic in request.topics
        ),
        ((topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data),
    )
    if not fits:
        shares.end_session(name, member)
        return ShareFetchResponse(
            error_code=Error.INVALID_REQUEST, error_message="too many partitions for one member"
        )
    if not shares.has_room(session):
        shares.end_session(name, member)
        return ShareFetchResponse(
            error_code=Error.SHARE_SESSION_LIMIT_REACHED,
            error_message="as much is kept for clients as may be; try again",
        )
    settling = settle(call, group, member, wanted)
    if settling.waiting is None:
        return _fetch(call, request, group, session, settling.finish_nowait())
    return _fetch_later(call, request, group, session, settling)


async def _fetch_later(
    call: Call, request: ShareFetchRequest, group: Group, session: ShareSession, settling: Settling
) -> ShareFetchResponse:
    found = _fetch(call, request, group, session, await settling.finish())
    return found if isinstance(found, ShareFetchResponse) else await found


def _fetch(
    call: Call,
    request: ShareFetchRequest,
    group: Group,
    session: ShareSession,
    outcomes: Outcomes,
) -> ShareFetchResponse | Awaitable[ShareFetchResponse]:
    """What was acknowledged is on disk; now for what comes next."""
    if request.share_session_epoch == FINAL_EPOCH:
        call.door.shares.end_session(session.group, session.member)
        return _response(group, [], [], outcomes)
    if request.is_renew_ack:
        # Time was asked for, not records.
        return _response(group, [], [], outcomes)
    if session.is_over:
        # It ended while the acknowledgements went to disk: nobody would settle
        # what is acquired for it now.
        return ShareFetchResponse(error_code=Error.SHARE_SESSION_NOT_FOUND)
    partitions, gone = call.door.shares.find(session.places)
    poll = _Poll(call, group, session, partitions, request)
    if call.service.waiting.is_waited_for(group.name, partitions):
        # They came before us.
        return poll.wait([], gone, outcomes)
    acquired = poll.look() or []
    if call.broker.moves or (not acquired and not outcomes and request.max_wait_ms > 0):
        return poll.wait(acquired, gone, outcomes)
    return poll.answer(acquired, gone, outcomes)


def _acknowledgements(request: ShareFetchRequest) -> dict[Place, list[Acknowledgement]]:
    return {
        (topic.topic_id, partition.partition_index): [
            Acknowledgement(*batch) for batch in partition.acknowledgement_batches
        ]
        for topic in request.topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    }


class Settling(NamedTuple):
    """Acknowledgements that are written, and what they wait for, if anything."""

    service: Service
    outcomes: Outcomes
    changed: list[Partition]
    waiting: asyncio.Future[None] | None

    async def finish(self) -> Outcomes:
        """What became of each partition's acknowledgements, once it is on disk."""
        if self.waiting is not None:
            try:
                await self.waiting
            except HeadraceError as error:
                return dict.fromkeys(self.outcomes, error)
        return self.finish_nowait()

    def finish_nowait(self) -> Outcomes:
        # Released messages, and those that waited for their turn, may be had now.
        self.service.wake_partitions(self.changed)
        return self.outcomes


def settle(
    call: Call, group: Group, member: str, wanted: dict[Place, list[Acknowledgement]]
) -> Settling:
    service = call.service
    outcomes: Outcomes = {}
    changed: list[Partition] = []
    if not wanted:
        return Settling(service, outcomes, changed, None)
    now_ms = service.clock.now_ms()
    commit = service.commit()
    for place, batches in wanted.items():
        partition = call.broker.topics.find(*place)
        try:
            if partition is None:
                outcomes[place] = UnknownTopic("there is no such partition")
                continue
            call.broker.sharing.acknowledge(group, partition, member, batches, now_ms, commit)
            outcomes[place] = None
            changed.append(partition)
        except HeadraceError as error:
            outcomes[place] = error.without_frames()
    waiting = service.finish_soon(commit, call.context.deadline)
    return Settling(service, outcomes, changed, waiting)


class _Poll:
    """One fetch that looks, and waits until there is something or its time is up."""

    def __init__(
        self,
        call: Call,
        group: Group,
        session: ShareSession,
        partitions: list[Partition],
        request: ShareFetchRequest,
    ) -> None:
        self._call = call
        self._service = call.service
        self._group = group
        self._session = session
        self._partitions = partitions
        self._count = request.max_records if request.max_records > 0 else RECORDS_DEFAULT
        # Unless it says otherwise, a client gets the whole of the batch in which the last
        # record is that it asks for, as with Kafka.
        is_flexible = request.share_acquire_mode == BATCH_OPTIMIZED
        self._more = max(0, limits.LEASE_MESSAGES_MAX - self._count) if is_flexible else 0
        self._bytes_max = min(max(request.max_bytes, 0), RESPONSE_BYTES_MAX)
        self._wait_ms = max(0, min(request.max_wait_ms, WAIT_MS_MAX))

    def look(self, among: int = 1) -> list[Acquired] | None:
        """None when this member can take nothing now, whatever there is."""
        if not self._bytes_max or self._call.connection.is_congested:
            # Leases would run out while they wait to be sent. Who asks for no bytes at all
            # gets none, as with Kafka, where less than a record is one record.
            return None
        now_ms = self._service.clock.now_ms()
        try:
            found = self._call.broker.sharing.acquire(
                self._group,
                self._partitions,
                self._session.member,
                self._count,
                self._bytes_max,
                now_ms,
                self._more,
                among,
                of_one=self._session.is_new,
            )
        except TooManyLeases:
            return None
        if found:
            self._session.is_new = False
        return found

    def answer(
        self, acquired: list[Acquired], gone: list[Place], outcomes: Outcomes
    ) -> ShareFetchResponse:
        for partition, ranges, batches, _ in acquired:
            self._service.counts.traffic(partition.topic.name, "kafka").add_out(
                sum(end - start for start, end, _ in ranges), sum(map(len, batches))
            )
        return _response(self._group, acquired, gone, outcomes)

    async def wait(
        self, acquired: list[Acquired], gone: list[Place], outcomes: Outcomes
    ) -> ShareFetchResponse:
        """The answer, when what was given up meanwhile is in the dead letters, and there
        is something, or the time is up."""
        await self._finish_moves()
        if not acquired:
            # What became of acknowledgements is to be heard of now.
            acquired = await self._stand_in_line(0 if outcomes else self._wait_ms)
        return self.answer(acquired, gone, outcomes)

    async def _finish_moves(self) -> None:
        if self._call.broker.moves:
            await self._service.finish(self._service.commit())

    async def _stand_in_line(self, wait_ms: int) -> list[Acquired]:
        service, connection, stop = self._service, self._call.connection, Stop()

        async def look(among: int) -> list[Acquired] | None:
            if connection.is_closed or self._session.is_over or stop.is_set:
                # Told to go, it does not pass those who wait.
                return None
            found = self.look(among)
            await self._finish_moves()
            return found

        sought = SoughtPartitions(service, self._partitions)
        if connection.is_hurried:
            # Others before us look first all the same.
            wait_ms = 0
        self._call.door.polls.add(stop.set)
        connection.polls.add(stop.set)
        connection.on_closed.append(stop.set)
        self._session.waits.add(stop.set)
        try:
            return await service.waiting.wait(self._group.name, sought, look, wait_ms / 1000, stop)
        finally:
            self._session.waits.discard(stop.set)
            self._call.door.polls.discard(stop.set)
            connection.polls.discard(stop.set)
            if stop.set in connection.on_closed:
                connection.on_closed.remove(stop.set)


def _response(
    group: Group, acquired: list[Acquired], gone: list[Place], outcomes: Outcomes
) -> ShareFetchResponse:
    found: dict[Place, PartitionData] = {
        place: _nothing(place[1], Error.UNKNOWN_TOPIC_ID, "there is no such partition")
        for place in gone
    }
    for partition, ranges, batches, damage in acquired:
        place = (partition.topic.id, partition.index)
        if damage is not None:
            found[place] = _nothing(partition.index, code_of(damage), str(damage))
            continue
        found[place] = PartitionData(
            partition.index,
            records=batches[0] if len(batches) == 1 else b"".join(batches),
            acquired_records=tuple(
                AcquiredRecords(start, end - 1, deliveries) for start, end, deliveries in ranges
            ),
        )
    for place, error in outcomes.items():
        data = found.get(place) or _nothing(place[1])
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


def _nothing(index: int, error: int = 0, message: str | None = None) -> PartitionData:
    # Records may be empty here but not null.
    return PartitionData(index, error, message, records=b"")
