"""Produce, versions 3 to 13 (0 to 2 are advertised and refused).

    acks    answered
    0       never; when something failed the connection is cut, as Kafka does, since
            there is no other way to say so. What comes behind it waits for the batch
            to be safe all the same, and so sees it
    1, -1   when the batch is as safe as the topic's durability says, or with
            REQUEST_TIMED_OUT when timeout_ms is over: it may last all the same
    other   INVALID_REQUIRED_ACKS, and nothing is written

A request holds one batch for each partition, which is judged and appended as all batches of
clients are (`engine/sealed.py`), by Kafka's terms: the size is that of the batch, and where
the topic is compacted its records need keys. One that holds much is opened in a thread, and
the requests behind it wait until it is appended. An idempotent producer's retry is answered
with the first offsets. Partitions fail one by one: the answer has a code for each. A request
for very many partitions is appended in parts (parts.py), and the requests behind it wait until
the last one is.

A transactional batch is checked with the coordinator right before it is appended:
what does not belong to the transaction that is open now is refused, or it would never
be decided. From version 12 on the request itself makes its partitions part of the
transaction; see `transactional_produce`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from headrace.core.errors import HeadraceError, SyncFailed, UnknownTopic
from headrace.core.request_context import NEVER
from headrace.engine.catalog import Topic
from headrace.engine.commit import Commit
from headrace.engine.contents import Heavy
from headrace.engine.sealed import KAFKA, Judge, Judged, Outcome, append, batch_of, learn
from headrace.server.kafka import transactional_produce
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of, code_of_failure
from headrace.server.kafka.names import topic_of
from headrace.server.kafka.parts import is_whole, joined, parts_of
from headrace.server.kafka.record_errors import record_errors
from headrace.server.looking import look_into_heavy
from headrace.server.slices import Slices
from headrace.wire.kafka.generated.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.kafka.generated.produce_response import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)


class _Refused(NamedTuple):
    code: int
    why: str
    # The records at fault, where it is not the batch as a whole.
    records: tuple[BatchIndexAndErrorMessage, ...] = ()


_Batch = Judged | Heavy | _Refused
# By the places of a topic and of a partition in the request.
_Place = tuple[int, int]

_Answer = ProduceResponse | asyncio.Future[ProduceResponse | None] | None


def handle(call: Call, request: ProduceRequest) -> _Answer:
    if request.transactional_id is not None:
        later = transactional_produce.wait_if_needed(call, request, _produce)
        if later is not None:
            return later
    return _produce(call, request)


def _produce(call: Call, request: ProduceRequest) -> _Answer:
    if not is_whole(request.topic_data):
        return _produce_later(call, request, _produce_in_parts)
    checked = _check_all(call, request, {})
    if _heavy(checked):
        return _produce_later(call, request, _produce_heavy)
    return _append_all(call, request, checked)


def _produce_later(
    call: Call,
    request: ProduceRequest,
    produce: Callable[[Call, ProduceRequest], Coroutine[Any, Any, _Answer]],
) -> asyncio.Future[ProduceResponse | None]:
    """Not on the spot. The requests behind it wait until it is appended."""
    # The frame's bytes are another request's by then.
    kept = transactional_produce.keep(call, request)
    call.connection.hold_turns()

    async def produce_and_wait() -> ProduceResponse | None:
        try:
            answer = await produce(call, kept)
        finally:
            call.connection.release_turns()
        return await _settled(answer)

    return call.service.loop.create_task(produce_and_wait())


async def _produce_heavy(call: Call, request: ProduceRequest) -> _Answer:
    """When a thread has looked into what is heavy."""
    known: dict[_Place, Outcome] = {}
    # What others changed meanwhile may make another one heavy.
    while heavy := _heavy(checked := _check_all(call, request, known)):
        learn(known, heavy, await look_into_heavy(call.service, list(heavy.values())))
    return _append_all(call, request, checked)


async def _produce_in_parts(call: Call, request: ProduceRequest) -> _Answer:
    """Each is on disk before the next is appended: a sync goes through what was appended
    in one piece."""
    slices = Slices()
    partitions: list[PartitionProduceResponse] = []
    for part in parts_of(request.topic_data):
        answer = await _settled(await _produce_heavy(call, request._replace(topic_data=part)))
        if answer is not None:
            partitions += (each for topic in answer.responses for each in topic.partition_responses)
        await slices.rest()
    if request.acks == 0:
        return None
    topics = []
    for topic, answered in joined(request.topic_data, iter(partitions)):
        topics.append(TopicProduceResponse(topic.name, topic.topic_id, answered))
        await slices.rest()
    return ProduceResponse(responses=topics)


async def _settled(answer: _Answer) -> ProduceResponse | None:
    return await answer if isinstance(answer, asyncio.Future) else answer


def _heavy(checked: list[list[_Batch]]) -> dict[_Place, Heavy]:
    return {
        (row, place): each
        for row, batches in enumerate(checked)
        for place, each in enumerate(batches)
        if isinstance(each, Heavy)
    }


def _append_all(call: Call, request: ProduceRequest, checked: list[list[_Batch]]) -> _Answer:
    service = call.service
    now_ms = service.clock.now_ms()
    commit = service.commit()
    topics = tuple(
        TopicProduceResponse(
            data.name,
            data.topic_id,
            tuple(
                _append(call, partition.index, each, now_ms, commit)
                for partition, each in zip(data.partition_data, row, strict=True)
            ),
        )
        for data, row in zip(request.topic_data, checked, strict=True)
    )
    is_silent = request.acks == 0
    # A client that wants no answer has no patience that could end.
    waiting = service.submit(commit, NEVER if is_silent else call.context.deadline)
    response = ProduceResponse(responses=topics)
    if is_silent and _has_errors(response):
        call.connection.close("a produce without acks failed")
    if waiting is None:
        return None if is_silent else response
    answer: asyncio.Future[ProduceResponse | None] = service.loop.create_future()

    def on_safe(done: asyncio.Future[None]) -> None:
        failure = None if done.cancelled() else done.exception()
        if not answer.done():
            told = response if failure is None else _failed(response, failure)
            answer.set_result(None if is_silent else told)

    waiting.add_done_callback(on_safe)
    return answer


def _check_all(
    call: Call, request: ProduceRequest, known: Mapping[_Place, Outcome]
) -> list[list[_Batch]]:
    """Every batch of the request, topic by topic, before any of them is appended."""
    refused: _Refused | None = None
    if request.acks not in (-1, 0, 1):
        why = f"acks is -1, 0 or 1, not {request.acks}"
        refused = _Refused(Error.INVALID_REQUIRED_ACKS, why)
    checked: list[list[_Batch]] = []
    judge = Judge(call.broker.topics, KAFKA, call.service.clock.now_ms())
    for row, data in enumerate(request.topic_data):
        topic = refused or _topic(call, data)
        checked.append(
            [
                topic
                if isinstance(topic, _Refused)
                else _check(call, request, topic, batch, known.get((row, place)), judge)
                for place, batch in enumerate(data.partition_data)
            ]
        )
    return checked


def _topic(call: Call, data: TopicProduceData) -> Topic | _Refused:
    try:
        return topic_of(call.service, data.name, data.topic_id)
    except UnknownTopic as error:
        by_id = call.version >= 13
        code = Error.UNKNOWN_TOPIC_ID if by_id else Error.UNKNOWN_TOPIC_OR_PARTITION
        return _Refused(code, str(error))


def _check(
    call: Call,
    request: ProduceRequest,
    topic: Topic,
    data: PartitionProduceData,
    looked: Outcome | None,
    judge: Judge,
) -> _Batch:
    index, records = data
    # The frame's own bytes, which are ours to give their offsets.
    batch: bytearray | memoryview | None = records if isinstance(records, memoryview) else None
    if looked is not None:
        batch = batch_of(batch, looked)
    try:
        partition = call.broker.topics.partition(topic, index)
        header = judge.header_of(partition, batch)
        if header.is_transactional:
            name = request.transactional_id
            code = transactional_produce.check(call, name, header, (topic.id, index))
            if code:
                return _Refused(code, "the batch is not part of the open transaction")
        assert batch is not None
        return judge.judge(partition, batch, header, looked)
    except HeadraceError as error:
        # What was known is among the locals of this frame.
        error.without_frames()
        return _Refused(code_of(error), str(error), record_errors(error, batch))


def _append(
    call: Call, index: int, checked: _Batch, now_ms: int, commit: Commit
) -> PartitionProduceResponse:
    assert not isinstance(checked, Heavy)
    if isinstance(checked, _Refused):
        code, why, at_fault = checked
        return PartitionProduceResponse(index, code, -1, record_errors=at_fault, error_message=why)
    try:
        taken = append(call.broker, checked, now_ms)
    except HeadraceError as error:
        if isinstance(error, SyncFailed):
            call.service.on_sync_failed(error)
        return PartitionProduceResponse(index, code_of(error), -1, error_message=str(error))
    partition = checked.partition
    commit.data.append((partition, taken.appended.next_offset))
    if taken.records:
        traffic = call.service.counts.traffic(partition.topic.name, "kafka")
        traffic.add_in(taken.records, taken.size_bytes)
    first_offset, start_offset = taken.appended.first_offset, partition.log.start_offset
    return PartitionProduceResponse(index, 0, first_offset, taken.append_time_ms, start_offset)


def _has_errors(response: ProduceResponse) -> bool:
    return any(
        partition.error_code
        for topic in response.responses
        for partition in topic.partition_responses
    )


def _failed(response: ProduceResponse, failure: BaseException) -> ProduceResponse:
    """Nothing of this is known to be on disk."""
    code = code_of_failure(failure)
    return response._replace(
        responses=tuple(
            topic._replace(
                partition_responses=tuple(
                    part if part.error_code else PartitionProduceResponse(part.index, code, -1)
                    for part in topic.partition_responses
                )
            )
            for topic in response.responses
        )
    )
