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
and the records that follow it begin at 0. What this node itself writes as part of a
transaction, positions for example, carries none either: nobody sends it twice.

A producer's first transactional batch opens its transaction, and a marker decides
it. Between the two nothing but transactional batches may come, and the producer is
not forgotten, however long that takes.

A snapshot, all big-endian:

    magic "HRPS" | version u16 | producers u32
    each producer: id i64 | last seen ms i64 | coordinator epoch i32 | batches u8
        each batch: epoch i16 | base sequence i32 | last sequence i32
                    | first offset i64 | last offset i64 | timestamp ms i64
    open transactions u32
    each: producer id i64 | epoch i16 | first offset i64 | since ms i64
    crc32 u32, over everything before it

Producers lie in the order in which they were last seen, which is also the order in
which they are forgotten; open transactions in the order of their first offsets.

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
    FencedCoordinator,
    FencedProducer,
    InvalidArgument,
    InvalidTransactionState,
    LimitExceeded,
    OutOfOrderSequence,
    UnsupportedFormat,
)
from headrace.core.limits import OPEN_TRANSACTIONS_PER_PARTITION_MAX, PRODUCERS_PER_PARTITION_MAX
from headrace.record.batch import BatchHeader
from headrace.record.control import ControlKind, ControlMarker

# Kafka's clients keep at most five requests in flight, so a retry is never older.
BATCHES_PER_PRODUCER_MAX: Final = 5

_SEQUENCE_MASK: Final = 2**31 - 1
_NO_SEQUENCE: Final = -1

_MAGIC: Final = b"HRPS"
_VERSION: Final = 2
_HEAD: Final = Struct(">4sHI")
_PRODUCER: Final = Struct(">qqiB")
_BATCH: Final = Struct(">hiiqqq")
_COUNT: Final = Struct(">I")
_OPEN: Final = Struct(">qhqq")
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
    # Of the last marker, and where the open transaction began; -1 for none.
    coordinator_epoch: int = -1
    transaction_first_offset: int = -1


