"""Produce, versions 3 to 13 (0 to 2 are advertised and refused).

    acks    answered
    0       never; when something failed the connection is cut, as Kafka does, since
            there is no other way to say so. What comes behind it waits for the batch
            to be safe all the same, and so sees it
    1, -1   when the batch is as safe as the topic's durability says
    other   INVALID_REQUIRED_ACKS, and nothing is written

A request holds one batch for each partition. The broker checks its checksum and
header, gives it its offsets in place and appends it. Where queues read the topic it
is opened first, and its records are held to the limits of messages. An idempotent
producer's retry is answered with the first offsets. Partitions fail one by one: the
answer has a code for each.

A transactional batch is checked with the coordinator right before it is appended:
what does not belong to the transaction that is open now is refused, or it would never
be decided. From version 12 on the request itself makes its partitions part of the
transaction; see `transactional_produce`.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from headrace.core.errors import (
    CorruptBatch,
    DiskFull,
    HeadraceError,
    RecordTooLarge,
    UnknownPartition,
    UnknownTopic,
)
from headrace.core.ports import Buffer
from headrace.engine.catalog import Topic
from headrace.engine.commit import Commit
from headrace.engine.publish import check_foreign
from headrace.record import BatchHeader, check_batch
from headrace.record.batch import HEADER_BYTES
from headrace.server.kafka import transactional_produce
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.names import topic_of
from headrace.wire.kafka.generated.produce_request import ProduceRequest, TopicProduceData
from headrace.wire.kafka.generated.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)


class _Refused(NamedTuple):
    code: int
    why: str


def handle(
    call: Call, request: ProduceRequest
) -> ProduceResponse | asyncio.Future[ProduceResponse | None] | None:
    if request.transactional_id is not None:
        later = transactional_produce.wait_if_needed(call, request, _produce)
        if later is not None:
            return later
    return _produce(call, request)


def _produce(
    call: Call, request: ProduceRequest
) -> ProduceResponse | asyncio.Future[ProduceResponse | None] | None:
    service = call.service
    now_ms = service.clock.now_ms()
    commit = service.commit()
    refused = _refusal(request)
    topics = tuple(
        _append_to_topic(call, request.transactional_id, data, refused, now_ms, commit)
        for data in request.topic_data
    )
    waiting = service.submit(commit)
    response = ProduceResponse(responses=topics)
    is_silent = request.acks == 0
    if is_silent and _has_errors(response):
        call.connection.close("a produce without acks failed")
    if waiting is None:
        return None if is_silent else response
    answer: asyncio.Future[ProduceResponse | None] = service.loop.create_future()

    def on_safe(done: asyncio.Future[None]) -> None:
        failed = not done.cancelled() and done.exception() is not None
        if not answer.done():
            told = _failed(response) if failed else response
            answer.set_result(None if is_silent else told)

    waiting.add_done_callback(on_safe)
    return answer


def _refusal(request: ProduceRequest) -> _Refused | None:
    """Why nothing of this request is written, if so."""
    if request.acks not in (-1, 0, 1):
        return _Refused(Error.INVALID_REQUIRED_ACKS, f"acks is -1, 0 or 1, not {request.acks}")
    return None


def _append_to_topic(
    call: Call,
    transactional_id: str | None,
    data: TopicProduceData,
    refused: _Refused | None,
    now_ms: int,
    commit: Commit,
) -> TopicProduceResponse:
    topic: Topic | None = None
    if refused is None:
        try:
            topic = topic_of(call.service, data.name, data.topic_id)
        except UnknownTopic as error:
            by_id = call.version >= 13
            code = Error.UNKNOWN_TOPIC_ID if by_id else Error.UNKNOWN_TOPIC_OR_PARTITION
            refused = _Refused(code, str(error))
    partitions = []
    for index, records in data.partition_data:
        if refused is not None or topic is None:
            partitions.append(_refuse(index, refused))
        else:
            partitions.append(
                _append(call, transactional_id, topic, index, records, now_ms, commit)
            )
    return TopicProduceResponse(data.name, data.topic_id, tuple(partitions))


def _refuse(index: int, refused: _Refused | None) -> PartitionProduceResponse:
    assert refused is not None
    return PartitionProduceResponse(index, refused.code, -1, error_message=refused.why)


def _append(
    call: Call,
    transactional_id: str | None,
    topic: Topic,
    index: int,
    records: Buffer | None,
    now_ms: int,
    commit: Commit,
) -> PartitionProduceResponse:
    broker = call.service.broker
    try:
        partition = broker.topics.partition(topic, index)
        if topic.is_internal:
            raise UnknownPartition("internal topics are not written to from outside")
        # The frame's own bytes, which are ours to give their offsets.
        if not isinstance(records, memoryview) or not records:
            raise CorruptBatch("there are no records")
        header = check_batch(records)
        refused = _check_header(header, len(records))
        if refused is None and header.is_transactional:
            code = transactional_produce.check(call, transactional_id, header, (topic.id, index))
            if code:
                refused = _Refused(code, "the batch is not part of the open transaction")
        if refused is not None:
            return _refuse(index, refused)
        if header.size_bytes > topic.settings.record_bytes_max + HEADER_BYTES:
            raise RecordTooLarge(
                f"the batch has {header.size_bytes} bytes and this topic takes "
                f"{topic.settings.record_bytes_max}"
            )
        check_foreign(partition, records)
        broker.check_space(header.size_bytes)
        appended = partition.append(records, header, now_ms)
    except (HeadraceError, OSError) as error:
        if isinstance(error, OSError):
            error = DiskFull(str(error))
        return PartitionProduceResponse(index, code_of(error), -1, error_message=str(error))
    commit.data.append((partition, appended.next_offset))
    if not appended.duplicate:
        call.service.counts.traffic(topic.name, "kafka").add_in(header.count, header.size_bytes)
    return PartitionProduceResponse(index, 0, appended.first_offset, -1, partition.log.start_offset)


def _check_header(header: BatchHeader, size: int) -> _Refused | None:
    """What a producer may not send, though it is a batch."""
    if header.size_bytes != size:
        return _Refused(Error.INVALID_RECORD, "more than one batch for a partition")
    if header.is_control:
        return _Refused(Error.INVALID_RECORD, "producers do not send control batches")
    if not header.count or not header.is_dense:
        return _Refused(
            Error.INVALID_RECORD,
            f"{header.count} records for {header.last_offset_delta + 1} offsets",
        )
    if header.is_transactional and header.producer_id < 0:
        return _Refused(Error.INVALID_RECORD, "a transaction has a producer with an id")
    if header.producer_id >= 0 and header.base_sequence < 0:
        return _Refused(Error.INVALID_REQUEST, "a producer with an id numbers its records")
    if header.has_log_append_time or header.has_delete_horizon:
        return _Refused(Error.INVALID_TIMESTAMP, "the time of appending is not a producer's to set")
    return None


def _has_errors(response: ProduceResponse) -> bool:
    return any(
        partition.error_code
        for topic in response.responses
        for partition in topic.partition_responses
    )


def _failed(response: ProduceResponse) -> ProduceResponse:
    """Nothing of this is known to be on disk."""
    return response._replace(
        responses=tuple(
            topic._replace(
                partition_responses=tuple(
                    part
                    if part.error_code
                    else PartitionProduceResponse(part.index, Error.KAFKA_STORAGE_ERROR, -1)
                    for part in topic.partition_responses
                )
            )
            for topic in response.responses
        )
    )
