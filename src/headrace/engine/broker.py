"""The broker: topics, queues, cursors and moves of one node, as one.

It is not thread-safe and it never waits: a call changes what it may, says in a
Commit what has to be on disk before it counts, and returns. The node around it
holds the lock, syncs the files and asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple

from headrace.core import limits
from headrace.core.errors import CorruptLog, DiskFull, InvalidArgument, UnknownMessage
from headrace.core.ports import Disk, Entropy
from headrace.core.values import (
    DeadLetter,
    Looked,
    MessageId,
    MessageStatus,
    RedriveResult,
    State,
    StreamRecord,
)
from headrace.engine import dead_letter
from headrace.engine import state as events
from headrace.engine.catalog import (
    CURSOR_TOPIC,
    DEAD_LETTER_GROUP,
    Group,
    ProducersReserved,
    Topic,
)
from headrace.engine.commit import Commit
from headrace.engine.consumers import Readers
from headrace.engine.cursor import Cursors
from headrace.engine.delayed import DelayedLooked, cancel, due_ms_of, look_at_delayed
from headrace.engine.duties import Duties
from headrace.engine.fate import Fates
from headrace.engine.following import Follower
from headrace.engine.grant import NOTHING, PROCESS
from headrace.engine.groups import Groups
from headrace.engine.growth import growth
from headrace.engine.leading import Leading, unless_full
from headrace.engine.lease_end import is_over_at_a_node, is_over_embedded
from headrace.engine.leasing import Leasing
from headrace.engine.letter_listing import LettersLooked, look_at_letters
from headrace.engine.metadata import Metadata
from headrace.engine.move import Moves
from headrace.engine.partition import Partition
from headrace.engine.publish import Publisher
from headrace.engine.queue import QueueView
from headrace.engine.redriving import redrive
from headrace.engine.retain import Steps, carry_out, on_rot, retain, retention
from headrace.engine.runs import runs_of
from headrace.engine.settling import Settling
from headrace.engine.sharing import Sharing
from headrace.engine.space import Space
from headrace.engine.topics import Topics
from headrace.engine.transactions import Transactions
from headrace.engine.upkeep import close_short, fair_share, keep_short
from headrace.engine.window import (
    ABSENT,
    ACKED,
    CANCELLED,
    DEAD,
    DELAYED,
    EXPIRED,
    LEASED,
    MOVING,
    READY,
    RETRYING,
    SETTLING,
    STATE_MASK,
    WAITING,
)
from headrace.engine.witnesses import Ends, ends_by_letters
from headrace.log import Log, SyncTicket

STATES: dict[int, State] = {
    READY: "pending",
    WAITING: "pending",
    LEASED: "leased",
    SETTLING: "leased",
    RETRYING: "retrying",
    DELAYED: "delayed",
    MOVING: "dead-lettered",
    ACKED: "acked",
    DEAD: "dead-lettered",
    EXPIRED: "expired",
    CANCELLED: "cancelled",
}
PRODUCER_IDS_RESERVED = 1_000


class Round(NamedTuple):
    """What one commit round syncs."""

    tickets: list[tuple[Log, SyncTicket]]
    partitions: list[Partition]


class Deleted(NamedTuple):
    """Topics that are gone, and their partitions, whose files are still open."""

    topics: list[Topic]
    partitions: list[Partition]


class Broker:
    def __init__(
        self,
        disk: Disk,
        entropy: Entropy,
        now_ms: int,
        *,
        read_only: bool = False,
        free_bytes_min: int = 0,
        on_full: Callable[[], bool] = lambda: False,
        keep_reserve: Callable[[], object] = lambda: None,
        leases_stand: bool = False,
    ) -> None:
        """`on_full` is asked to make room when acks cannot be written, and `keep_reserve`,
        now and then, to hold back some for that. `leases_stand` where those who lease are
        other processes, which do not end with this one."""
        self._disk = disk
        self._on_full = on_full
        self.space = Space(disk, free_bytes_min, keep_reserve)
        self._producer_id = self._producer_ids_end = 0
        self.read_only = read_only
        self.metadata = Metadata(disk, now_ms, read_only=read_only)
        self.topics = Topics(disk, entropy, self.metadata, read_only=read_only, on_full=on_full)
        self.readers = Readers(now_ms)
        self.groups = Groups(self.topics, self.readers, lambda name: self.cursors.knows(name))
        self.moves = Moves(self.topics, self.groups.dead_letters)
        self.fates = Fates(self.topics, self.groups, self.moves)
        tie = NOTHING if leases_stand else PROCESS
        self.leasing = Leasing(self.groups, self.fates, entropy, tie)
        self.settling = Settling(self.topics, self.groups, self.fates)
        self.sharing = Sharing(self.groups, self.fates, self.leasing, entropy)
        self.cursors = Cursors(self.topics)
        self.publisher = Publisher(self.topics)
        self.follower = Follower(self.topics)
        self.transactions = Transactions(self.topics, self.cursors, self.new_producer_id)
        self.duties = Duties(self.cursors, self.transactions, self.readers)
        if not read_only:
            self.metadata.log.sync_now()
        self.topics.open_all(now_ms)
        self.cursors.load()
        self.transactions.load()
        self.leading = Leading(
            self.topics, self.groups, self.moves, self.fates, self.transactions, self.cursors,
            self.follower, on_full, is_over_at_a_node if leases_stand else is_over_embedded,
        )  # fmt: skip
        if not read_only:
            self.leading.begin(now_ms)

    def commit(self) -> Commit:
        if self.leading.owed:
            self.leading.catch_up()
        return Commit(self.metadata)

    # Syncing.

    def begin_sync(self, partitions: Iterable[Partition]) -> Round:
        """What has to be synced for these partitions, and for the catalog."""
        tickets: list[tuple[Log, SyncTicket]] = []
        # In the same order each time, so that a simulation repeats itself.
        synced = sorted(partitions, key=lambda partition: partition.path)
        logs = [self.metadata.log]
        for partition in synced:
            logs.append(partition.log)
            if partition.state is not None:
                logs.append(partition.state.log)
        for log in logs:
            ticket = log.begin_sync()
            if ticket is not None:
                tickets.append((log, ticket))
        return Round(tickets, synced)

    def on_synced(self, done: Round, now_ms: int) -> set[Partition]:
        """The round's files are on disk. Returns partitions that were written to
        by what could go on now."""
        for log, ticket in done.tickets:
            log.on_synced(ticket)
        self.metadata.on_synced()
        for partition in done.partitions:
            partition.on_synced(now_ms)
            if partition.state is not None and partition.state.cut_below is not None:
                self.follower.note(partition)
        dirty = self.transactions.advance(now_ms)
        self.cursors.on_synced()
        return dirty | self.moves.advance(now_ms) if self.moves else dirty

    # Publishing.

    def check_space(self, size: int) -> None:
        """Publishing stops at a floor of free space, so that acks go on."""
        if self.leading.owed:
            raise DiskFull(
                "the disk is full: there is no room for what opening the directory began, and "
                "nothing is published before; delete or move something. Reading goes on"
            )
        self.space.check(size)

    # Producers.

    def new_producer_id(self, now_ms: int) -> int:
        """One that nobody ever had. They are reserved a block at a time, so that
        most calls write nothing."""
        if self._producer_id >= self._producer_ids_end:
            reserved = self.metadata.catalog.next_producer
            self._producer_id = max(reserved, self.transactions.producer_ids_end())
            self._producer_ids_end = self._producer_id + PRODUCER_IDS_RESERVED
            self.topics.change([ProducersReserved(self._producer_ids_end)], now_ms)
        self._producer_id += 1
        return self._producer_id - 1

    # Topics.

    def delete_topic(self, topic: Topic, now_ms: int, commit: Commit) -> Deleted:
        """Take the topic and its dead letters out of everything. Once the commit is
        done and no sync is at work on the partitions any more, `close_files` and
        `topics.remove_files` finish it; a crash before that leaves folders that the
        next open removes."""
        letters = self.topics.catalog.dead_letters_of(topic)
        gone = [topic] if letters is None else [topic, letters]
        closing: list[Partition] = []
        for each in gone:
            closing += self.topics.delete(each, now_ms)
            self.moves.forget(each.id)
            self.publisher.forget(each)
            self.cursors.forget_topic(each, now_ms)
            self.cursors.on_topic_changed(each)
        for partition in closing:
            partition.delete()
            self.follower.forget(partition)
        commit.forget(closing)
        positions = self.topics.catalog.topics.get(CURSOR_TOPIC)
        if positions is not None and not self.cursors.is_away:
            kept = self.topics.partition(positions, 0)
            commit.data.append((kept, kept.log.end_offset))
        return Deleted(gone, closing)

    def topic_growth(
        self, topic: Topic, partitions: int, now_ms: int, commit: Commit, *, break_key_order: bool
    ) -> Generator[None, None, Topic]:
        """More partitions, which every queue group of the topic reads as well; in
        slices of one, and seen when all of them are there."""
        grown = yield from growth(
            self.topics, self.groups, topic, partitions, now_ms, commit,
            break_key_order=break_key_order,
        )  # fmt: skip
        self.cursors.on_topic_changed(grown)
        return grown

    # Streams.

    def read(
        self, topic: Topic, index: int, offset: int, count_max: int, bytes_max: int
    ) -> tuple[list[StreamRecord], int]:
        """Committed records from `offset` on, and the offset to go on from. FencedLeader where
        another node leads: it has what comes next."""
        partition = self.topics.partition(topic, index)
        partition.check_here()
        partition.check_sound()
        end = partition.last_stable_offset
        found: list[StreamRecord] = []
        size = 0
        while offset < end and len(found) < count_max and size < bytes_max:
            wanted = count_max - len(found)
            records, offset = partition.records.read_next(
                offset, wanted, end, partition.aborted_between
            )
            for record in records:
                size += len(record.value or b"") + len(record.key or b"")
                for name, value in record.headers:
                    size += len(name) + len(value or b"")
                found.append(
                    StreamRecord(
                        topic.name, index, record.offset, record.timestamp_ms,
                        record.key, record.value, record.headers,
                    )
                )  # fmt: skip
                if size >= bytes_max:
                    return found, record.offset + 1
        return found, offset

    # One message.

    def status(self, message: MessageId, group: Group) -> MessageStatus:
        topic = self.topics.named(message.topic)
        partition = self.topics.partition(topic, message.partition)
        partition.check_here()
        if partition.queues_stopped is not None:
            raise partition.queues_stopped.without_frames()
        view = partition.views.get(group.id)
        if view is None or not 0 <= message.offset < view.window.end:
            raise UnknownMessage(f"group {group.name!r} knows no message {message}")
        state = view.window.value_at(message.offset) & STATE_MASK
        if state == ABSENT:
            raise UnknownMessage(f"there is no message {message} for group {group.name!r}")
        owner = due = None
        if state == LEASED:
            grant = view.grants[view.window.grant_at(message.offset)]
            owner, due = grant.owner, grant.until_ms
        elif state == RETRYING:
            due = next((at for at, offset in view.retries if offset == message.offset), None)
        elif state == DELAYED:
            found = partition.read([message.offset, message.offset + 1])
            due = due_ms_of(partition, found[0]) if found else None
        return MessageStatus(STATES[state], view.window.attempts_at(message.offset), due, owner)

    # Delayed messages.

    def delayed(
        self, topic: Topic, after: tuple[int, int, int] | None, limit: int, now_ms: int
    ) -> DelayedLooked:
        return look_at_delayed(self.topics.partitions(topic), after, limit, now_ms)

    def cancel(self, message: MessageId, now_ms: int, commit: Commit) -> bool:
        topic = self.topics.named(message.topic)
        partition = self.topics.partition(topic, message.partition)
        partition.check_here()
        if not cancel(partition, message.offset, now_ms):
            return False
        assert partition.state is not None
        commit.state.append((partition, partition.state.log.end_offset))
        return True

    # Dead letters.

    def _letters(self, topic: Topic) -> tuple[Topic, Group] | None:
        letters = self.topics.catalog.dead_letters_of(topic)
        group = self.topics.catalog.groups.get(DEAD_LETTER_GROUP)
        return None if letters is None or group is None else (letters, group)

    def ends_by_letters(self, partition: Partition) -> Ends:
        """What dead letters say about messages of a partition whose queues are stopped."""
        found = self._letters(partition.topic)
        if found is None:
            return {}
        letters, keeper = found
        return ends_by_letters(partition, self.topics.partitions(letters), keeper.id)

    def dead_letters(
        self, topic: Topic, group: str | None, after: MessageId | None, limit: int
    ) -> LettersLooked:
        if not 1 <= limit <= limits.PAGE_ITEMS_MAX:
            raise InvalidArgument(f"a page has 1 to {limits.PAGE_ITEMS_MAX} items, not {limit}")
        found = self._letters(topic)
        if found is None:
            return Looked([], None, 0)
        letters, keeper = found
        self.groups.check_queues(keeper, [letters])
        return look_at_letters(self.topics.partitions(letters), keeper.id, group, after, limit)

    def dead_letter(self, message: MessageId) -> DeadLetter:
        topic = self.topics.named(message.topic)
        partition = self.topics.partition(topic, message.partition)
        if (
            topic.source_id is not None
            and partition.log.start_offset <= message.offset < partition.high_watermark
        ):
            for record in partition.read([message.offset, message.offset + 1]):
                return dead_letter.read_letter(topic.name, partition.index, record)
        raise UnknownMessage(f"there is no dead letter {message}")

    def redrive(
        self,
        topic: Topic,
        messages: Sequence[MessageId],
        now_ms: int,
        commit: Commit,
        *,
        dry_run: bool,
        force: bool,
    ) -> Generator[Commit | None, None, RedriveResult]:
        """Send dead letters back to the group that they failed in."""
        kept = self._kept(topic, messages)
        return redrive(
            self.topics, self.moves, topic, kept, now_ms, commit, dry_run=dry_run, force=force
        )

    def purge(
        self, topic: Topic, messages: Sequence[MessageId], now_ms: int, commit: Commit
    ) -> int:
        purged = 0
        for partition, view, offsets in self._kept(topic, messages):
            event = events.Purged(view.group_id, "purge", now_ms, runs_of(sorted(offsets)))
            commit.state.append((partition, partition.write(view, event, now_ms, wait=True)))
            purged += len(offsets)
        return purged

    def _kept(
        self, topic: Topic, messages: Sequence[MessageId]
    ) -> list[tuple[Partition, QueueView, set[int]]]:
        """Those of these dead letters that are still there, by partition."""
        found = self._letters(topic)
        if found is None:
            return []
        letters, keeper = found
        wanted: dict[int, set[int]] = {}
        for message in messages:
            if message.topic != letters.name:
                raise InvalidArgument(f"{message} is not a dead letter of topic {topic.name!r}")
            wanted.setdefault(message.partition, set()).add(message.offset)
        kept = []
        for index, offsets in wanted.items():
            partition = self.topics.partition(letters, index)
            partition.check_here()
            view = partition.views.get(keeper.id)
            if view is not None:
                window = view.window
                there = {
                    offset
                    for offset in offsets
                    if window.start <= offset < window.end and window.state_at(offset) == READY
                }
                if there:
                    kept.append((partition, view, there))
        return kept

    # Housekeeping.

    def maintain(self, now_ms: int) -> None:
        """Retention and compaction, for every partition. What is given up on the way
        is a move: whoever calls waits for those. What a full disk has no room for is done
        next time."""
        self.space.keep()
        share_bytes = self.replay_share()
        for partition in list(self.topics):
            if partition.is_led_elsewhere:
                continue
            try:
                with unless_full():
                    retain(partition, self.cursors, self.fates, now_ms)
                    carry_out(keep_short(partition, share_bytes, now_ms))
            except CorruptLog as error:
                # Whoever calls did nothing wrong, nor did the other partitions.
                on_rot(partition, error)

    def replay_share(self) -> int:
        """How much of its state log each partition may leave for a start to replay."""
        return fair_share(self.topics)

    def maintenance(self, partition: Partition, share_bytes: int, now_ms: int) -> Steps:
        """The same for one partition, for who does the steps elsewhere. To be closed
        when the partition goes away."""
        yield from retention(partition, self.cursors, self.fates, now_ms)
        yield from keep_short(partition, share_bytes, now_ms)

    def delete_records(self, topic: Topic, index: int, before: int, now_ms: int) -> int:
        partition = self.topics.partition(topic, index)
        partition.check_here()
        if not 0 <= before <= partition.high_watermark:
            raise InvalidArgument(
                f"records can be deleted up to offset {partition.high_watermark}, not {before}"
            )
        partition.making_room(lambda: partition.log.delete_before(before))
        partition.on_start_moved()
        return partition.log.start_offset

    def close(self, now_ms: int | None = None) -> None:
        """With the time, it leaves little to be replayed."""
        if now_ms is not None and not self.read_only:
            close_short(self.topics, now_ms)
        for partition in self.topics:
            partition.close()
        self.metadata.log.close()
