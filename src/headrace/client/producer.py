"""A producer: messages collected into batches here, sent in the background.

    with handle.producer() as producer:
        pending = producer.publish("orders", {"id": 7})   # taken, not yet published
        print(pending.result())                           # orders:0:41
    # everything is published when the block ends

`handle.publish` is one message, one call, one wait. A producer waits for a few
milliseconds or until a batch is full, and makes the batch itself: the node appends it
as it is. Order within a partition is the order of the calls, and a batch that has to be
sent again is stored once.

Rejected: a producer of one topic. Who publishes to ten topics would have ten threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, Unpack, get_args

from headrace.client.buffer import MESSAGE_OVERHEAD, Buffer, SenderOptions
from headrace.client.connection import Connection
from headrace.client.outgoing import (
    NewMessage,
    PublishedMessage,
    PublishedMessages,
    PublishOptions,
    SharedBatch,
    to_batch,
    to_outgoing,
)
from headrace.client.parcel import Parcel
from headrace.client.routing import Route
from headrace.client.sender import Sender
from headrace.client.spans import are_on, publishing
from headrace.client.times import Duration, duration_ms
from headrace.core import limits
from headrace.core.errors import HeadraceError, InvalidArgument
from headrace.core.values import Headers, Outgoing, Published, PublishedRuns
from headrace.core.wording import counted
from headrace.record import NO_HEADERS, Codec, encode_headers
from headrace.record.content_type import CONTENT_TYPE

Acks = Literal["none", "leader", "all"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

LINGER_MS = 5
BATCH_MESSAGES = 1_000
BATCH_BYTES = 256 * 1024
BUFFER_BYTES = 32 * 1024 * 1024
TIMEOUT_SECONDS = 30.0


class ProducerOptions(NamedTuple):
    """What a producer may be told; see `Headrace.producer`."""

    linger_ms: int = LINGER_MS
    acks: Acks = "all"
    compression: Compression = "none"
    batch_messages: int = BATCH_MESSAGES
    batch_bytes: int = BATCH_BYTES
    buffer_bytes: int = BUFFER_BYTES
    timeout: Duration = TIMEOUT_SECONDS

    def checked(self) -> SenderOptions:
        if self.acks not in get_args(Acks):
            raise InvalidArgument(f"acks is 'none', 'leader' or 'all', not {self.acks!r}")
        if self.compression not in get_args(Compression):
            raise InvalidArgument(
                f"compression is one of {', '.join(get_args(Compression))}, not "
                f"{self.compression!r}"
            )
        return SenderOptions(
            _within("linger_ms", self.linger_ms, 0, limits.PRODUCER_LINGER_MS_MAX) / 1000,
            _within("batch_messages", self.batch_messages, 1, limits.PRODUCER_BATCH_MESSAGES_MAX),
            _within("batch_bytes", self.batch_bytes, 1, limits.PRODUCER_BATCH_BYTES_MAX),
            _within("buffer_bytes", self.buffer_bytes, 1, limits.PRODUCER_BUFFER_BYTES_MAX),
            duration_ms("timeout", self.timeout) / 1000,
            Codec[self.compression.upper()],
            self.acks != "none",
        )


class PendingPublish:
    """A message that was taken and may not be published yet."""

    __slots__ = ("_buffer", "_number", "_topic", "parcel")

    def __init__(self, topic: str, parcel: Parcel, number: int, buffer: Buffer) -> None:
        self._topic = topic
        self.parcel = parcel
        self._number = number
        self._buffer = buffer

    def done(self) -> bool:
        return self.parcel.is_over

    def result(self, timeout: Duration | None = None) -> PublishedMessage:
        """Where it is, once it is as durable as its topic says; raises why it is
        nowhere. TimeoutError when that takes longer than `timeout`; it goes on."""
        if not self.parcel.wait(_seconds(timeout)):
            raise TimeoutError(
                f"not published within {counted(_seconds(timeout) or 0.0, 'second')}; it is "
                "still tried"
            )
        return PublishedMessage(self._topic, *self.parcel.place_of(self._number))

    def add_done_callback(self, callback: Callable[[PendingPublish], None]) -> None:
        """Called with this once it is over, by the thread that learns of it; at once
        when it is over already. It must not block."""
        self._buffer.add_callback(self.parcel, lambda: callback(self))

    def __repr__(self) -> str:
        return f"<PendingPublish to {self._topic}{' done' if self.done() else ''}>"


class PendingPublishes:
    """Many of them, as `publish_many` of a producer answers."""

    __slots__ = ("_parts", "_topic")

    def __init__(self, topic: str, parts: Sequence[tuple[Parcel, int, int]]) -> None:
        self._topic = topic
        # Parcel, number of the first message in it, how many.
        self._parts = parts

    def __len__(self) -> int:
        return sum(count for _, _, count in self._parts)

    @property
    def parcels(self) -> list[Parcel]:
        return list(dict.fromkeys(parcel for parcel, _, _ in self._parts))

    def done(self) -> bool:
        return all(parcel.is_over for parcel in self.parcels)

    def result(self, timeout: Duration | None = None) -> PublishedMessages:
        """Where they are, in the order given. Raises the first error when all of them
        are over; others may be published."""
        seconds = _seconds(timeout)
        end = None if seconds is None else time.monotonic() + seconds
        for parcel in self.parcels:
            if not parcel.wait(None if end is None else end - time.monotonic()):
                raise TimeoutError(
                    f"not published within {counted(_seconds(timeout) or 0.0, 'second')}; "
                    "they are still tried"
                )
        return self.places()

    def places(self) -> PublishedMessages:
        """The same when they are over."""
        runs = []
        places: list[Published] = []
        for parcel, number, count in self._parts:
            first = parcel.place_of(number)
            runs.append((first.partition, first.offset, count))
            if parcel.partition < 0 or first.offset < 0:
                places = [parcel.place_of(n) for p, n, c in self._parts for n in range(n, n + c)]
                break
        return PublishedMessages(self._topic, places or PublishedRuns(runs))


class Producer:
    def __init__(self, connection: Connection, options: ProducerOptions) -> None:
        self._connection = connection
        checked = options.checked()
        self.timeout = checked.timeout
        self._sender = Sender(connection.reach(), checked)
        self.buffer = self._sender.buffer
        # A closing handle sends what is left, also when nobody holds this any more.
        connection.on_opened(self._sender)

    # Publishing.

    def publish(self, topic: str, value: Any, **options: Unpack[PublishOptions]) -> PendingPublish:
        """Take a message; the options are those of `Headrace.publish`. Waits while the
        buffer is full; BufferFull when that takes longer than the timeout."""
        route = self.route(topic)
        message, block, size = self.prepare(route, value, options)
        buffer = self.buffer
        taken = buffer.offer(route, message, block, size)
        if taken is None:
            until = time.monotonic() + self.timeout
            while taken is None:
                buffer.wait_for_room(size, until)
                taken = buffer.offer(route, message, block, size)
        return PendingPublish(topic, taken[0], taken[1], buffer)

    def publish_many(
        self, topic: str, values: Iterable[Any], **options: Unpack[PublishOptions]
    ) -> PendingPublishes:
        """Take many; the options are for all of them, and a `NewMessage` has its own.
        When the buffer stays full, those that were taken are published."""
        parts: list[tuple[Parcel, int, int]] = []
        for size in self.take_many(topic, values, options, parts):
            self.buffer.wait_for_room(size, time.monotonic() + self.timeout)
        return PendingPublishes(topic, parts)

    def take_many(
        self,
        topic: str,
        values: Iterable[Any],
        options: PublishOptions,
        parts: list[tuple[Parcel, int, int]],
    ) -> Iterable[int]:
        """Takes them into `parts`, and yields whenever room for so many bytes has to
        be waited for."""
        route = self.route(topic)
        batch = to_batch(values, options)
        if are_on():
            batch = _with_context(route.topic, batch)
        if isinstance(batch, SharedBatch) and not route.is_node_choosing:
            yield from self._take_values(route, batch, parts)
            return
        if isinstance(batch, SharedBatch):
            batch = [
                Outgoing(value, None, batch.headers, None, batch.partition)
                for value in batch.values
            ]
        checked = [(each, _block(each.headers), route.check(each)) for each in batch]
        for message, block, size in checked:
            while (taken := self.buffer.offer(route, message, block, size)) is None:
                yield size
            parcel, number = taken
            if parts and parts[-1][0] is parcel and sum(parts[-1][1:]) == number:
                parts[-1] = (parcel, parts[-1][1], parts[-1][2] + 1)
            else:
                parts.append((parcel, number, 1))

    def _take_values(
        self, route: Route, batch: SharedBatch, parts: list[tuple[Parcel, int, int]]
    ) -> Iterable[int]:
        block = _block(batch.headers)
        largest = max(batch.values, key=len, default=b"")
        route.check(Outgoing(largest, None, batch.headers))
        start = 0
        while start < len(batch.values):
            rest = batch.values[start : start + limits.PRODUCER_BATCH_MESSAGES_MAX]
            taken = self.buffer.offer_values(route, rest, block, batch.partition)
            if taken is None:
                yield MESSAGE_OVERHEAD + len(rest[0])
                continue
            parts.append(taken)
            start += taken[2]

    def known_route(self, topic: str) -> Route | None:
        """None when the node has to be asked for it."""
        self._connection.reach()
        return self._sender.known_route(topic)

    def route(self, topic: str) -> Route:
        return self.known_route(topic) or self._sender.route(topic)

    def prepare(
        self, route: Route, value: Any, options: PublishOptions
    ) -> tuple[Outgoing, bytes, int]:
        """The message, its headers encoded, and what it takes in the buffer."""
        is_traced = are_on()
        if (
            type(value) is bytes
            and not options
            and not is_traced
            and len(value) <= route.record_bytes_max
        ):
            return Outgoing(value), NO_HEADERS, MESSAGE_OVERHEAD + len(value)
        message = to_outgoing(NewMessage(value, **options))
        if is_traced:
            # The span ends when the message is taken; where it is, nobody knows yet.
            with publishing(route.topic, 1) as span:
                [message] = span.to([message])
        size = route.check(message)
        return message, _block(message.headers), size

    # Waiting, and the end.

    def flush(self, timeout: Duration | None = None) -> None:
        """Send what was taken so far now, and wait until all of it is over. Raises the
        first error that nobody has asked about; TimeoutError when it takes longer."""
        self._connection.reach()
        self._sender.flush(_seconds(timeout))

    def begin_flush(self) -> list[Parcel]:
        """Send what was taken so far now; what to wait for."""
        self._connection.reach()
        return self.buffer.begin_flush()

    @property
    def closed(self) -> bool:
        return self.buffer.is_closed

    def close(self) -> None:
        """Flush, and take nothing more. Fine when closed."""
        if not self._connection.is_forked:
            self._connection.on_closed(self._sender)
            self._sender.close()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except HeadraceError:
            # An error in the block is the more interesting one.
            if kind is None:
                raise

    def __repr__(self) -> str:
        return f"<Producer{' closed' if self.closed else ''}>"


def _with_context(topic: str, batch: SharedBatch | list[Outgoing]) -> SharedBatch | list[Outgoing]:
    """The messages with the context of a span, which ends before they are sent."""
    if isinstance(batch, SharedBatch):
        with publishing(topic, len(batch.values)) as span:
            return batch._replace(headers=span.extend(batch.headers))
    with publishing(topic, len(batch)) as span:
        return list(span.to(batch))


_CONTENT_BLOCKS: dict[Headers, bytes] = {}


def _block(headers: Headers) -> bytes:
    """Headers, encoded. Most messages have none but the type of their content."""
    if not headers:
        return NO_HEADERS
    if len(headers) > 1 or headers[0][0] != CONTENT_TYPE or len(headers[0][1] or b"") > 32:
        return encode_headers(headers)
    block = _CONTENT_BLOCKS.get(headers)
    if block is None:
        block = encode_headers(headers)
        if len(_CONTENT_BLOCKS) < 100:
            _CONTENT_BLOCKS[headers] = block
    return block


def _seconds(timeout: Duration | None) -> float | None:
    return None if timeout is None else duration_ms("timeout", timeout) / 1000


def _within(name: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{name} must be a whole number, not {value!r}")
    if not least <= value <= most:
        raise InvalidArgument(f"{name} must be from {least} to {most}, not {value}")
    return value
