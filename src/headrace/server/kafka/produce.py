"""Produce, versions 3 to 13 (0 to 2 are advertised and refused).

    acks    answered
    0       never
    1, -1   when the batch is as safe as the topic's durability says

A request holds one batch for each partition. The broker checks its checksum and
header, gives it its offsets in place and appends it; it is not opened. An
idempotent producer's retry is answered with the first offsets. Partitions fail one
by one: the answer has a code for each.
"""

from __future__ import annotations

import asyncio

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
from headrace.record import check_batch
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.names import topic_of
from headrace.wire.kafka.generated.produce_request import ProduceRequest, TopicProduceData
from headrace.wire.kafka.generated.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)


def handle(
    call: Call, request: ProduceRequest
) -> ProduceResponse | asyncio.Future[ProduceResponse] | None:
    service = call.service
    now_ms = service.clock.now_ms()
    commit = service.commit()
    transactional = request.transactional_id is not None
    topics = tuple(
        _append_to_topic(call, data, transactional, now_ms, commit) for data in request.topic_data
    )
    waiting = service.submit(commit)
    if request.acks == 0:
        return None
    response = ProduceResponse(responses=topics)
    if waiting is None:
        return response
    answer: asyncio.Future[ProduceResponse] = service.loop.create_future()

    def on_safe(done: asyncio.Future[None]) -> None:
        if not answer.done():
            failed = not done.cancelled() and done.exception() is not None
            answer.set_result(_failed(response) if failed else response)

    waiting.add_done_callback(on_safe)
    return answer


def _append_to_topic(
    call: Call, data: TopicProduceData, transactional: bool, now_ms: int, commit: Commit
) -> TopicProduceResponse:
    topic: Topic | None = None
    unknown = Error.NONE
    try:
        topic = topic_of(call.service, data.name, data.topic_id)
    except UnknownTopic:
        unknown = Error.UNKNOWN_TOPIC_OR_PARTITION if call.version < 13 else Error.UNKNOWN_TOPIC_ID
    partitions = []
    for index, records in data.partition_data:
        if topic is None:
            partitions.append(PartitionProduceResponse(index, unknown, -1))
        elif transactional:
            partitions.append(
                PartitionProduceResponse(
                    index,
                    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    -1,
                    error_message="this node does not speak transactions",
                )
            )
        else:
            partitions.append(_append(call, topic, index, records, now_ms, commit))
    return TopicProduceResponse(data.name, data.topic_id, tuple(partitions))


def _append(
    call: Call, topic: Topic, index: int, records: Buffer | None, now_ms: int, commit: Commit
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
        if header.size_bytes != len(records) or header.is_control or not header.count:
            return PartitionProduceResponse(
                index, Error.INVALID_RECORD, -1, error_message="one batch of records is expected"
            )
        if header.size_bytes > topic.settings.record_bytes_max + 61:
            raise RecordTooLarge(f"the batch has {header.size_bytes} bytes")
        broker.check_space(header.size_bytes)
        appended = partition.append(records, header, now_ms)
    except (HeadraceError, OSError) as error:
        if isinstance(error, OSError):
            error = DiskFull(str(error))
        return PartitionProduceResponse(index, code_of(error), -1, error_message=str(error))
    commit.data.append((partition, appended.next_offset))
    return PartitionProduceResponse(index, 0, appended.first_offset, -1, partition.log.start_offset)


def _failed(response: ProduceResponse) -> ProduceResponse:
    """Nothing of this is known to be on disk."""
    return response._replace(
        responses=tuple(
            topic._replace(
                partition_responses=tuple(
                    PartitionProduceResponse(part.index, Error.KAFKA_STORAGE_ERROR, -1)
                    for part in topic.partition_responses
                )
            )
            for topic in response.responses
        )
    )
