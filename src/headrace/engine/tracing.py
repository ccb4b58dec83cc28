"""Tracing: where a message is, and how it came there.

    owner     records, states, plan . . . . . . . . . . . . put together
    anywhere                         history . copies . .

What a message is now is known at once; what happened to it has to be read, which may
take a while. So an answer is made of steps, as compaction is: a step touches nothing
but files of its own and can be done anywhere, and what lies between two steps belongs
where the broker does.

Rejected: an index of the state log by message. It would cost every lease and every ack
what tracing one message in a million saves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from headrace.core.errors import InvalidReceipt, UnknownMessage, UnknownTopic
from headrace.core.trace_values import MessageTrace
from headrace.core.values import MessageId, Receipt
from headrace.engine.broker import Broker
from headrace.engine.delayed import due_ms_of
from headrace.engine.history import History
from headrace.engine.partition import Partition
from headrace.engine.runs import runs_of
from headrace.engine.sampling import Sample
from headrace.engine.standing import Standing
from headrace.engine.timeline import Timeline
from headrace.engine.trace_links import Steps, follow_copies, links_in
from headrace.engine.trace_topic import find_trace_partition
from headrace.record import Record, read_header


def id_of_receipt(broker: Broker, receipt: Receipt) -> MessageId:
    """The message that this receipt was for, whether or not it is still good."""
    topic = broker.topics.catalog.topics_by_id.get(receipt.topic_id)
    if topic is None:
        raise InvalidReceipt("the receipt is of a topic that is gone")
    return MessageId(topic.name, receipt.partition, receipt.offset)


def trace_one(broker: Broker, id: MessageId) -> Steps[MessageTrace]:
    """UnknownMessage when there is neither a record nor anything told of it."""
    topic = broker.topics.named(id.topic)
    partition = broker.topics.partition(topic, id.partition)
    if not 0 <= id.offset < partition.high_watermark:
        raise UnknownMessage(
            f"there is no message {id}: partition {id.partition} ends at offset "
            f"{partition.high_watermark}"
        )
    [found] = yield from trace_many(broker, partition, [id.offset])
    if found.published_at_ms is None and not found.events:
        if id.offset >= partition.log.start_offset:
            why = _why_unreadable(partition, id.offset)
            if why is not None:
                raise UnknownMessage(
                    f"message {id} cannot be read: of its batch, {why}; Kafka consumers get it "
                    "as it is"
                )
            raise UnknownMessage(
                f"there is no message {id}: it was compacted away, or the marker of a "
                "transaction has its place"
            )
        raise UnknownMessage(f"message {id} is not retained any more, and nothing of its history")
    return found


def trace_many(
    broker: Broker,
    partition: Partition,
    offsets: Sequence[int],
    starts: dict[int, int] | None = None,
) -> Steps[list[MessageTrace]]:
    """One trace for each of these ascending offsets, which lie below the high
    watermark. `starts` is filled with where groups began to read, by number."""
    if not offsets:
        return []
    topics = broker.topics
    if topics.find(partition.topic.id, partition.index) is not partition:
        raise UnknownTopic(f"topic {partition.topic.name!r} is being deleted")
    # What is now, and the logs as they are now, are taken in one moment.
    records = _records(partition, offsets)
    standing = Standing(broker, partition, records, offsets)
    history = History(partition, find_trace_partition(topics), offsets)
    producers = _producers_of(partition, sorted(records))
    with contextlib.closing(history):
        while (yield history.step) is not None:
            pass
    groups = topics.catalog.groups_by_id

    def name_of(number: int) -> str | None:
        return groups[number].name if number in groups else None

    timelines: dict[int, Timeline] = {}
    for offset in offsets:
        timelines[offset] = timeline = Timeline(offset, name_of)
        timeline.tell(history.of(offset))
        record = records.get(offset)
        if record is not None:
            # Dead letters keep their headers and wait for nothing.
            is_letter = partition.topic.source_id is not None
            timeline.begin(record, None if is_letter else due_ms_of(partition, record))
        if starts is not None:
            starts.update(timeline.starts)
    links = yield from follow_copies(broker, partition, timelines, records)
    sample = Sample(partition.topic.id, partition.index, partition.topic.settings.trace_sample)
    is_cut = partition.state is not None and partition.state.log.start_offset > 0
    traces: list[MessageTrace] = []
    for offset, timeline in timelines.items():
        record = records.get(offset)
        before = [] if record is None else links_in(broker, partition, record)
        traces.append(
            MessageTrace(
                id=MessageId(partition.topic.name, partition.index, offset),
                published_at_ms=None if record is None else record.timestamp_ms,
                key=None if record is None else record.key,
                headers=() if record is None else record.headers,
                value_bytes=None if record is None else len(record.value or b""),
                producer=producers.get(offset),
                transaction=standing.transaction_of(offset),
                is_sampled=sample.has(offset),
                is_cut=is_cut or history.is_long(offset),
                groups=standing.of(offset, timeline.starts),
                events=tuple(timeline.events),
                links=(*before, *links[offset]),
            )
        )
    return traces


def _records(partition: Partition, offsets: Sequence[int]) -> dict[int, Record]:
    there = [offset for offset in offsets if offset >= partition.log.start_offset]
    return {record.offset: record for record in partition.read(runs_of(there))}


def _why_unreadable(partition: Partition, offset: int) -> str | None:
    """Why the batch that this offset lies in cannot be opened; None when it can, or there is
    none. It was tried before."""
    data = partition.log.read(offset, 1, partition.high_watermark)
    if not data:
        return None
    base_offset = read_header(data).base_offset
    return partition.records.unreadable.why(base_offset) if base_offset <= offset else None


def _producers_of(partition: Partition, offsets: Sequence[int]) -> dict[int, str | None]:
    """Of these ascending offsets, each of which has a record."""
    producers: dict[int, str | None] = {}
    end, producer = 0, None
    for offset in offsets:
        if offset >= end:
            header = read_header(partition.log.read(offset, 1, partition.high_watermark))
            end = header.next_offset
            producer = (
                None if header.producer_id < 0 else f"{header.producer_id}/{header.producer_epoch}"
            )
        producers[offset] = producer
    return producers