class OpenTransaction(NamedTuple):
    """What a producer wrote from this offset on is not decided yet."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    since_ms: int


class DecidedTransaction(NamedTuple):
    """A marker ended it. With that marker the last stable offset is this one."""

    producer_id: int
    first_offset: int
    marker_offset: int
    is_aborted: bool
    last_stable_offset: int


class _Batch(NamedTuple):
    epoch: int
    base_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class _Producer:
    __slots__ = ("batches", "coordinator_epoch", "last_seen_ms")

    def __init__(
        self, last_seen_ms: int, batches: list[_Batch], coordinator_epoch: int = -1
    ) -> None:
        self.last_seen_ms = last_seen_ms
        self.coordinator_epoch = coordinator_epoch
        # Never empty, the latest batch last.
        self.batches = batches


class ProducerState:
    """The idempotent and the transactional producers of one partition."""

    __slots__ = ("_open", "_producers", "_producers_max")

    def __init__(self, producers_max: int = PRODUCERS_PER_PARTITION_MAX) -> None:
        self._producers: OrderedDict[int, _Producer] = OrderedDict()
        self._producers_max = producers_max
        # By producer id. They began one after the other, so the oldest is the first.
        self._open: dict[int, OpenTransaction] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader, now_ms: int) -> Duplicate | None:
        """Whether this batch may be appended: None means yes.

        Raises FencedProducer or OutOfOrderSequence, and InvalidTransactionState
        for a batch without a transaction while one is open. A duplicate is a sign
        of life: its producer is not forgotten while it still retries.
        """
        if header.producer_id < 0:
            return None
        is_numbered = header.base_sequence >= 0
        if not (is_numbered or header.is_control or header.is_transactional):
            raise InvalidArgument(
                f"producer {header.producer_id} sent records without a sequence number"
            )
        producer = self._producers.get(header.producer_id)
        if producer is None:
            self._check_transaction(header)
            return None
        latest = producer.batches[-1]
        _check_epoch(header.producer_id, header.producer_epoch, latest.epoch)
        if header.is_control:
            return None
        if not is_numbered:
            self._check_transaction(header)
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
        self._check_transaction(header)
        return None

    def _check_transaction(self, header: BatchHeader) -> None:
        is_open = header.producer_id in self._open
        if is_open and not header.is_transactional:
            raise InvalidTransactionState(
                f"producer {header.producer_id} has a transaction open and sent a batch that is "
                "not part of it: end the transaction first"
            )
        if (
            header.is_transactional
            and not is_open
            and len(self._open) >= OPEN_TRANSACTIONS_PER_PARTITION_MAX
        ):
            raise LimitExceeded(
                f"{len(self._open)} transactions are open in this partition, and more are not "
                "taken: end some of them"
            )

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> bool:
        """Whether a marker has anything to say: False when one of this epoch has
        already decided all there was. FencedProducer or FencedCoordinator when a
        later one was here."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return True
        latest = producer.batches[-1]
        _check_epoch(producer_id, producer_epoch, latest.epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise FencedCoordinator(
                f"a coordinator of epoch {producer.coordinator_epoch} has decided for producer "
                f"{producer_id}; one of epoch {coordinator_epoch} comes too late"
            )
        return (
            producer_id in self._open
            or producer_epoch > latest.epoch
            or coordinator_epoch > producer.coordinator_epoch
        )

    def on_append(self, header: BatchHeader, first_offset: int, now_ms: int) -> None:
        """The batch was appended at this offset. To be called before the next
        batch is checked: a producer sends several without waiting for answers."""
        if header.producer_id < 0:
            return
        producer_id, epoch = header.producer_id, header.producer_epoch
        if header.is_control:
            self._on_epoch(producer_id, epoch, first_offset, now_ms)
            return
        if header.is_transactional and producer_id not in self._open:
            self._open[producer_id] = OpenTransaction(producer_id, epoch, first_offset, now_ms)
        if header.base_sequence < 0:
            self._on_epoch(producer_id, epoch, first_offset, now_ms)
            return
        last_offset = first_offset + header.last_offset_delta
        self._add(
            producer_id,
            _Batch(
                epoch,
                header.base_sequence,
                header.last_sequence,
                first_offset,
                last_offset,
                now_ms,
            ),
        )

    def on_marker(self, marker: ControlMarker, now_ms: int) -> DecidedTransaction | None:
        """The marker was appended. None when there was nothing to decide."""
        producer_id = marker.producer_id
        producer = self._on_epoch(producer_id, marker.producer_epoch, marker.offset, now_ms)
        producer.coordinator_epoch = max(producer.coordinator_epoch, marker.coordinator_epoch)
        ended = self._open.pop(producer_id, None)
        if ended is None:
            return None
        first_open = self.first_open_offset
        return DecidedTransaction(
            producer_id,
            ended.first_offset,
            marker.offset,
            marker.kind is ControlKind.ABORT,
            marker.offset + 1 if first_open is None else first_open,
        )

    def _on_epoch(self, producer_id: int, epoch: int, offset: int, now_ms: int) -> _Producer:
        """A batch without a sequence came, which may bring a new epoch all the same."""
        producer = self._producers.get(producer_id)
        if producer is not None and producer.batches[-1].epoch == epoch:
            self._see(producer_id, producer, now_ms)
            return producer
        return self._add(
            producer_id, _Batch(epoch, _NO_SEQUENCE, _NO_SEQUENCE, offset, offset, now_ms)
        )

    def _add(self, producer_id: int, batch: _Batch) -> _Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer(batch.timestamp_ms, [batch])
            self._make_room()
            return producer
        producer.batches.append(batch)
        del producer.batches[:-BATCHES_PER_PRODUCER_MAX]
        self._see(producer_id, producer, batch.timestamp_ms)
        return producer

    def _make_room(self) -> None:
        """The one seen least recently goes, unless a transaction of its is open."""
        if len(self._producers) > self._producers_max:
            for producer_id in self._producers:
                if producer_id not in self._open:
                    del self._producers[producer_id]
                    return

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction began; None when none is open."""
        return next(iter(self._open.values())).first_offset if self._open else None

    def is_known(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def open_of(self, producer_id: int) -> OpenTransaction | None:
        return self._open.get(producer_id)

    def open_transactions(self) -> list[OpenTransaction]:
        """The oldest first."""
        return list(self._open.values())

    def time_of(self, producer_id: int, first_offset: int) -> int:
        """When the producer's batch at this offset was appended; -1 where that is not
        remembered."""
        producer = self._producers.get(producer_id)
        batches = [] if producer is None else producer.batches
        return next(
            (each.timestamp_ms for each in batches if each.first_offset == first_offset), -1
        )

    def active(self) -> list[ActiveProducer]:
        """Those that are remembered, the longest unseen first."""
        active = []
        for number, producer in self._producers.items():
            batch, opened = producer.batches[-1], self._open.get(number)
            active.append(
                ActiveProducer(
                    number,
                    batch.epoch,
                    batch.last_sequence,
                    batch.timestamp_ms,
                    producer.coordinator_epoch,
                    -1 if opened is None else opened.first_offset,
                )
            )
        return active

    def expire(self, now_ms: int, after_ms: int) -> int:
        """Forget producers not seen for `after_ms` and without an open transaction;
        how many were forgotten."""
        forgotten = []
        for producer_id, producer in self._producers.items():
            if now_ms - producer.last_seen_ms < after_ms:
                break
            if producer_id not in self._open:
                forgotten.append(producer_id)
        for producer_id in forgotten:
            del self._producers[producer_id]
        return len(forgotten)

    def truncate_to(self, offset: int) -> None:
        """Forget the batches at and above this offset.

        A producer of which none of the five is left becomes unknown, and so may
        start anywhere, and a transaction whose marker is lost stays decided;
        replaying the log from a snapshot knows both better.
        """
        self._open = {
            number: opened for number, opened in self._open.items() if opened.first_offset < offset
        }
        for producer_id, producer in list(self._producers.items()):
            producer.batches = [batch for batch in producer.batches if batch.last_offset < offset]
            if not producer.batches:
                del self._producers[producer_id]

    def encode(self) -> bytes:
        parts = [_HEAD.pack(_MAGIC, _VERSION, len(self._producers))]
        for producer_id, producer in self._producers.items():
            head = (producer.last_seen_ms, producer.coordinator_epoch, len(producer.batches))
            parts.append(_PRODUCER.pack(producer_id, *head))
            parts += [_BATCH.pack(*batch) for batch in producer.batches]
        parts.append(_COUNT.pack(len(self._open)))
        parts += [_OPEN.pack(*opened) for opened in self._open.values()]
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
            end = state._read_open(data[:body_end], state._read_producers(data[:body_end], count))
        except StructError as error:
            raise CorruptLog("a producer snapshot ends within a producer") from error
        if end != body_end:
            raise CorruptLog(f"{body_end - end} bytes follow the end of a producer snapshot")
        return state

    def _read_producers(self, body: bytes, count: int) -> int:
        position = _HEAD.size
        for _ in range(count):
            producer_id, last_seen_ms, coordinator_epoch, batch_count = _PRODUCER.unpack_from(
                body, position
            )
            position += _PRODUCER.size
            if not 1 <= batch_count <= BATCHES_PER_PRODUCER_MAX:
                raise CorruptLog(f"producer {producer_id} has {batch_count} batches in a snapshot")
            batches = []
            for _ in range(batch_count):
                batches.append(_Batch(*_BATCH.unpack_from(body, position)))
                position += _BATCH.size
            self._producers[producer_id] = _Producer(last_seen_ms, batches, coordinator_epoch)
            if len(self._producers) > self._producers_max:
                self._producers.popitem(last=False)
        return position

    def _read_open(self, body: bytes, position: int) -> int:
        (count,) = _COUNT.unpack_from(body, position)
        position += _COUNT.size
        first_offset = -1
        for _ in range(count):
            opened = OpenTransaction(*_OPEN.unpack_from(body, position))
            position += _OPEN.size
            if opened.first_offset <= first_offset or opened.producer_id in self._open:
                raise CorruptLog(f"producer {opened.producer_id} is open twice or out of order")
            first_offset = opened.first_offset
            self._open[opened.producer_id] = opened
        return position

    def _see(self, producer_id: int, producer: _Producer, now_ms: int) -> None:
        producer.last_seen_ms = now_ms
        self._producers.move_to_end(producer_id)


def _check_epoch(producer_id: int, epoch: int, latest: int) -> None:
    if epoch < latest:
        raise FencedProducer(
            f"producer {producer_id} has epoch {latest}; "
            f"a batch of epoch {epoch} comes too late: start a new producer"
        )


def _find_duplicate(producer: _Producer, header: BatchHeader) -> Duplicate | None:
    """The batch that this one is again. It may have fewer numbers, the last ones of this
    one's, where records that had been published before were left out of it."""
    for batch in producer.batches:
        if (
            batch.epoch == header.producer_epoch
            and batch.last_sequence == header.last_sequence
            and (batch.base_sequence - header.base_sequence) & _SEQUENCE_MASK
            <= header.last_offset_delta
        ):
            return Duplicate(batch.first_offset, batch.last_offset)
    return None
