"""Cursors: where stream groups are, in a compacted topic of their own.

    key     group, topic id, partition       msgpack
    value   offset, committed at, metadata,  msgpack, or null: forgotten
            leader epoch
    header  "topic", of what is forgotten:   UTF-8
            the topic's name, which nobody
            may know any more

Beside them stand records about the members of groups (memberships.py).

The table is built by reading that topic from its start; a commit is an append to
it and counts once it is synced. Members of a group share its partitions by range,
anew in each generation.

Positions may be part of a transaction: then they are a transactional batch here, and
wait for the marker that decides it. Whichever record was written last has the last
word on its key, as compaction will see it: what a transaction wrote before somebody
else's commit does not count, also when its marker comes behind that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from headrace.core import limits
from headrace.core.errors import (
    GroupInUse,
    GroupKindMismatch,
    LimitExceeded,
    StaleGeneration,
    UnknownGroup,
)
from headrace.core.settings import OffsetReset, TopicSettings
from headrace.core.values import check_name
from headrace.engine.catalog import CURSOR_TOPIC, Topic
from headrace.engine.coordinator.stored import Unwritten
from headrace.engine.memberships import Memberships, is_membership, membership_records
from headrace.engine.partition import Partition
from headrace.engine.records import iterate_batches
from headrace.engine.stream_group import StreamGroup
from headrace.engine.topics import Topics
from headrace.record import (
    ControlKind,
    Headers,
    NewRecord,
    Record,
    build_batch,
    read_control,
    read_header,
    read_records,
)

Place = tuple[bytes, int]
NO_PRODUCER = -1
TOPIC_HEADER = "topic"


class Cursor(NamedTuple):
    # Below 0 it is no position: what a Kafka client wrote for "from the beginning" or "from
    # the end", for others of its kind to read.
    offset: int
    at_ms: int
    # What the committer wanted to remember, and the epoch of what it read last.
    metadata: str = ""
    leader_epoch: int = -1


class Commitment(NamedTuple):
    """A position to be committed."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class StoredCursor(NamedTuple):
    """What a record of the topic says: None as the cursor forgets it."""

    group: str
    place: Place
    cursor: Cursor | None
    # Of what is forgotten; "" in records of versions that did not write it.
    topic_name: str


class _Position(NamedTuple):
    """A record of the topic: its offset there, and what it says."""

    record_offset: int
    group: str
    place: Place
    cursor: Cursor | None
    # Whose transaction it is part of, if of any.
    producer_id: int = NO_PRODUCER


_key_decoder: msgspec.msgpack.Decoder[tuple[str, bytes, int]] = msgspec.msgpack.Decoder(
    tuple[str, bytes, int]
)
_value_decoder: msgspec.msgpack.Decoder[Cursor] = msgspec.msgpack.Decoder(Cursor)
_encoder = msgspec.msgpack.Encoder()


def decode_cursor(record: Record) -> StoredCursor:
    group, topic_id, index = _key_decoder.decode(record.key or b"")
    if record.value is not None:
        return StoredCursor(group, (topic_id, index), _value_decoder.decode(record.value), "")
    name = dict(record.headers).get(TOPIC_HEADER) or b""
    return StoredCursor(group, (topic_id, index), None, name.decode())


