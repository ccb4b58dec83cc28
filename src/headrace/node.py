"""The node: the engine with a real disk and a real clock around it.

This is the composition root and the face that the SDK, the command line and every
door talk to. Each call takes the lock, lets the broker do its part, waits for the
disk where the answer promises something, and then answers. Nothing here waits for
a message: who wants to wait adds a listener.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from headrace.core import limits
from headrace.core.errors import (
    Closed,
    DiskFull,
    HeadraceError,
    InvalidArgument,
    OffsetOutOfRange,
    ReadOnly,
    UnknownGroup,
    UnknownTopic,
)
from headrace.core.ports import Clock, Disk, Entropy, Lock
from headrace.core.settings import OffsetReset, TopicSettings
from headrace.core.values import (
    DeadLetter,
    DelayedMessage,
    Delivery,
    GroupInfo,
    Headers,
    MessageId,
    MessageStatus,
    Outgoing,
    PartitionInfo,
    Published,
    QueueStatistics,
    Receipt,
    RedriveResult,
    StreamRecord,
    TopicInfo,
)
from headrace.engine.broker import Broker
from headrace.engine.catalog import Group, Topic
from headrace.engine.commit import Commit
from headrace.platform.clock import SystemClock
from headrace.platform.directory import check_format, claim, give_up_reserve, keep_reserve
from headrace.platform.disk import RealDisk
from headrace.platform.entropy import SystemEntropy
from headrace.platform.group_commit import GroupCommit
from headrace.platform.memory_disk import MemoryDisk

MEMORY = ":memory:"
FREE_BYTES_MIN = 64 * 1024 * 1024
MAINTAIN_MS = 30_000
READ_BYTES_MAX = 1024 * 1024

Outcomes = list[HeadraceError | None]
Place = tuple[str, int]


class Node:
    """Made by `Node.open`."""

    def __init__(
        self, disk: Disk, clock: Clock, entropy: Entropy, claimed: Lock | None, *,
        auto_create: bool, free_bytes_min: int,
    ) -> None:  # fmt: skip
        self.clock = clock
        self.closed = False
        self._disk = disk
        self._claimed = claimed
        self._auto_create = auto_create
        self._lock = threading.Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._resets: dict[tuple[str, str], OffsetReset] = {}
        now_ms = clock.now_ms()
        self._broker = Broker(
            disk, entropy, now_ms, read_only=claimed is None, free_bytes_min=free_bytes_min
        )
        self._commits = GroupCommit(self._broker, disk, clock, self._lock)
        self._maintained_ms = now_ms
        if claimed is not None:
            with self._writing():
                self._broker.maintain(now_ms)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        auto_create: bool = False,
        disk: Disk | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        free_bytes_min: int = FREE_BYTES_MIN,
    ) -> Self:
        """A directory, which is made if need be, or ":memory:". Read-only works
        beside a writer and shows the directory as it is at this moment."""
        if disk is None:
            disk = MemoryDisk() if path == MEMORY else RealDisk(os.fspath(path))
        entropy = entropy or SystemEntropy()
        claimed: Lock | None = None
        if read_only:
            check_format(disk)
        else:
            claimed = claim(disk, entropy)
        try:
            if not read_only:
                keep_reserve(disk)
            return cls(
                disk, clock or SystemClock(), entropy, claimed,
                auto_create=auto_create, free_bytes_min=free_bytes_min,
            )  # fmt: skip
        except BaseException:
            if claimed is not None:
                claimed.release()
            raise

    def close(self) -> None:
        """Sync everything and let go of the directory. Safe to call twice."""
        with self._lock:
            if self.closed:
                return
            try:
                if self._claimed is not None and self._commits.failed is None:
                    self._commits.sync_all()
            finally:
                self.closed = True
                self._commits.close()
                if self._commits.failed is None:
                    self._broker.close()
                if self._claimed is not None:
                    self._claimed.release()
        self._notify()

    # How a call runs.

    @contextmanager
    def _reading(self) -> Iterator[int]:
        """The lock, and the time."""
        with self._lock:
            if self.closed:
                raise Closed("this handle is closed; open the directory again")
            yield self.clock.now_ms()

    @contextmanager
    def _writing(self) -> Iterator[tuple[int, Commit]]:
        """The lock, the time and a commit, which is finished at the end: the
        call is answered when everything it did is safe."""
        with self._lock:
            if self.closed:
                raise Closed("this handle is closed; open the directory again")
            if self._claimed is None:
                raise ReadOnly("the directory is open for reading only")
            if self._commits.failed is not None:
                raise self._commits.failed
            commit = self._broker.commit()
            yield self.clock.now_ms(), commit
            if self._broker.moves:
                commit.moves += self._broker.moves.pending()
                commit.state += [(move.source, move.intent_end) for move in commit.moves]
            self._commits.finish(commit)

    def _room_for_acks(self, settle: Callable[[], Outcomes]) -> Outcomes:
        """Acks go on when the disk is full: the reserve makes room for them."""
        try:
            return settle()
        except DiskFull:
            if not give_up_reserve(self._disk):
                raise
            return settle()

    def _maintain(self, now_ms: int) -> None:
        if now_ms - self._maintained_ms >= MAINTAIN_MS:
            self._maintained_ms = now_ms
            keep_reserve(self._disk)
            self._broker.maintain(now_ms)

    # Waiting.

    def add_listener(self, wake: Callable[[], None]) -> None:
        with self._lock:
            self._listeners = (*self._listeners, wake)

    def remove_listener(self, wake: Callable[[], None]) -> None:
        with self._lock:
            listeners = list(self._listeners)
            if wake in listeners:
                listeners.remove(wake)
            self._listeners = tuple(listeners)

    def _notify(self) -> None:
        for wake in self._listeners:
            wake()

    def next_due_ms(self, group: str | None, topics: Sequence[str]) -> int | None:
        """When time alone may make something ready for this group."""
        with self._reading():
            found = self._broker.topics.catalog.groups.get(group) if group else None
            if found is None:
                return None
            return self._broker.queues.next_due_ms(found, self._topics_named(topics))

    # Topics.

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 3,
        settings: Mapping[str, Any] | None = None,
        exist_ok: bool = False,
    ) -> TopicInfo:
        wanted = TopicSettings.from_mapping(settings or {})
        with self._writing() as (now_ms, _):
            topic = self._broker.topics.catalog.topics.get(name) if exist_ok else None
            if topic is None:
                topic = self._broker.topics.create(name, partitions, wanted, now_ms)
            info = self._describe(topic)
        self._notify()
        return info

    def delete_topic(self, name: str) -> None:
        broker = self._broker
        with self._writing() as (now_ms, commit):
            topic = broker.topics.named(name)
            letters = broker.topics.catalog.dead_letters_of(topic)
            gone = [topic] if letters is None else [topic, letters]
            for each in gone:
                for partition in broker.topics.delete(each, now_ms):
                    partition.resign()
                    partition.log.close()
                    if partition.state is not None:
                        partition.state.log.close()
                broker.moves.forget(each.id)
                broker.publisher.forget(each)
                broker.cursors.forget_topic(each.id, now_ms)
                broker.cursors.on_topic_changed(each)
            self._commits.forget(gone)
            self._commits.finish(commit)
            for each in gone:
                broker.topics.remove_files(each)
        self._notify()

    def alter_topic(self, name: str, settings: Mapping[str, Any]) -> TopicInfo:
        with self._writing() as (now_ms, _):
            topic = self._broker.topics.named(name)
            return self._describe(self._broker.topics.alter(topic, settings, now_ms))

    def grow_topic(
        self, name: str, partitions: int, *, break_key_order: bool = False
    ) -> TopicInfo:
        broker = self._broker
        with self._writing() as (now_ms, commit):
            topic = broker.topics.named(name)
            added = broker.topics.grow(
                topic, partitions, now_ms, break_key_order=break_key_order
            )
            grown = broker.topics.named(name)
            for group in broker.topics.catalog.groups.values():
                if topic.id in group.topics:
                    broker.queues.open_views(group, added, now_ms, commit)
            broker.cursors.on_topic_changed(grown)
            info = self._describe(grown)
        self._notify()
        return info

    def topic(self, name: str) -> TopicInfo:
        with self._reading():
            return self._describe(self._broker.topics.named(name))

    def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        with self._reading():
            return [
                self._describe(topic)
                for name, topic in sorted(self._broker.topics.catalog.topics.items())
                if internal or not topic.is_internal
            ]

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Everything below the offset is gone; where the partition starts now."""
        with self._writing() as (now_ms, _):
            found = self._broker.topics.named(topic)
            return self._broker.delete_records(found, partition, before_offset, now_ms)

    def _describe(self, topic: Topic) -> TopicInfo:
        return TopicInfo(
            topic.name,
            topic.id.hex(),
            tuple(
                PartitionInfo(
                    partition.index,
                    partition.log.start_offset,
                    partition.high_watermark,
                    partition.log.end_offset,
                    partition.log.size_bytes,
                    len(partition.log.segments()),
                )
                for partition in self._broker.topics.partitions(topic)
            ),
            topic.settings.to_mapping(),
        )

    def _topic_to_write(self, name: str, now_ms: int) -> Topic:
        try:
            return self._broker.topics.named(name)
        except UnknownTopic:
            if not self._auto_create:
                raise
            return self._broker.topics.create(name, 3, TopicSettings(), now_ms)

    def _topics_named(self, names: Sequence[str]) -> list[Topic]:
        return [self._broker.topics.named(name) for name in names]

    # Publishing.

    def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[Published]:
        with self._writing() as (now_ms, commit):
            found = self._topic_to_write(topic, now_ms)
            self._broker.check_space(sum(len(message.value or b"") + 128 for message in messages))
            published = self._broker.publisher.publish(found, messages, now_ms, commit)
            self._maintain(now_ms)
        self._notify()
        return published

    def publish_values(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Sequence[Published]:
        with self._writing() as (now_ms, commit):
            found = self._topic_to_write(topic, now_ms)
            self._broker.check_space(sum(map(len, values)) + 32 * len(values))
            published = self._broker.publisher.publish_values(
                found, values, headers, partition, now_ms, commit
            )
            self._maintain(now_ms)
        self._notify()
        return published

    # Streams.

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        count_max: int = 500,
        bytes_max: int = READ_BYTES_MAX,
    ) -> tuple[list[StreamRecord], int]:
        """Records from `offset` on, and the offset to go on from."""
        with self._reading():
            found = self._broker.topics.named(topic)
            place = self._broker.topics.partition(found, partition)
            start, end = place.log.start_offset, place.high_watermark
            if isinstance(offset, bool) or not isinstance(offset, int):
                raise InvalidArgument(f"an offset is a number, not {offset!r}")
            if not start <= offset <= end:
                raise OffsetOutOfRange(
                    f"offset {offset} of {topic}:{partition} is outside of {start} to {end}"
                )
            return self._broker.read(found, partition, offset, count_max, bytes_max)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        with self._reading():
            found = self._broker.topics.named(topic)
            place = self._broker.topics.partition(found, partition)
            at = place.log.offset_for_timestamp(timestamp_ms)
            return place.high_watermark if at is None else min(at[0], place.high_watermark)

    def join_stream(
        self, group: str, topics: Sequence[str], member: str, reset: OffsetReset
    ) -> None:
        with self._writing() as (now_ms, commit):
            self._join(group, topics, member, reset, now_ms, commit)
        self._notify()

    def change_stream(self, group: str, member: str, topics: Sequence[str]) -> None:
        with self._writing() as (now_ms, commit):
            reset = self._resets.get((group, member), "earliest")
            self._join(group, topics, member, reset, now_ms, commit)
        self._notify()

    def _join(
        self, group: str, topics: Sequence[str], member: str, reset: OffsetReset,
        now_ms: int, commit: Commit,
    ) -> None:  # fmt: skip
        """A group has a cursor on every partition from the start, so that
        nothing is deleted that it has not seen."""
        cursors = self._broker.cursors
        found = [self._topic_to_write(topic, now_ms) for topic in topics]
        begins: dict[tuple[bytes, int], int | None] = {}
        for topic in found:
            for partition in self._broker.topics.partitions(topic):
                place = (topic.id, partition.index)
                start, end = partition.log.start_offset, partition.high_watermark
                cursor = cursors.find(group, place)
                if cursor is not None and start <= cursor.offset <= end:
                    continue
                if reset == "error":
                    raise OffsetOutOfRange(
                        f"group {group!r} has no position on {topic.name}:{partition.index} "
                        "that is still there; choose reset='earliest' or 'latest', or seek"
                    )
                begins[place] = start if reset == "earliest" else end
        cursors.join(group, member, [topic.name for topic in found])
        self._resets[group, member] = reset
        if begins:
            commit.data.append(cursors.commit(group, begins, now_ms))

    def leave_stream(self, group: str, member: str) -> None:
        with self._reading():
            self._broker.cursors.leave(group, member)
            self._resets.pop((group, member), None)
        self._notify()

    def assignment(self, group: str, member: str) -> tuple[int, dict[Place, int]]:
        """The generation, and where this member reads."""
        with self._reading():
            cursors = self._broker.cursors
            generation, places = cursors.membership(group, member)
            reset = self._resets.get((group, member), "earliest")
            positions = {}
            for name, index in places:
                partition = self._broker.topics.partition(self._broker.topics.named(name), index)
                start, end = partition.log.start_offset, partition.high_watermark
                cursor = cursors.find(group, (partition.topic.id, index))
                if cursor is not None and start <= cursor.offset <= end:
                    positions[name, index] = cursor.offset
                else:
                    positions[name, index] = end if reset == "latest" else start
            return generation, positions

    def commit(
        self,
        group: str,
        positions: Mapping[Place, int],
        *,
        member: str | None = None,
        generation: int | None = None,
    ) -> None:
        with self._writing() as (now_ms, commit):
            if member is not None and generation is not None:
                self._broker.cursors.check_generation(group, member, generation)
            places: dict[tuple[bytes, int], int | None] = {}
            for (name, index), offset in positions.items():
                partition = self._broker.topics.partition(self._broker.topics.named(name), index)
                if isinstance(offset, bool) or not isinstance(offset, int):
                    raise InvalidArgument(f"an offset is a number, not {offset!r}")
                if not 0 <= offset <= partition.high_watermark:
                    raise OffsetOutOfRange(
                        f"offset {offset} of {name}:{index} is outside of 0 to "
                        f"{partition.high_watermark}"
                    )
                places[partition.topic.id, index] = offset
            if places:
                commit.data.append(self._broker.cursors.commit(group, places, now_ms))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        with self._reading():
            found = self._broker.topics.named(topic)
            return {
                index: cursor.offset
                for (topic_id, index), cursor in self._broker.cursors.of(group).items()
                if topic_id == found.id
            }

    # Queues.

    def open_queue(
        self,
        group: str,
        topics: Sequence[str],
        consumer: str,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        with self._writing() as (now_ms, commit):
            found = [self._topic_to_write(topic, now_ms) for topic in topics]
            opened = self._broker.queues.open(group, found, settings or {}, now_ms, commit)
            self._broker.queues.serving(opened).consumers.add(consumer)

    def lease(
        self,
        group: str,
        topics: Sequence[str],
        consumer: str,
        count: int,
        *,
        visibility_ms: int | None = None,
    ) -> list[Delivery]:
        """What is ready now, up to `count`; never waits for more."""
        queues = self._broker.queues
        queues.check_lease(consumer, count, visibility_ms)
        with self._writing() as (now_ms, _):
            found = self._topics_named(topics)
            return queues.lease(
                queues.named(group), found, consumer, count, visibility_ms, now_ms
            )

    def ack(self, group: str, receipts: Sequence[Receipt]) -> Outcomes:
        queues = self._broker.queues
        with self._writing() as (now_ms, commit):
            found = queues.named(group)
            outcomes = self._room_for_acks(
                lambda: queues.ack(found, receipts, now_ms, commit)
            )
        self._notify()
        return outcomes

    def nack(
        self,
        group: str,
        receipts: Sequence[Receipt],
        *,
        delay_ms: int | None = None,
        error: str | None = None,
    ) -> Outcomes:
        queues = self._broker.queues
        if delay_ms is not None and not 0 <= delay_ms <= limits.TIMESTAMP_MS_MAX:
            raise InvalidArgument(f"a delay is at least 0 ms, not {delay_ms}")
        with self._writing() as (now_ms, commit):
            found = queues.named(group)
            outcomes = self._room_for_acks(
                lambda: queues.nack(found, receipts, delay_ms, _short(error), now_ms, commit)
            )
        self._notify()
        return outcomes

    def reject(
        self, group: str, receipts: Sequence[Receipt], *, reason: str | None = None
    ) -> Outcomes:
        queues = self._broker.queues
        with self._writing() as (now_ms, commit):
            found = queues.named(group)
            outcomes = self._room_for_acks(
                lambda: queues.reject(found, receipts, _short(reason), now_ms, commit)
            )
        self._notify()
        return outcomes

    def extend(
        self, group: str, receipts: Sequence[Receipt], *, visibility_ms: int | None = None
    ) -> Outcomes:
        queues = self._broker.queues
        queues.check_lease("extend", 1, visibility_ms)
        with self._writing() as (now_ms, commit):
            return queues.extend(queues.named(group), receipts, visibility_ms, now_ms, commit)

    def release(self, group: str, receipts: Sequence[Receipt]) -> Outcomes:
        queues = self._broker.queues
        with self._writing() as (now_ms, _):
            outcomes = queues.release(queues.named(group), receipts, now_ms)
        self._notify()
        return outcomes

    def held(self, group: str, consumer: str) -> dict[tuple[str, int, int], Receipt]:
        with self._reading():
            return self._broker.queues.held(self._broker.queues.named(group), consumer)

    def leave(self, group: str, consumer: str) -> None:
        with self._writing() as (now_ms, _):
            self._broker.queues.leave(self._broker.queues.named(group), consumer, now_ms)
        self._notify()

    # Groups.

    def groups(self) -> list[GroupInfo]:
        with self._reading():
            broker = self._broker
            found = [
                self._describe_group(group)
                for group in broker.topics.catalog.groups.values()
                if not group.is_internal
            ]
            found += [self._describe_stream(name) for name in broker.cursors.groups()]
            return sorted(found)

    def group(self, name: str) -> GroupInfo:
        with self._reading():
            group = self._broker.topics.catalog.groups.get(name)
            if group is not None:
                return self._describe_group(group)
            if name in self._broker.cursors.groups():
                return self._describe_stream(name)
            raise UnknownGroup(f"there is no group {name!r}")

    def _describe_group(self, group: Group) -> GroupInfo:
        by_id = self._broker.topics.catalog.topics_by_id
        return GroupInfo(
            group.name,
            "queue",
            tuple(sorted(by_id[topic_id].name for topic_id in group.topics if topic_id in by_id)),
            group.settings.to_mapping(),
            tuple(sorted(self._broker.queues.serving(group).consumers)),
        )

    def _describe_stream(self, name: str) -> GroupInfo:
        cursors = self._broker.cursors
        return GroupInfo(name, "stream", cursors.topics_of(name), {}, cursors.members(name))

    def alter_group(self, name: str, settings: Mapping[str, Any]) -> GroupInfo:
        queues = self._broker.queues
        with self._writing() as (now_ms, _):
            return self._describe_group(queues.alter(queues.named(name), settings, now_ms))

    def delete_group(self, name: str) -> None:
        queues, cursors = self._broker.queues, self._broker.cursors
        with self._writing() as (now_ms, commit):
            if name in self._broker.topics.catalog.groups:
                queues.delete(queues.named(name), now_ms, commit)
                return
            if name not in cursors.groups():
                raise UnknownGroup(f"there is no group {name!r}")
            written = cursors.forget(name, now_ms)
            if written is not None:
                commit.data.append(written)

    def status(self, id: MessageId, group: str) -> MessageStatus:
        with self._reading() as now_ms:
            return self._broker.status(id, self._broker.queues.named(group), now_ms)

    def queue_statistics(
        self, group: str, topics: Sequence[str] | None = None
    ) -> QueueStatistics:
        queues = self._broker.queues
        with self._reading() as now_ms:
            found = None if topics is None else self._topics_named(topics)
            return queues.statistics(queues.named(group), found, now_ms)

    # Delayed messages and dead letters.

    def delayed(
        self, topic: str, *, after: tuple[int, int, int] | None = None, limit: int = 100
    ) -> list[DelayedMessage]:
        with self._reading() as now_ms:
            return self._broker.delayed(self._broker.topics.named(topic), after, limit, now_ms)

    def cancel(self, id: MessageId) -> bool:
        """Call a delayed message off, for all groups. False when it is not
        delayed any more."""
        with self._writing() as (now_ms, commit):
            return self._broker.cancel(id, now_ms, commit)

    def dead_letters(
        self,
        topic: str,
        *,
        group: str | None = None,
        after: MessageId | None = None,
        limit: int = 100,
    ) -> list[DeadLetter]:
        with self._reading():
            found = self._broker.topics.named(topic)
            return self._broker.dead_letters(found, group, after, limit)

    def dead_letter(self, id: MessageId) -> DeadLetter:
        with self._reading():
            return self._broker.dead_letter(id)

    def redrive(
        self, topic: str, ids: Sequence[MessageId], *, dry_run: bool = False, force: bool = False
    ) -> RedriveResult:
        with self._writing() as (now_ms, commit):
            result = self._broker.redrive(
                self._broker.topics.named(topic), ids, now_ms, commit,
                dry_run=dry_run, force=force,
            )  # fmt: skip
        self._notify()
        return result

    def purge(self, topic: str, ids: Sequence[MessageId]) -> int:
        with self._writing() as (now_ms, commit):
            return self._broker.purge(self._broker.topics.named(topic), ids, now_ms, commit)


def _short(text: str | None) -> str | None:
    return None if text is None else text[: limits.ERROR_CHARACTERS_MAX]
