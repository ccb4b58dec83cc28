"""The topic of traces: history that outlives the state logs.

    key     topic id, partition                20 bytes: whose state log it comes from
    value   position, group's name, event      msgpack; the event as in the state log,
                                               but of the chosen messages alone

A batch has records of one partition only, so whoever looks for a partition's history
finds by a search for its key whether a batch is worth reading. The same event may be
there twice, when a crash came between its writing and the cutting of the state log; its
position says that it is the same.

Rejected: one record for each message. A run of ten thousand that failed together is one
event, here as there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from headrace.core.errors import CorruptBatch, CorruptLog
from headrace.core.settings import DAY_MS, TopicSettings
from headrace.engine.catalog import TRACE_TOPIC
from headrace.engine.partition import Partition
from headrace.engine.state import Event
from headrace.engine.state_reading import SegmentTwins
from headrace.engine.topics import Topics
from headrace.record import HEADER_BYTES, NewRecord, build_batch, read_header, read_records

BATCH_BYTES = 1024 * 1024
BATCH_RECORDS = 10_000
PIECE_BYTES = 256 * 1024
# A record's key begins within so many bytes of its batch's header.
_KEY_WITHIN: Final = 16

SETTINGS: Final = TopicSettings(
    retention_ms=7 * DAY_MS,
    retention_bytes=256 * 1024 * 1024,
    segment_bytes=16 * 1024 * 1024,
    trace_sample=None,
)


class Carried(msgspec.Struct, array_like=True, frozen=True):
    position: int
    # By name, since the group may be gone when somebody asks.
    group: str
    event: Event


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Carried] = msgspec.msgpack.Decoder(Carried)


def key_of(topic_id: bytes, partition: int) -> bytes:
    return topic_id + partition.to_bytes(4, "big")


def find_trace_partition(topics: Topics) -> Partition | None:
    topic = topics.catalog.topics.get(TRACE_TOPIC)
    return None if topic is None else topics.partitions(topic)[0]


def make_trace_partition(topics: Topics, now_ms: int) -> Partition:
    found = find_trace_partition(topics)
    if found is None:
        topic = topics.create(TRACE_TOPIC, 1, SETTINGS, now_ms, internal=True)
        found = topics.partitions(topic)[0]
    return found


def append_carried(
    target: Partition, key: bytes, carried: Sequence[tuple[int, Carried]], now_ms: int
) -> None:
    """Events, each with its time, of the partition with this key."""
    records: list[NewRecord] = []
    size = 0
    for at_ms, each in carried:
        value = _encoder.encode(each)
        if records and (size + len(value) > BATCH_BYTES or len(records) >= BATCH_RECORDS):
            _append(target, records, now_ms)
            records, size = [], 0
        records.append(NewRecord(key, value, (), at_ms))
        size += len(value) + len(key)
    if records:
        _append(target, records, now_ms)


def _append(target: Partition, records: Sequence[NewRecord], now_ms: int) -> None:
    batch = build_batch(records)
    target.append(batch, read_header(batch), now_ms)


def read_carried(twins: SegmentTwins, key: bytes) -> Iterator[tuple[int, list[Carried]]]:
    """For each piece its bytes and the events of the partition with this key."""
    for data in twins.pieces(PIECE_BYTES):
        found: list[Carried] = []
        position = 0
        try:
            while position < len(data):
                header = read_header(data, position)
                end = position + header.size_bytes
                start = position + HEADER_BYTES
                if data.find(key, start, min(end, start + _KEY_WITHIN + len(key))) >= 0:
                    for record in read_records(data[position:end], header):
                        found.append(_decoder.decode(record.value or b""))
                position = end
        except (CorruptBatch, msgspec.DecodeError) as error:
            raise CorruptLog(f"a batch of {TRACE_TOPIC} cannot be read: {error}") from error
        yield len(data), found