class Cursors:
    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._table: dict[str, dict[Place, Cursor]] = {}
        self._groups: dict[str, StreamGroup] = {}
        # What is appended, or decided, up to an offset that is not synced yet.
        self._waiting: list[tuple[int, _Position]] = []
        # By producer: what its open transaction has written here.
        self._undecided: dict[int, list[_Position]] = {}
        # How many transactions that do not count yet have written to a position.
        self._unstable: Counter[tuple[str, Place]] = Counter()
        # What was found when the directory was opened.
        self.memberships = Memberships()

    # The table.

    def load(self) -> None:
        partition = self._partition()
        if partition is None:
            return
        log = partition.log
        for data, position in iterate_batches(log, log.start_offset, log.end_offset):
            header = read_header(data, position)
            batch = data[position : position + header.size_bytes]
            if header.is_control:
                marker = read_control(batch, header)
                for each in self._decide(marker.producer_id, marker.kind is ControlKind.COMMIT):
                    self._apply(each)
                continue
            for record in read_records(batch, header):
                if is_membership(record):
                    self.memberships.read(record)
                    continue
                stored = decode_cursor(record)
                producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
                read = _Position(
                    record.offset, stored.group, stored.place, stored.cursor, producer_id
                )
                if header.is_transactional:
                    self._hold(read)
                else:
                    self._apply(read)

    def take_back(self, now_ms: int) -> Partition | None:
        """Positions behind the end of a log that lost its unsynced tail go back
        to that end, or what is published there next would be skipped. Not those
        that an open transaction moves: it counts as a whole or not at all. The
        partition that was written to, if any: it has to be synced before that."""
        written = None
        for group, table in list(self._table.items()):
            beyond: dict[Place, Commitment | None] = {}
            for (topic_id, index), cursor in table.items():
                partition = self._topics.find(topic_id, index)
                if partition is None or not self.is_stable(group, (topic_id, index)):
                    continue
                if partition.stopped is not None:
                    # Its end is not known for sure.
                    continue
                if cursor.offset > partition.log.end_offset:
                    beyond[topic_id, index] = Commitment(partition.log.end_offset)
            if beyond:
                written = self.commit(group, beyond, now_ms)[0]
        return written

    def _partition(self) -> Partition | None:
        topic = self._topics.catalog.topics.get(CURSOR_TOPIC)
        return None if topic is None else self._topics.partitions(topic)[0]

    # Leadership.

    @property
    def is_away(self) -> bool:
        """Whether another node leads the topic: it writes positions, and has the latest."""
        partition = self._partition()
        return partition is not None and partition.is_led_elsewhere

    def on_led_again(self, partition: Partition) -> None:
        """If it is that of the positions: what was not safe when it was lost counts if it is
        there still."""
        if partition is self._partition():
            self._table, self._waiting, self._undecided = {}, [], {}
            self._unstable.clear()
            # Members are known to whoever coordinates them, and not found as at a start.
            found, self.memberships = self.memberships, Memberships()
            self.load()
            self.memberships = found

    def _apply(self, position: _Position) -> None:
        _, group, place, cursor, producer_id = position
        if producer_id != NO_PRODUCER:
            self._let_go(position)
            if place[0] not in self._topics.catalog.topics_by_id:
                return  # The topic was deleted before the transaction was decided.
        if (group, place) in self._unstable:
            self._supersede(position)
        table = self._table.setdefault(group, {})
        if cursor is None:
            table.pop(place, None)
            if not table:
                del self._table[group]
                self._forget_if_over(group)
        else:
            table[place] = cursor

    def place(self, now_ms: int) -> Place:
        """Where positions are written: what a transaction names to commit some."""
        return self.ensure_topic(now_ms).topic.id, 0

    def ensure_topic(self, now_ms: int) -> Partition:
        """Where positions are written, made if it is not there."""
        partition = self._partition()
        if partition is None:
            settings = TopicSettings(cleanup="compact", retention_ms=None, segment_bytes=1 << 20)
            topic = self._topics.create(CURSOR_TOPIC, 1, settings, now_ms, internal=True)
            partition = self._topics.partitions(topic)[0]
        return partition

    def commit(
        self,
        group: str,
        positions: Mapping[Place, Commitment | None],
        now_ms: int,
        producer: tuple[int, int] | None = None,
        gone: Topic | None = None,
    ) -> tuple[Partition, int]:
        """Write positions (None forgets one); the partition and the end to wait
        for before they count. Those of a producer, by id and epoch, are part of
        its transaction and count when that is committed. `gone` is a topic that
        is in the catalog no longer."""
        if group in self._topics.catalog.groups and not self.knows(group):
            raise GroupKindMismatch(f"group {group!r} reads as a queue; choose another name")
        strangers = self.memberships.members(group)
        if strangers:
            # Nobody coordinates its members here, and it goes on without them: were they to
            # come back, they would commit what they had read before.
            self.write_members(group, dict.fromkeys(strangers), now_ms)
            self.memberships.forget(group)
        partition = self.ensure_topic(now_ms)
        records = []
        cursors: list[tuple[Place, Cursor | None]] = []
        for place, wanted in positions.items():
            cursor = None
            if wanted is not None:
                cursor = Cursor(wanted.offset, now_ms, wanted.metadata, wanted.leader_epoch)
            cursors.append((place, cursor))
            value = None if cursor is None else _encoder.encode(cursor)
            headers = self._topic_header(place[0], gone) if cursor is None else ()
            records.append(NewRecord(_encoder.encode((group, *place)), value, headers, now_ms))
        if producer is None:
            batch = build_batch(records)
        else:
            batch = build_batch(
                records, producer_id=producer[0], producer_epoch=producer[1], transactional=True
            )
        first, end, *_ = partition.append(batch, read_header(batch), now_ms)
        for number, (place, cursor) in enumerate(cursors):
            if producer is None:
                self._waiting.append((end, _Position(first + number, group, place, cursor)))
            else:
                self._hold(_Position(first + number, group, place, cursor, producer[0]))
        return partition, end

    def write_members(self, group: str, changed: Unwritten, now_ms: int) -> tuple[Partition, int]:
        """Write what became of a group's members, at least of one; the partition and the end
        to wait for before that is safe."""
        partition = self.ensure_topic(now_ms)
        for records in membership_records(group, changed, now_ms):
            batch = build_batch(records)
            partition.append(batch, read_header(batch), now_ms)
        return partition, partition.log.end_offset

    def _topic_header(self, topic_id: bytes, gone: Topic | None) -> Headers:
        """Names the topic for readers who learn that a position is forgotten: when they
        do, the catalog may not know the topic any more."""
        topic = gone
        if topic is None or topic.id != topic_id:
            topic = self._topics.catalog.topics_by_id.get(topic_id)
        return () if topic is None else ((TOPIC_HEADER, topic.name.encode()),)

    def on_synced(self) -> None:
        partition = self._partition()
        if partition is None:
            return
        safe = [each for end, each in self._waiting if end <= partition.high_watermark]
        if safe:
            del self._waiting[: len(safe)]
            for position in sorted(safe):
                self._apply(position)

    # Transactions.

    def on_marker(self, partition: Partition, producer_id: int, commit: bool, end: int) -> None:
        """The marker of a transaction is written, up to this offset. Markers of
        other partitions say nothing here."""
        if partition is self._partition():
            self._waiting += [(end, each) for each in self._decide(producer_id, commit)]

    def is_stable(self, group: str, place: Place) -> bool:
        """Whether no transaction is about to change this position."""
        return (group, place) not in self._unstable

    def changing(self) -> set[tuple[str, Place]]:
        """Positions of which something is written that does not count yet."""
        return {(each.group, each.place) for _, each in self._waiting} | set(self._unstable)

    def _hold(self, position: _Position) -> None:
        self._undecided.setdefault(position.producer_id, []).append(position)
        self._unstable[position.group, position.place] += 1

    def _let_go(self, position: _Position) -> None:
        key = position.group, position.place
        self._unstable[key] -= 1
        if not self._unstable[key]:
            del self._unstable[key]

    def _decide(self, producer_id: int, commit: bool) -> list[_Position]:
        """What a marker commits; it stays unstable until it is applied."""
        decided = self._undecided.pop(producer_id, [])
        if not commit:
            for position in decided:
                self._let_go(position)
        return decided if commit else []

    def _supersede(self, newer: _Position) -> None:
        """What transactions have written of this position before does not count."""

        def is_older(each: _Position) -> bool:
            return (
                each.producer_id != NO_PRODUCER
                and each.record_offset < newer.record_offset
                and (each.group, each.place) == (newer.group, newer.place)
            )

        for producer_id, held in self._undecided.items():
            older = [each for each in held if is_older(each)]
            if older:
                self._undecided[producer_id] = [each for each in held if not is_older(each)]
                for each in older:
                    self._let_go(each)
        for _, each in self._waiting:
            if is_older(each):
                self._let_go(each)
        self._waiting = [(end, each) for end, each in self._waiting if not is_older(each)]

    def find(self, group: str, place: Place) -> Cursor | None:
        return self._table.get(group, {}).get(place)

    def of(self, group: str) -> dict[Place, Cursor]:
        return dict(self._table.get(group, {}))

    def count(self, group: str) -> int:
        return len(self._table.get(group, ()))

    def groups(self) -> set[str]:
        return set(self._table) | set(self._groups)

    def knows(self, group: str) -> bool:
        """Whether the group has members or positions, or is about to."""
        return (
            group in self._table
            or group in self._groups
            or any(group == waiting.group for _, waiting in self._waiting)
            or any(group == unstable[0] for unstable in self._unstable)
        )

    def check_room(self, group: str) -> None:
        """LimitExceeded where the group is not there and would be one too many."""
        if self.knows(group):
            return
        coming = {waiting.group for _, waiting in self._waiting}
        if len(self.groups() | coming) >= limits.GROUPS_MAX:
            raise LimitExceeded(f"there are {limits.GROUPS_MAX} groups, the most allowed")

    def lowest(self, place: Place) -> int | None:
        """The offset that every cursor on this partition has reached."""
        offsets = (table[place].offset for table in self._table.values() if place in table)
        return min((offset for offset in offsets if offset >= 0), default=None)

    def forget(self, group: str, now_ms: int) -> tuple[Partition, int] | None:
        if self._groups.get(group, StreamGroup()).members:
            raise GroupInUse(f"group {group!r} has members; close them first")
        self._groups.pop(group, None)
        places = self._table.get(group)
        return None if not places else self.commit(group, dict.fromkeys(places), now_ms)

    def forget_topic(self, topic: Topic, now_ms: int) -> None:
        """Forget all positions in a topic that is in the catalog no longer."""
        if self.is_away:
            return  # Its leader does, when it hears of the deletion.
        for group, table in list(self._table.items()):
            places = [place for place in table if place[0] == topic.id]
            if places:
                self.commit(group, dict.fromkeys(places), now_ms, gone=topic)

    # Members.

    def join(self, group: str, member: str, topics: Iterable[str], reset: OffsetReset) -> None:
        check_name("group", group)
        if group in self._topics.catalog.groups:
            raise GroupKindMismatch(f"group {group!r} reads as a queue; choose another name")
        names = tuple(self._topics.named(topic).name for topic in topics)
        self.check_room(group)
        found = self._groups.setdefault(group, StreamGroup())
        found.members[member] = names
        found.resets[member] = reset
        self.share(group)

    def reset_of(self, group: str, member: str) -> OffsetReset:
        found = self._groups.get(group, StreamGroup())
        return found.resets.get(member, "earliest")

    def leave(self, group: str, member: str) -> None:
        found = self._groups.get(group)
        if found is not None and found.members.pop(member, None) is not None:
            found.resets.pop(member, None)
            self.share(group)
            self._forget_if_over(group)

    def _forget_if_over(self, group: str) -> None:
        """A group is there as long as it has members or positions: names that were used once
        are not kept for ever."""
        found = self._groups.get(group)
        if found is not None and not found.members and group not in self._table:
            del self._groups[group]

    def share(self, group: str) -> None:
        found = self._groups[group]
        wanted = {topic for topics in found.members.values() for topic in topics}
        catalog = self._topics.catalog
        found.share(
            {name: catalog.topics[name].partitions for name in sorted(wanted & set(catalog.topics))}
        )

    def on_topic_changed(self, topic: Topic) -> None:
        for name, group in self._groups.items():
            if any(topic.name in topics for topics in group.members.values()):
                self.share(name)

    def membership(self, group: str, member: str) -> tuple[int, list[tuple[str, int]]]:
        found = self._groups.get(group)
        if found is None or member not in found.members:
            raise UnknownGroup(f"{member!r} is not a member of group {group!r}")
        return found.generation, found.assigned[member]

    def check_generation(self, group: str, member: str, generation: int) -> None:
        if self.membership(group, member)[0] != generation:
            raise StaleGeneration(
                f"group {group!r} has shared its partitions anew; look at the assignment again"
            )

    def members(self, group: str) -> tuple[str, ...]:
        found = self._groups.get(group)
        return () if found is None else tuple(found.members)

    def topics_of(self, group: str) -> tuple[str, ...]:
        """Names of the topics that the group reads or has read."""
        catalog = self._topics.catalog
        read = {
            catalog.topics_by_id[topic_id].name
            for topic_id, _ in self._table.get(group, {})
            if topic_id in catalog.topics_by_id
        }
        found = self._groups.get(group)
        if found is not None:
            read |= {topic for topics in found.members.values() for topic in topics}
        return tuple(sorted(read))
