"""Producer state: what makes a producer's retry harmless in one partition.

An idempotent producer numbers its records. For each producer the last five batches
are remembered, so a batch that is sent again is answered with the offsets it already
has, a gap is refused, and a producer of an older epoch is fenced. The rules are
Kafka's:

    producer id -1                 not idempotent: passes
    unknown producer               may start at any sequence
    lower epoch                    FencedProducer
    same epoch, one of the last 5  Duplicate, with its offsets
    same epoch, next sequence      passes; after 2**31 - 1 comes 0
    higher epoch, sequence 0       passes
    anything else                  OutOfOrderSequence

A control batch carries no sequence. One of a higher epoch fences the older epoch,
and the records that follow it begin at 0.

A snapshot, all big-endian:

    magic "HRPS" | version u16 | producers u32
    each producer: id i64 | last seen ms i64 | batches u8
        each batch: epoch i16 | base sequence i32 | last sequence i32
                    | first offset i64 | last offset i64 | timestamp ms i64
    crc32 u32, over everything before it

Producers lie in the order in which they were last seen, which is also the order in
which they are forgotten.

Rejected: keeping only the epoch of the latest batch, as Kafka does. With an epoch in
every batch, truncation also takes back the epoch that the lost batches brought.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, Self

from headrace.core.errors import (
    CorruptLog,
    FencedProducer,
    InvalidArgument,
    OutOfOrderSequence,
    UnsupportedFormat,
)
from headrace.core.limits import PRODUCERS_PER_PARTITION_MAX
from headrace.record.batch import BatchHeader

# Kafka's clients keep at most five requests in flight, so a retry is never older.
BATCHES_PER_PRODUCER_MAX: Final = 5

_SEQUENCE_MASK: Final = 2**31 - 1
_NO_SEQUENCE: Final = -1

_MAGIC: Final = b"HRPS"
_VERSION: Final = 1
_HEAD: Final = Struct(">4sHI")
_PRODUCER: Final = Struct(">qqB")
_BATCH: Final = Struct(">hiiqqq")
_CRC: Final = Struct(">I")


class Duplicate(NamedTuple):
    """The batch is here already, at these offsets. An answer, not an error."""

    first_offset: int
    last_offset: int


class ActiveProducer(NamedTuple):
    """One producer as an operator sees it."""

    producer_id: int
    epoch: int
    # -1 when its epoch has brought no records yet.
    last_sequence: int
    last_timestamp_ms: int


class _Batch(NamedTuple):
    epoch: int
    base_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class _Producer:
    __slots__ = ("batches", "last_seen_ms")

    def __init__(self, last_seen_ms: int, batches: list[_Batch]) -> None:
        self.last_seen_ms = last_seen_ms
        # Never empty, the latest batch last.
        self.batches = batches


class ProducerState:
    """The idempotent producers of one partition."""

    __slots__ = ("_producers", "_producers_max")

    def __init__(self, producers_max: int = PRODUCERS_PER_PARTITION_MAX) -> None:
        self._producers: OrderedDict[int, _Producer] = OrderedDict()
        self._producers_max = producers_max

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader, now_ms: int) -> Duplicate | None:
        """Whether this batch may be appended: None means yes.

        Raises FencedProducer or OutOfOrderSequence. A duplicate is a sign of
        life: its producer is not forgotten while it still retries.
        """
        if header.producer_id < 0:
            return None
        if header.base_sequence < 0 and not header.is_control:
            raise InvalidArgument(
                f"producer {header.producer_id} sent records without a sequence number"
            )
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        latest = producer.batches[-1]
        if header.producer_epoch < latest.epoch:
            raise FencedProducer(
                f"producer {header.producer_id} has epoch {latest.epoch}; "
                f"a batch of epoch {header.producer_epoch} comes too late: start a new producer"
            )
        if header.is_control:
            return None
        if header.producer_epoch > latest.epoch:
            expected = 0
        else:
            expected = (latest.last_sequence + 1) & _SEQUENCE_MASK
            duplicate = _find_duplicate(producer, header)
            if duplicate is not None:
                self._see(header.producer_id, producer, now_ms)
                return duplicate
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} (epoch {header.producer_epoch}) sent sequence "
                f"{header.base_sequence} where {expected} comes next"
            )
        return None

    def on_append(self, header: BatchHeader, first_offset: int, now_ms: int) -> None:
        """The batch was appended at this offset. To be called before the next
        batch is checked: a producer sends several without waiting for answers."""
        if header.producer_id < 0:
            return
        producer = self._producers.get(header.producer_id)
        base_sequence, last_sequence = header.base_sequence, header.last_sequence
        if header.is_control:
            if producer is not None and producer.batches[-1].epoch == header.producer_epoch:
                self._see(header.producer_id, producer, now_ms)
                return
            base_sequence = last_sequence = _NO_SEQUENCE
        batch = _Batch(
            header.producer_epoch,
            base_sequence,
            last_sequence,
            first_offset,
            first_offset + header.last_offset_delta,
            now_ms,
        )
        if producer is None:
            self._producers[header.producer_id] = _Producer(now_ms, [batch])
            if len(self._producers) > self._producers_max:
                self._producers.popitem(last=False)
            return
        producer.batches.append(batch)
        del producer.batches[:-BATCHES_PER_PRODUCER_MAX]
        self._see(header.producer_id, producer, now_ms)

    def active(self) -> list[ActiveProducer]:
        """Those that are remembered, the longest unseen first."""
        latest = ((number, each.batches[-1]) for number, each in self._producers.items())
        return [
            ActiveProducer(number, batch.epoch, batch.last_sequence, batch.timestamp_ms)
            for number, batch in latest
        ]

    def expire(self, now_ms: int, after_ms: int) -> int:
        """Forget producers not seen for `after_ms`; how many were forgotten."""
        forgotten = 0
        while self._producers:
            oldest = next(iter(self._producers.values()))
            if now_ms - oldest.last_seen_ms < after_ms:
                break
            self._producers.popitem(last=False)
            forgotten += 1
        return forgotten

    def truncate_to(self, offset: int) -> None:
        """Forget the batches at and above this offset.

        A producer of which none of the five is left becomes unknown, and so may
        start anywhere; replaying the log from a snapshot knows it better.
        """
        for producer_id, producer in list(self._producers.items()):
            producer.batches = [batch for batch in producer.batches if batch.last_offset < offset]
            if not producer.batches:
                del self._producers[producer_id]

    def encode(self) -> bytes:
        parts = [_HEAD.pack(_MAGIC, _VERSION, len(self._producers))]
        for producer_id, producer in self._producers.items():
            parts.append(_PRODUCER.pack(producer_id, producer.last_seen_ms, len(producer.batches)))
            parts += [_BATCH.pack(*batch) for batch in producer.batches]
        body = b"".join(parts)
        return body + _CRC.pack(zlib.crc32(body))

    @classmethod
    def decode(cls, data: bytes, producers_max: int = PRODUCERS_PER_PARTITION_MAX) -> Self:
        """The state that was encoded; CorruptLog when these bytes are not one,
        and UnsupportedFormat when they are one of another version."""
        if len(data) < _HEAD.size + _CRC.size:
            raise CorruptLog(f"a producer snapshot of {len(data)} bytes is cut short")
        body_end = len(data) - _CRC.size
        if zlib.crc32(data[:body_end]) != _CRC.unpack_from(data, body_end)[0]:
            raise CorruptLog("the checksum of a producer snapshot does not match")
        magic, version, count = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise CorruptLog("these bytes are not a producer snapshot")
        if version != _VERSION:
            raise UnsupportedFormat(f"producer snapshot of version {version}, not {_VERSION}")
        state = cls(producers_max)
        try:
            end = state._read_producers(data[:body_end], count)
        except StructError as error:
            raise CorruptLog("a producer snapshot ends within a producer") from error
        if end != body_end:
            raise CorruptLog(f"{body_end - end} bytes follow the last producer of a snapshot")
        return state

    def _read_producers(self, body: bytes, count: int) -> int:
        position = _HEAD.size
        for _ in range(count):
            producer_id, last_seen_ms, batch_count = _PRODUCER.unpack_from(body, position)
            position += _PRODUCER.size
            if not 1 <= batch_count <= BATCHES_PER_PRODUCER_MAX:
                raise CorruptLog(f"producer {producer_id} has {batch_count} batches in a snapshot")
            batches = []
            for _ in range(batch_count):
                batches.append(_Batch(*_BATCH.unpack_from(body, position)))
                position += _BATCH.size
            self._producers[producer_id] = _Producer(last_seen_ms, batches)
            if len(self._producers) > self._producers_max:
                self._producers.popitem(last=False)
        return position

    def _see(self, producer_id: int, producer: _Producer, now_ms: int) -> None:
        producer.last_seen_ms = now_ms
        self._producers.move_to_end(producer_id)


def _find_duplicate(producer: _Producer, header: BatchHeader) -> Duplicate | None:
    for batch in producer.batches:
        if (
            batch.epoch == header.producer_epoch
            and batch.base_sequence == header.base_sequence
            and batch.last_sequence == header.last_sequence
        ):
            return Duplicate(batch.first_offset, batch.last_offset)
    return None
