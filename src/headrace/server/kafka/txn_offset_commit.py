"""TxnOffsetCommit, versions 0 to 5: offsets that count when the transaction does.

    from    difference
    3       the member says who it is, and a generation that is over is refused
    5       the group's offsets become part of the transaction by this very request

They are written as a transactional batch beside the other offsets and wait for the
transaction's marker. Answered when they are on disk; until the transaction is decided
OffsetFetch shows what was there before, or says UNSTABLE_OFFSET_COMMIT.
"""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.engine.coordinator.transaction import TransactionError
from headrace.engine.coordinator.values import GroupError
from headrace.engine.cursor import Commitment, Place
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.offset_commit import check_topic, is_one_too_many
from headrace.server.kafka.parts import is_whole, joined, parts_of
from headrace.server.kafka.transactions import code_for
from headrace.server.slices import Slices
from headrace.wire.kafka.generated.offset_commit_request import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.kafka.generated.txn_offset_commit_request import TxnOffsetCommitRequest
from headrace.wire.kafka.generated.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ABORTABLE_FIRST = 4
ADDS_FIRST = 5
# Clients expect INVALID_PRODUCER_EPOCH here, in every version.
FENCED_NEVER = 1_000


async def handle(call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    if is_whole(request.topics):
        return await _commit(call, request)
    slices = Slices()
    partitions: list[TxnOffsetCommitResponsePartition] = []
    for part in parts_of(request.topics):
        answered = await _commit(call, request._replace(topics=part))
        partitions += (each for topic in answered.topics for each in topic.partitions)
        await slices.rest()
    topics = []
    for topic, codes in joined(request.topics, iter(partitions)):
        topics.append(TxnOffsetCommitResponseTopic(topic.name, codes))
        await slices.rest()
    return TxnOffsetCommitResponse(0, topics)


async def _commit(call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    refusal: int = _check_group(call, request)
    if refusal:
        return _all_of_it(request, refusal)
    positions: dict[Place, Commitment | None] = {}
    topics = [
        check_topic(
            call,
            OffsetCommitRequestTopic(
                topic.name,
                partitions=[OffsetCommitRequestPartition(*each) for each in topic.partitions],
            ),
            positions,
        )
        for topic in request.topics
    ]
    if positions:
        if is_one_too_many(call, request.group_id, positions):
            return _all_of_it(request, Error.POLICY_VIOLATION)
        try:
            refusal = await _write(call, request, positions)
        except (HeadraceError, OSError) as error:
            refusal = _code_of_failure(error)
        if refusal:
            return _all_of_it(request, refusal)
    return TxnOffsetCommitResponse(
        0,
        tuple(
            TxnOffsetCommitResponseTopic(
                topic.name,
                tuple(
                    TxnOffsetCommitResponsePartition(each.partition_index, each.error_code)
                    for each in topic.partitions
                ),
            )
            for topic in topics
        ),
    )


def _check_group(call: Call, request: TxnOffsetCommitRequest) -> int:
    error = call.door.groups.check_commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        lambda: ((topic.name, index) for topic in request.topics for index, *_ in topic.partitions),
        transactional=True,
    )
    # Producers know generations only, whatever the group's protocol calls them.
    return Error.ILLEGAL_GENERATION if error is GroupError.STALE_MEMBER_EPOCH else error


async def _write(
    call: Call, request: TxnOffsetCommitRequest, positions: dict[Place, Commitment | None]
) -> int:
    """Kafka's code, or 0 when they are on disk."""
    service, live = call.service, call.door.transactions
    cursors = call.broker.cursors
    name, group, producer_id, epoch = request[:4]
    place = cursors.place(service.clock.now_ms())
    if call.version >= ADDS_FIRST and live.is_guarded:
        added = await live.add(name, producer_id, epoch, {place})
        if added is not TransactionError.NONE:
            return code_for(added, call.version, FENCED_NEVER)
        # The group may have moved on meanwhile.
        refusal = _check_group(call, request)
        if refusal:
            return refusal
    else:
        noted = live.wait_for_note(name)
        if noted is not None:
            await noted
    if live.is_guarded:
        refused = live.table.check_write(name, producer_id, epoch, place)
        if refused is TransactionError.TRANSACTION_ABORTABLE and call.version < ABORTABLE_FIRST:
            return Error.INVALID_TXN_STATE
        if refused is not TransactionError.NONE:
            return code_for(refused, call.version, FENCED_NEVER)
    commit = service.commit()
    now_ms = service.clock.now_ms()
    commit.data.append(cursors.commit(group, positions, now_ms, (producer_id, epoch)))
    await service.commits.wait(commit)
    return Error.NONE


def _code_of_failure(error: HeadraceError | OSError) -> int:
    code = code_of(error)
    if code == Error.NOT_LEADER_OR_FOLLOWER:
        return Error.NOT_COORDINATOR
    # Of what the disk refuses a client is told to try again.
    return Error.COORDINATOR_NOT_AVAILABLE if code == Error.KAFKA_STORAGE_ERROR else code


def _all_of_it(request: TxnOffsetCommitRequest, error: int) -> TxnOffsetCommitResponse:
    """The same answer for every partition."""
    return TxnOffsetCommitResponse(
        0,
        tuple(
            TxnOffsetCommitResponseTopic(
                topic.name,
                tuple(
                    TxnOffsetCommitResponsePartition(index, error) for index, *_ in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
