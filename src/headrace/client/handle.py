"""The handle: everything that one can do with a data directory, in a few words.

    with headrace.open("data/") as handle:
        handle.create_topic("orders")
        handle.publish("orders", {"id": 7})
        for message in handle.queue("orders"):
            with message:
                ...

Threads may share a handle. It works inside a running event loop too, where its
calls block that loop as any other call does; `headrace.open_async` is for those
who mind.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar, Unpack, overload

from headrace.client.backend import Backend
from headrace.client.connection import Connection
from headrace.client.dead_letters import DeadLetters
from headrace.client.delayed import Delayed
from headrace.client.outgoing import (
    HeadersGiven,
    NewMessage,
    PublishedMessage,
    PublishedMessages,
    PublishOptions,
    SharedBatch,
    to_batch,
    to_outgoing,
)
from headrace.client.positions import Start
from headrace.client.producer import (
    BATCH_BYTES,
    BATCH_MESSAGES,
    BUFFER_BYTES,
    LINGER_MS,
    TIMEOUT_SECONDS,
    Acks,
    Compression,
    Producer,
    ProducerOptions,
)
from headrace.client.queue import PREFETCH_DEFAULT, Queue
from headrace.client.settling import message_id_of
from headrace.client.spans import are_on, publishing
from headrace.client.stream import AUTO_COMMIT_SECONDS, Stream
from headrace.client.times import Duration, Instant
from headrace.client.traces import TraceChoice, query_of, search, traced_of
from headrace.client.transaction import Transaction
from headrace.client.values import ValueType, value_type_of
from headrace.core.errors import Closed, InvalidArgument, UnknownGroup
from headrace.core.trace_values import MessageTrace
from headrace.core.values import (
    GroupInfo,
    MessageStatus,
    Outgoing,
    QueueStatistics,
    TopicInfo,
    TransactionInfo,
    check_name,
)

T = TypeVar("T")

DEFAULT_GROUP = "default"


def open_handle(
    path: str | os.PathLike[str], *, read_only: bool = False, auto_create: bool = False
) -> Headrace:
    """Open a data directory, made where it does not exist, or ":memory:".

    One process at a time writes: InUse says who does. `read_only` works beside
    it. `auto_create` makes a topic when it is first published to.
    """
    from headrace.node import Node

    if not isinstance(path, str | os.PathLike):
        raise InvalidArgument(f"path must be a directory or ':memory:', not {path!r}")
    place = os.fspath(path)
    if not isinstance(place, str) or not place:
        raise InvalidArgument(f"path must be a directory or ':memory:', not {path!r}")
    node = Node.open(place, read_only=read_only, auto_create=auto_create)
    return Headrace(node, place)


class Headrace:
    def __init__(self, backend: Backend, place: str) -> None:
        self.connection = Connection(backend, place)
        self._reach = self.connection.reach
        self._place = place

    # Topics.

    def create_topic(
        self, name: str, partitions: int = 3, *, exist_ok: bool = False, **settings: Any
    ) -> TopicInfo:
        """TopicExists when there is one, unless `exist_ok`. The settings are
        those of `headrace.TopicSettings`."""
        return self._reach().create_topic(
            name, partitions=partitions, settings=settings or None, exist_ok=exist_ok
        )

    def delete_topic(self, name: str) -> None:
        """With all its messages; old ids and receipts are void for ever."""
        self._reach().delete_topic(name)

    def alter_topic(self, name: str, **settings: Any) -> TopicInfo:
        return self._reach().alter_topic(name, settings)

    def grow_topic(self, name: str, partitions: int, *, break_key_order: bool = False) -> TopicInfo:
        """More partitions. Keys move to other partitions, so a topic that is
        ordered by key asks for `break_key_order`."""
        return self._reach().grow_topic(name, partitions, break_key_order=break_key_order)

    def topic(self, name: str) -> TopicInfo:
        return self._reach().topic(name)

    def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        return self._reach().topics(internal=internal)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Delete what lies before that offset; where the partition starts now."""
        return self._reach().delete_records(topic, partition, before_offset)

    # Publishing.

    def publish(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: HeadersGiven | None = None,
        priority: str | int | None = None,
        delay: Duration | None = None,
        deliver_at: Instant | None = None,
        ttl: Duration | None = None,
        max_attempts: int | None = None,
        visibility: Duration | None = None,
        dedup_id: str | bytes | None = None,
        partition: int | None = None,
        timestamp: Instant | None = None,
    ) -> PublishedMessage:
        """Returns when the message is as durable as its topic says: by default,
        on disk.

        A value is bytes, text, or anything that JSON can hold. `priority` is
        critical, high, normal, low or background. `delay`, `deliver_at` and
        `ttl` say when it may be delivered first and last. `dedup_id` counts on
        topics with `dedup=True`.
        """
        message = NewMessage(
            value,
            key,
            headers,
            priority,
            delay,
            deliver_at,
            ttl,
            max_attempts,
            visibility,
            dedup_id,
            partition,
            timestamp,
        )
        outgoing: Outgoing = to_outgoing(message)
        if are_on():
            with publishing(topic, 1) as span:
                [place] = self._reach().publish(topic, span.to([outgoing]))
                span.done(topic, [place])
        else:
            [place] = self._reach().publish(topic, [outgoing])
        return PublishedMessage(topic, *place)

    def publish_many(
        self, topic: str, values: Iterable[Any], **options: Unpack[PublishOptions]
    ) -> PublishedMessages:
        """Many in one call, which is many times faster. The options are those of
        `publish`, for all; a `NewMessage` among the values has its own."""
        batch = to_batch(values, options)
        backend = self._reach()
        count = len(batch.values) if isinstance(batch, SharedBatch) else len(batch)
        with publishing(topic, count) as span:
            if isinstance(batch, SharedBatch):
                places = backend.publish_values(
                    topic,
                    batch.values,
                    headers=span.extend(batch.headers),
                    partition=batch.partition,
                )
            else:
                places = backend.publish(topic, span.to(batch))
            span.done(topic, places)
        return PublishedMessages(topic, places)

    def producer(
        self,
        *,
        linger_ms: int = LINGER_MS,
        acks: Acks = "all",
        compression: Compression = "none",
        batch_messages: int = BATCH_MESSAGES,
        batch_bytes: int = BATCH_BYTES,
        buffer_bytes: int = BUFFER_BYTES,
        timeout: Duration = TIMEOUT_SECONDS,
    ) -> Producer:
        """Publish in the background, in batches that are made here: when a batch has
        so many messages or bytes, or after `linger_ms`; 0 sends at once.

        `acks` "all" and "leader" wait until a batch is as durable as its topic says, on
        one node these are the same; "none" waits for nothing. `compression` is none,
        gzip, snappy, lz4 or zstd. `buffer_bytes` is what may wait to be sent, and
        `timeout` for how long a message waits for room there, and then for the node.
        """
        options = ProducerOptions(
            linger_ms, acks, compression, batch_messages, batch_bytes, buffer_bytes, timeout
        )
        return Producer(self.connection, options)

    def transaction(self) -> Transaction:
        """Messages, positions and acks that happen together or not at all: use it
        by `with`. Nothing happens before the end of the block."""
        return Transaction(self.connection)

    def transactions(self) -> list[TransactionInfo]:
        """What every transactional id is doing, those of Kafka clients included."""
        return self._reach().transactions()

    # Consuming.

    @overload
    def queue(
        self,
        topics: str | Iterable[str],
        group: str = ...,
        *,
        type: type[T],
        consumer: str | None = ...,
        visibility: Duration | None = ...,
        prefetch: int = ...,
        auto_extend: bool = ...,
        **settings: Any,
    ) -> Queue[T]: ...
    @overload
    def queue(
        self,
        topics: str | Iterable[str],
        group: str = ...,
        *,
        type: Any = ...,
        consumer: str | None = ...,
        visibility: Duration | None = ...,
        prefetch: int = ...,
        auto_extend: bool = ...,
        **settings: Any,
    ) -> Queue[Any]: ...
    def queue(
        self,
        topics: str | Iterable[str],
        group: str = DEFAULT_GROUP,
        *,
        type: Any = None,
        consumer: str | None = None,
        visibility: Duration | None = None,
        prefetch: int = PREFETCH_DEFAULT,
        auto_extend: bool = True,
        **settings: Any,
    ) -> Queue[Any]:
        """Lease messages of these topics as a consumer of `group`. Each group
        gets every message, and in a group one consumer does.

        `visibility` is how long a lease lasts; `type` is what values are decoded
        as; `prefetch` is how many a loop leases ahead at most; `auto_extend` extends
        the lease of a message while its `with` block or the loop's body runs, and those
        of the messages that were leased with it. The settings are those of
        `headrace.GroupSettings`.
        """
        return Queue(
            self.connection,
            topics,
            group,
            consumer=consumer,
            visibility=visibility,
            prefetch=prefetch,
            auto_extend=auto_extend,
            value_type=_value_type(type),
            settings=settings,
        )

    @overload
    def stream(
        self,
        topics: str | Iterable[str],
        group: str | None = ...,
        *,
        type: type[T],
        start: Start | None = ...,
        reset: str = ...,
        auto_commit: Duration | None = ...,
        partitions: Iterable[int] | None = ...,
        consumer: str | None = ...,
    ) -> Stream[T]: ...
    @overload
    def stream(
        self,
        topics: str | Iterable[str],
        group: str | None = ...,
        *,
        type: Any = ...,
        start: Start | None = ...,
        reset: str = ...,
        auto_commit: Duration | None = ...,
        partitions: Iterable[int] | None = ...,
        consumer: str | None = ...,
    ) -> Stream[Any]: ...
    def stream(
        self,
        topics: str | Iterable[str],
        group: str | None = None,
        *,
        type: Any = None,
        start: Start | None = None,
        reset: str = "earliest",
        auto_commit: Duration | None = AUTO_COMMIT_SECONDS,
        partitions: Iterable[int] | None = None,
        consumer: str | None = None,
    ) -> Stream[Any]:
        """Read these topics in order. With a group, its members share them and
        its cursors remember how far they came; without one, begin at `start`.

        `start` is "earliest", "latest", an offset, a datetime, or a mapping of
        partitions to offsets. `reset` says where to go on when a position is
        missing or gone. `auto_commit` is in seconds; None leaves it to commit().
        """
        return Stream(
            self.connection,
            topics,
            group,
            start=start,
            reset=reset,
            auto_commit=auto_commit,
            partitions=partitions,
            consumer=consumer,
            value_type=_value_type(type),
        )

    # Messages that are not on their way.

    def dead_letters(self, topic: str) -> DeadLetters:
        """What was given up of this topic."""
        return DeadLetters(self.connection, topic)

    def delayed(self, topic: str) -> Delayed:
        """What waits for its moment in this topic."""
        return Delayed(self.connection, topic)

    def cancel(self, id: object) -> bool:
        """Whether a delayed message is cancelled now; False when it is too late."""
        return self._reach().cancel(message_id_of(id))

    def status(self, id: object, group: str = DEFAULT_GROUP) -> MessageStatus:
        """How a message stands in a queue group."""
        return self._reach().status(message_id_of(id), group)

    def trace(self, what: object) -> MessageTrace:
        """Where a message is in every group, and what happened to it: by its id, by
        the message itself, or by a receipt, which need not be good any more."""
        return self._reach().trace(traced_of(what))

    def traces(self, **choice: Unpack[TraceChoice]) -> Iterator[MessageTrace]:
        """The traces of all messages that match. The records are searched one by
        one, so naming the topic and `since` saves time."""
        return search(self._reach(), query_of(choice))

    # Groups.

    def groups(self) -> list[GroupInfo]:
        return self._reach().groups()

    def group(self, name: str) -> GroupInfo:
        return self._reach().group(check_name("group", name))

    def alter_group(self, name: str, **settings: Any) -> GroupInfo:
        return self._reach().alter_group(name, settings)

    def delete_group(self, name: str) -> None:
        self._reach().delete_group(name)

    @overload
    def stats(self, group: None = ...) -> list[QueueStatistics]: ...
    @overload
    def stats(self, group: str) -> QueueStatistics: ...
    def stats(self, group: str | None = None) -> QueueStatistics | list[QueueStatistics]:
        """The numbers of one queue group, or of all of them."""
        backend = self._reach()
        if group is not None:
            return backend.queue_statistics(group)
        names = [each.name for each in backend.groups() if each.kind == "queue"]
        return [backend.queue_statistics(name) for name in names]

    def depth(self, topic: str | None = None, *, group: str | None = None) -> int:
        """How many messages are not done yet: of a topic in a group, or of all
        that the group reads. In a group that nobody has opened yet, nothing of
        the topic is done."""
        backend = self._reach()
        if topic is None and group is None:
            raise InvalidArgument("depth of what? Name a topic, a group or both")
        if topic is None:
            return backend.queue_statistics(group or DEFAULT_GROUP).depth
        partitions = backend.topic(topic).partitions
        try:
            return backend.queue_statistics(group or DEFAULT_GROUP, [topic]).depth
        except UnknownGroup:
            return sum(each.high_watermark - each.start_offset for each in partitions)

    # The end.

    @property
    def closed(self) -> bool:
        return self.connection.closed

    def close(self) -> None:
        """Close its queues and streams, then the directory. Fine when closed."""
        self.connection.close()

    def give_up(self) -> None:
        """Wait for a node elsewhere no more: every call ends, and `close` is quick."""
        with contextlib.suppress(Closed):
            give_up = getattr(self._reach(), "give_up", None)
            if give_up is not None:
                give_up()

    def __enter__(self) -> Headrace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is not None:
                self.fail_in_hand(error)
        finally:
            self.close()

    def fail_in_hand(self, error: BaseException) -> None:
        """As `Queue.fail_in_hand`, for all queues that are open."""
        for each in self.connection.opened():
            if isinstance(each, Queue):
                each.fail_in_hand(error)

    def __repr__(self) -> str:
        return f"<Headrace {self._place}{' closed' if self.closed else ''}>"


def _value_type(wanted: Any) -> ValueType | None:
    return None if wanted is None else value_type_of(wanted)
