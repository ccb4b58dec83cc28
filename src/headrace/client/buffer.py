"""The buffer of a producer: messages that were taken and are not over yet.

    growing    a writer with an open parcel: by partition, the oldest first
    waiting    a writer with closed parcels
    away       in a flight: one parcel of each partition that may send, 1 MiB together

A message has its parcel as soon as it is taken, so its order is decided there. What is
in here is bounded: whoever finds no room waits.

Everything happens under `lock`, and nothing in here waits but for room.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.client.parcel import BatchParcel, MessageParcel, Parcel
from headrace.client.partition_writer import PartitionWriter
from headrace.client.routing import Route
from headrace.core.errors import (
    BufferFull,
    Closed,
    HeadraceError,
    UnknownPartition,
    UnknownTopic,
)
from headrace.core.ports import Clock
from headrace.core.values import Outgoing
from headrace.core.wording import counted
from headrace.record import Codec

FLIGHTS_MAX = 5
FLIGHT_BYTES = 1024 * 1024
# What a message costs in a buffer beside its bytes.
MESSAGE_OVERHEAD = 32
# Of the failures that nobody asked about, so many are remembered until a flush.
FAILURES_MAX = 100
# The partition of what the node finds a partition for.
BY_NODE = -1

Callbacks = list[Callable[[], None]]


class SenderOptions(NamedTuple):
    linger: float = 0.005
    batch_messages: int = 1_000
    batch_bytes: int = 256 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    timeout: float = 30.0
    codec: Codec = Codec.NONE
    # Whether an answer is awaited, and a batch sent again when none comes.
    is_answered: bool = True


class Flight(NamedTuple):
    """Parcels that go together."""

    sent: list[tuple[PartitionWriter, Parcel]]


class Buffer:
    def __init__(
        self, clock: Clock, options: SenderOptions, on_work: Callable[[float], None]
    ) -> None:
        """`on_work` hears, under the lock, when there is something to do: the moment."""
        self._clock = clock
        self._options = options
        self._on_work = on_work
        self.lock = threading.Lock()
        self._room = threading.Condition(self.lock)
        self._room_wakes: Callbacks = []
        self.routes: dict[str, Route] = {}
        self._writers: dict[tuple[str, int], PartitionWriter] = {}
        self._growing: dict[PartitionWriter, None] = {}
        self._waiting: dict[PartitionWriter, None] = {}
        self._parcels: set[Parcel] = set()
        self._failures: list[Parcel] = []
        self._used_bytes = 0
        self._flights = 0
        self._flush_until = 0.0
        self.is_closed = False
        # Why nothing gets away at the moment.
        self.trouble: HeadraceError | None = None

    # Taking messages.

    def offer(
        self, route: Route, message: Outgoing, block: bytes, size: int
    ) -> tuple[Parcel, int] | None:
        """The parcel that takes the message and its number there; None when there is
        no room. `block` is its headers, encoded."""
        with self.lock:
            self._check_open()
            if self._is_full(size):
                return None
            if route.is_node_choosing:
                parcel = self._parcel(route, BY_NODE, size)
                assert isinstance(parcel, MessageParcel)
                number = parcel.add(message, size)
            else:
                value, key, _, timestamp_ms, partition = message
                parcel = self._parcel(route, route.choose(key, partition), size)
                assert isinstance(parcel, BatchParcel)
                at_ms = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
                number = parcel.add(key, value, block, at_ms, size)
            self._on_grown(route, parcel, size)
            return parcel, number

    def offer_values(
        self, route: Route, values: Sequence[bytes], block: bytes, partition: int | None
    ) -> tuple[BatchParcel, int, int] | None:
        """The same for many values without keys, as many of them as go into one
        parcel: the parcel, the number of the first, and how many."""
        options = self._options
        with self.lock:
            self._check_open()
            chosen = route.choose(None, partition)
            overhead = MESSAGE_OVERHEAD + len(block)
            if self._is_full(overhead + len(values[0])):
                return None
            parcel = self._parcel(route, chosen, overhead + len(values[0]))
            assert isinstance(parcel, BatchParcel)
            taken = values[: options.batch_messages - parcel.count]
            size = sum(map(len, taken)) + overhead * len(taken)
            bytes_max = min(options.batch_bytes, route.record_bytes_max) - parcel.size_bytes
            bytes_max = min(bytes_max, options.buffer_bytes - self._used_bytes)
            if size > bytes_max:
                taken, size = _fitting(taken, overhead, bytes_max)
            number = parcel.add_values(taken, block, self._clock.now_ms(), size)
            self._on_grown(route, parcel, size)
            return parcel, number, len(taken)

    def _parcel(self, route: Route, partition: int, size: int) -> Parcel:
        """The one that grows, or a new one."""
        writer = self._writers.get((route.topic, partition))
        if writer is None:
            writer = PartitionWriter(route.topic, partition)
            self._writers[route.topic, partition] = writer
        parcel = writer.open
        bytes_max = min(self._options.batch_bytes, route.record_bytes_max)
        if parcel is not None and parcel.size_bytes + size > bytes_max:
            self._close(route, writer)
            self._on_work(0.0)
            parcel = None
        if parcel is None:
            now = time.monotonic()
            kind = MessageParcel if partition == BY_NODE else BatchParcel
            parcel = kind(partition, now, now + self._options.timeout)
            writer.begin(parcel)
        return parcel

    def _on_grown(self, route: Route, parcel: Parcel, size: int) -> None:
        self._used_bytes += size
        options = self._options
        writer = self._writers[route.topic, parcel.partition]
        if writer not in self._growing:
            self._parcels.add(parcel)
            self._growing[writer] = None
            self._on_work(parcel.opened + options.linger)
        if parcel.count >= options.batch_messages or parcel.size_bytes >= options.batch_bytes:
            self._close(route, writer)
            self._on_work(0.0)

    def _close(self, route: Route | None, writer: PartitionWriter) -> None:
        writer.close_open()
        self._growing.pop(writer, None)
        self._waiting[writer] = None
        if route is not None:
            route.on_closed(writer.partition)

    def _check_open(self) -> None:
        if self.is_closed:
            raise Closed("this producer is closed; open another one")

    # Room.

    def wait_for_room(self, size: int, until: float) -> None:
        """BufferFull when there is none before that moment of the monotonic clock."""
        with self.lock:
            while not self.is_closed and self._is_full(size):
                left = until - time.monotonic()
                if left <= 0:
                    raise self.full()
                self._room.wait(left)

    def wake_for_room(self, size: int, wake: Callable[[], None]) -> bool:
        """Has `wake` called once when there may be room; False when there is."""
        with self.lock:
            if self.is_closed or not self._is_full(size):
                return False
            self._room_wakes.append(wake)
            return True

    def full(self) -> BufferFull:
        why = "" if self.trouble is None else f" ({self.trouble})"
        return BufferFull(
            f"{self._options.buffer_bytes} bytes wait to be sent and nothing got away for "
            f"{counted(float(self._options.timeout), 'second')}{why}; publish less, or give "
            "more buffer_bytes"
        )

    def _is_full(self, size: int) -> bool:
        return self._used_bytes > 0 and self._used_bytes + size > self._options.buffer_bytes

    # Flushing, failures and the end.

    def begin_flush(self) -> list[Parcel]:
        """Everything that was taken goes now; the parcels to wait for."""
        with self.lock:
            self._flush_until = time.monotonic()
            if self._parcels:
                self._on_work(0.0)
            return sorted(self._parcels, key=lambda parcel: parcel.opened)

    def failure(self) -> HeadraceError | None:
        """The first that nobody has heard of since this was last asked."""
        with self.lock:
            failures, self._failures = self._failures, []
        return next((each.error for each in failures if not each.is_heard), None)

    def add_callback(
        self, parcel: Parcel, callback: Callable[[], None], *, is_heard: bool = True
    ) -> None:
        """Has it called when the parcel is over, or now. `is_heard`: whoever is called
        cares for how it ended."""
        with self.lock:
            parcel.is_heard |= is_heard
            if parcel.add_callback(callback):
                return
        callback()

    def close(self) -> bool:
        """Take nothing more; whether something was taken so far."""
        with self.lock:
            was_open = not self.is_closed
            self.is_closed = True
            wakes, self._room_wakes = self._room_wakes, []
            self._room.notify_all()
        for wake in wakes:
            wake()
        return was_open

    # Sending, under the lock.

    def due(self) -> float | None:
        """When a parcel will be old enough; None when something else has to happen
        first."""
        if self._flights < FLIGHTS_MAX:
            for writer in self._growing:
                if writer.may_send and writer.open is not None:
                    return writer.open.opened + self._options.linger
        return None

    def next_flight(self, now: float) -> Flight | None:
        """What may go now; None when nothing may. Every flight has to land."""
        if self._flights >= FLIGHTS_MAX:
            return None
        self._close_due(now)
        sent: list[tuple[PartitionWriter, Parcel]] = []
        size = 0
        for writer in tuple(self._waiting):
            if not writer.may_send:
                continue
            size += writer.closed[0].size_bytes
            is_by_node = writer.partition == BY_NODE
            if sent and (size > FLIGHT_BYTES or is_by_node):
                break
            sent.append((writer, writer.take()))
            # Behind the others, so that each has its turn.
            del self._waiting[writer]
            if writer.closed:
                self._waiting[writer] = None
            if is_by_node:
                break
        if not sent:
            return None
        self._flights += 1
        return Flight(sent)

    def _close_due(self, now: float) -> None:
        """Parcels that are old enough. One that cannot go yet may as well grow."""
        for writer in tuple(self._growing):
            parcel = writer.open
            assert parcel is not None
            is_due = parcel.opened + self._options.linger <= now
            if not is_due and parcel.opened > self._flush_until:
                return
            if writer.may_send:
                self._close(self.routes.get(writer.topic), writer)

    def land(
        self, flight: Flight, errors: Sequence[HeadraceError | None], *, is_answered: bool = True
    ) -> Callbacks:
        """What became of each parcel; what is to be called without the lock. When it
        is not answered yet, nobody waits for the answer but `on_answered`."""
        callbacks: Callbacks = []
        for (writer, parcel), error in zip(flight.sent, errors, strict=True):
            if error is None:
                writer.on_stored(parcel)
                callbacks += self._end(parcel, None)
            elif writer.on_failed(parcel, error):
                route = self.routes.get(writer.topic)
                if route is not None and isinstance(error, UnknownTopic | UnknownPartition):
                    route.is_doubtful = True
                callbacks += self._end(parcel, error)
            if writer.closed:
                self._waiting[writer] = None
        if is_answered:
            self.on_answered()
        return callbacks

    def on_answered(self) -> None:
        """One flight less is under way."""
        self._flights -= 1
        self._on_work(0.0)

    def expire(self, now: float) -> Callbacks:
        """Parcels that found no way in time fail with what is in the way."""
        callbacks: Callbacks = []
        assert self.trouble is not None
        for writer in tuple(self._waiting):
            for parcel in writer.expire(now):
                callbacks += self._end(parcel, self.trouble)
            if not writer.closed:
                del self._waiting[writer]
        return callbacks

    def _end(self, parcel: Parcel, error: HeadraceError | None) -> Callbacks:
        self._parcels.discard(parcel)
        self._used_bytes -= parcel.size_bytes
        if error is not None and len(self._failures) < FAILURES_MAX:
            self._failures.append(parcel)
        self._room.notify_all()
        wakes, self._room_wakes = self._room_wakes, []
        return [*parcel.end(error), *wakes]


def _fitting(values: Sequence[bytes], overhead: int, room: int) -> tuple[Sequence[bytes], int]:
    """As many as fit, and one at least; what they take."""
    size = 0
    for number, value in enumerate(values):
        added = overhead + len(value)
        if number and size + added > room:
            return values[:number], size
        size += added
    return values, size
