"""The topic of traces: history that outlives the state logs.

    key     topic id, partition                20 bytes: whose state log it comes from
            first offset, last offset          16 bytes: what its batch speaks of
    value   position, group's name, event      msgpack; the event as in the state log,
                                               but of the chosen messages alone

A batch has records of one partition only, and all its records have the same key, so
whoever looks for a message's history sees at the beginning of a batch whether it is worth
reading; the rest of the others is not even touched. The same event may be
there twice, when a crash came between its writing and the cutting of the state log; its
position says that it is the same.

Rejected: one record for each message. A run of ten thousand that failed together is one
event, here as there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
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

BATCH_BYTES = 64 * 1024
# A record's key begins within so many bytes of its batch's header.
_KEY_WITHIN: Final = 16
_KEY_BYTES: Final = 20
_SPAN: Final = struct.Struct(">QQ")
_SPAN_MAX: Final = (1 << 63) - 1
_HEAD_BYTES: Final = HEADER_BYTES + _KEY_WITHIN + _KEY_BYTES + _SPAN.size
# The beginnings of small batches are read many at a time.
_WALK_BYTES: Final = 64 * 1024

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


class CarriedBatch:
    """A batch in the making, of events of the partition with this key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._values: list[tuple[int, bytes]] = []
        self._first, self._last = _SPAN_MAX, 0
        self._size = 0

    @property
    def is_full(self) -> bool:
        return self._size >= BATCH_BYTES

    def add(self, at_ms: int, carried: Carried, first: int, last: int) -> None:
        """An event, its time, and the offsets that it speaks of."""
        value = _encoder.encode(carried)
        self._values.append((at_ms, value))
        self._size += len(value) + _KEY_BYTES + _SPAN.size
        self._first, self._last = min(self._first, first), max(self._last, last)

    def append_to(self, target: Partition, now_ms: int) -> None:
        """It is empty after that."""
        if not self._values:
            return
        key = self._key + _SPAN.pack(self._first, self._last)
        batch = build_batch([NewRecord(key, value, (), at_ms) for at_ms, value in self._values])
        target.append(batch, read_header(batch), now_ms)
        self._values, self._size = [], 0
        self._first, self._last = _SPAN_MAX, 0


def read_carried(
    twins: SegmentTwins, key: bytes, first: int, last: int
) -> Iterator[tuple[int, list[Carried]]]:
    """For each piece the bytes that were read of it, and the events of the partition with
    this key that may speak of offsets from first to last."""
    for segment in twins.segments:
        data, at, position = b"", 0, 0
        length = _HEAD_BYTES
        while position < segment.size_bytes:
            read = 0
            if position + _HEAD_BYTES - at > len(data):
                data, at = segment.file().read(length, position), position
                read = len(data)
            try:
                header = read_header(data, position - at)
                if header.base_offset >= twins.end:
                    break
                found: list[Carried] = []
                if _may_speak_of(data, position - at + HEADER_BYTES, key, first, last):
                    batch = segment.read_batch(position, header)
                    read += len(batch)
                    for record in read_records(batch, header):
                        found.append(_decoder.decode(record.value or b""))
            except (CorruptBatch, msgspec.DecodeError) as error:
                raise CorruptLog(f"a batch of {TRACE_TOPIC} cannot be read: {error}") from error
            position += header.size_bytes
            length = _HEAD_BYTES if header.size_bytes > _WALK_BYTES // 4 else _WALK_BYTES
            if read:
                yield read, found


def _may_speak_of(data: bytes, start: int, key: bytes, first: int, last: int) -> bool:
    place = data.find(key, start, start + _KEY_WITHIN + _KEY_BYTES)
    if place < 0:
        return False
    # The length of a key is written before it, doubled.
    if data[place - 1] != 2 * (_KEY_BYTES + _SPAN.size):
        # From a version that did not say what it speaks of.
        return True
    lowest, highest = _SPAN.unpack_from(data, place + _KEY_BYTES)
    return bool(lowest <= last and first <= highest)
