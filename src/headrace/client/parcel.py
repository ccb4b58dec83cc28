"""Parcels: messages of a producer that travel together, and what becomes of them.

    publish, publish, ...  ->  a parcel grows  ->  closed  ->  sent  ->  ended
                                                                         place or error

A `BatchParcel` is a record batch in the making: columns of keys, values and headers,
which become the bytes of a batch when it is sent. The node does not open it. A
`MessageParcel` holds messages for a topic where the node has to look at each of them,
because it drops duplicates.

A parcel is changed under the lock of its producer. Whoever waits for it needs none.

Rejected: a future for each message. A lock and a list of callbacks for each of them
cost more than making the record; here a message is a parcel and a number in it.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate

from headrace.core.errors import HeadraceError
from headrace.core.values import Outgoing, Published
from headrace.record import NO_HEADERS, Codec, seal_records
from headrace.record.attribute_headers import PREFIX
from headrace.record.column_builder import encode_rows
from headrace.record.columns import BytesColumn

_DEDUP_ID = f"{PREFIX}dedup-id"
# Offset of what was sent and not answered.
UNKNOWN_OFFSET = -1


class Parcel:
    """What all parcels have in common: how they end."""

    __slots__ = (
        "_callbacks", "_turn", "count", "deadline", "error", "first_offset",
        "is_heard", "is_over", "number", "opened", "partition", "size_bytes", "stamp",
    )  # fmt: skip

    def __init__(self, partition: int, opened: float, deadline: float) -> None:
        self.partition = partition
        # Of the monotonic clock: when its first message came, and until when it is tried.
        self.opened = opened
        self.deadline = deadline
        # Its place in the order of its partition; see `PartitionWriter`.
        self.number = -1
        self.stamp: tuple[int, int, int] | None = None
        self.count = 0
        self.size_bytes = 0
        self.is_over = False
        # Whether anybody was told, or asked to be, how it ended.
        self.is_heard = False
        self.error: HeadraceError | None = None
        self.first_offset = UNKNOWN_OFFSET
        self._callbacks: list[Callable[[], None]] = []
        self._turn = threading.Lock()
        self._turn.acquire()

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be sent again when it is not known whether it arrived."""
        return True

    def end(self, error: HeadraceError | None) -> list[Callable[[], None]]:
        """It is over; what is to be called, without the lock, now that it is."""
        self.error = error
        self.is_over = True
        self._forget()
        callbacks, self._callbacks = self._callbacks, []
        self._turn.release()
        return callbacks

    def _forget(self) -> None:
        """What is not needed any more once it is over."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Under the lock; False when it is over, and nothing will be called."""
        if not self.is_over:
            self._callbacks.append(callback)
        return not self.is_over

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it is over, after this long at most."""
        if self.is_over:
            return True
        if not self._turn.acquire(timeout=-1 if seconds is None else max(0.0, seconds)):
            return False
        self._turn.release()
        return True

    def place_of(self, number: int) -> Published:
        """Where a message is; raises why it is nowhere. Once it is over."""
        self.is_heard = True
        if self.error is not None:
            raise self.error
        if self.first_offset == UNKNOWN_OFFSET:
            return Published(self.partition, UNKNOWN_OFFSET)
        return Published(self.partition, self.first_offset + number)


class BatchParcel(Parcel):
    __slots__ = ("_blocks", "_keys", "_times", "_values")

    def __init__(self, partition: int, opened: float, deadline: float) -> None:
        super().__init__(partition, opened, deadline)
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._blocks: list[bytes] = []
        self._times: list[int] = []

    def add(
        self, key: bytes | None, value: bytes | None, block: bytes, time_ms: int, size: int
    ) -> int:
        """Its number in here."""
        self._keys.append(key)
        self._values.append(value)
        self._blocks.append(block)
        self._times.append(time_ms)
        self.size_bytes += size
        self.count += 1
        return self.count - 1

    def add_values(self, values: Sequence[bytes], block: bytes, time_ms: int, size: int) -> int:
        """Many that differ in their values alone; the number of the first."""
        count = len(values)
        self._keys += [None] * count
        self._values += values
        self._blocks += [block] * count
        self._times += [time_ms] * count
        self.size_bytes += size
        self.count += count
        return self.count - count

    def encode(self, codec: Codec) -> bytearray:
        """The batch, with the number and the producer that its stamp says."""
        producer_id, epoch, sequence = self.stamp or (-1, -1, -1)
        base_ms = self._times[0]
        records = encode_rows(
            memoryview(array("i", range(self.count))).cast("B"),
            _column(self._keys),
            _column(self._values),
            _blocks_column(self._blocks),
            memoryview(array("q", self._times)).cast("B"),
            base_ms,
        )
        return seal_records(
            records,
            self.count,
            base_ms,
            max(self._times),
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )

    def _forget(self) -> None:
        self._keys = []
        self._values = []
        self._blocks = []
        self._times = []


class MessageParcel(Parcel):
    __slots__ = ("messages", "places")

    def __init__(self, partition: int, opened: float, deadline: float) -> None:
        super().__init__(partition, opened, deadline)
        self.messages: list[Outgoing] = []
        self.places: Sequence[Published] = ()

    def add(self, message: Outgoing, size: int) -> int:
        self.messages.append(message)
        self.size_bytes += size
        self.count += 1
        return self.count - 1

    @property
    def is_repeatable(self) -> bool:
        # What has an id of its own is dropped when it is there already.
        return all(
            any(name == _DEDUP_ID for name, _ in message.headers) for message in self.messages
        )

    def place_of(self, number: int) -> Published:
        place = super().place_of(number)
        return self.places[number] if self.places else place

    def _forget(self) -> None:
        self.messages = []


def _column(values: Sequence[bytes | None]) -> BytesColumn | None:
    validity = None
    if None in values:
        if not any(value is not None for value in values):
            return None
        validity = _bits(values)
        values = [value or b"" for value in values]
    lengths = map(len, values)  # type: ignore[arg-type]
    starts = array("i", accumulate(lengths, initial=0))
    return BytesColumn(memoryview(starts).cast("B"), b"".join(values), validity)  # type: ignore[arg-type]


def _blocks_column(blocks: list[bytes]) -> BytesColumn | None:
    if blocks.count(NO_HEADERS) == len(blocks):
        return None
    return _column(blocks)


def _bits(values: Sequence[bytes | None]) -> bytes:
    bits = bytearray((len(values) + 7) // 8)
    for number, value in enumerate(values):
        if value is not None:
            bits[number >> 3] |= 1 << (number & 7)
    return bytes(bits)
