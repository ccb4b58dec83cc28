"""Cursors: where stream groups are, in a compacted topic of their own.

    key     group, topic id, partition       msgpack
    value   offset, committed at, metadata,  msgpack, or null: forgotten
            leader epoch

The table is built by reading that topic from its start; a commit is an append to
it and counts once it is synced. Members of a group share its partitions by range,
anew in each generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from headrace.core.errors import GroupInUse, GroupKindMismatch, StaleGeneration, UnknownGroup
from headrace.core.settings import OffsetReset, TopicSettings
from headrace.core.values import check_name
from headrace.engine.catalog import CURSOR_TOPIC, Topic
from headrace.engine.partition import Partition
from headrace.engine.records import iterate_batches
from headrace.engine.topics import Topics
from headrace.record import NewRecord, build_batch, read_header, read_records

Place = tuple[bytes, int]


class Cursor(NamedTuple):
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


_key_decoder: msgspec.msgpack.Decoder[tuple[str, bytes, int]] = msgspec.msgpack.Decoder(
    tuple[str, bytes, int]
)
_value_decoder: msgspec.msgpack.Decoder[Cursor] = msgspec.msgpack.Decoder(Cursor)
_encoder = msgspec.msgpack.Encoder()


class StreamGroup:
    """The members of one group and what each of them reads."""

    def __init__(self) -> None:
        self.generation = 0
        self.members: dict[str, tuple[str, ...]] = {}
        # Where a member wants to begin when there is no position.
        self.resets: dict[str, OffsetReset] = {}
        self.assigned: dict[str, list[tuple[str, int]]] = {}

    def share(self, counts: Mapping[str, int]) -> None:
        """Range assignment: of each topic, every member that wants it gets a
        contiguous piece."""
        self.generation += 1
        self.assigned = {member: [] for member in self.members}
        for topic, count in counts.items():
            wanting = sorted(m for m, topics in self.members.items() if topic in topics)
            if not wanting:
                continue
            size, extra = divmod(count, len(wanting))
            first = 0
            for number, member in enumerate(wanting):
                last = first + size + (number < extra)
                self.assigned[member] += [(topic, index) for index in range(first, last)]
                first = last


class Cursors:
    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._table: dict[str, dict[Place, Cursor]] = {}
        self._groups: dict[str, StreamGroup] = {}
        # Commits that are appended and not synced yet.
        self._waiting: list[tuple[int, str, Place, Cursor | None]] = []

    # The table.

    def load(self) -> None:
        partition = self._partition()
        if partition is None:
            return
        log = partition.log
        for data, position in iterate_batches(log, log.start_offset, log.end_offset):
            header = read_header(data, position)
            if header.is_control:
                continue
            for record in read_records(data[position : position + header.size_bytes], header):
                group, topic_id, index = _key_decoder.decode(record.key or b"")
                value = None if record.value is None else _value_decoder.decode(record.value)
                self._apply(group, (topic_id, index), value)

    def take_back(self, now_ms: int) -> Partition | None:
        """Positions behind the end of a log that lost its unsynced tail go back
        to that end, or what is published there next would be skipped. The
        partition that was written to, if any: it has to be synced before that."""
        written = None
        for group, table in list(self._table.items()):
            beyond: dict[Place, Commitment | None] = {}
            for (topic_id, index), cursor in table.items():
                partition = self._topics.find(topic_id, index)
                if partition is not None and cursor.offset > partition.log.end_offset:
                    beyond[topic_id, index] = Commitment(partition.log.end_offset)
            if beyond:
                written = self.commit(group, beyond, now_ms)[0]
        return written

    def _partition(self) -> Partition | None:
        topic = self._topics.catalog.topics.get(CURSOR_TOPIC)
        return None if topic is None else self._topics.partitions(topic)[0]

    def _apply(self, group: str, place: Place, cursor: Cursor | None) -> None:
        table = self._table.setdefault(group, {})
        if cursor is None:
            table.pop(place, None)
            if not table:
                del self._table[group]
        else:
            table[place] = cursor

    def commit(
        self, group: str, positions: Mapping[Place, Commitment | None], now_ms: int
    ) -> tuple[Partition, int]:
        """Write positions (None forgets one); the partition and the end to wait
        for before they count."""
        partition = self._partition()
        if partition is None:
            settings = TopicSettings(cleanup="compact", retention_ms=None, segment_bytes=1 << 20)
            topic = self._topics.create(CURSOR_TOPIC, 1, settings, now_ms, internal=True)
            partition = self._topics.partitions(topic)[0]
        records = []
        cursors: list[tuple[Place, Cursor | None]] = []
        for place, wanted in positions.items():
            cursor = None
            if wanted is not None:
                cursor = Cursor(wanted.offset, now_ms, wanted.metadata, wanted.leader_epoch)
            cursors.append((place, cursor))
            value = None if cursor is None else _encoder.encode(cursor)
            records.append(NewRecord(_encoder.encode((group, *place)), value, (), now_ms))
        batch = build_batch(records)
        end = partition.append(batch, read_header(batch), now_ms).next_offset
        self._waiting += [(end, group, place, cursor) for place, cursor in cursors]
        return partition, end

    def on_synced(self) -> None:
        partition = self._partition()
        if partition is None:
            return
        taken = 0
        for end, group, place, cursor in self._waiting:
            if end > partition.high_watermark:
                break
            self._apply(group, place, cursor)
            taken += 1
        del self._waiting[:taken]

    def find(self, group: str, place: Place) -> Cursor | None:
        return self._table.get(group, {}).get(place)

    def of(self, group: str) -> dict[Place, Cursor]:
        return dict(self._table.get(group, {}))

    def groups(self) -> set[str]:
        return set(self._table) | set(self._groups)

    def lowest(self, place: Place) -> int | None:
        """The offset that every cursor on this partition has reached."""
        return min(
            (table[place].offset for table in self._table.values() if place in table), default=None
        )

    def forget(self, group: str, now_ms: int) -> tuple[Partition, int] | None:
        if self._groups.get(group, StreamGroup()).members:
            raise GroupInUse(f"group {group!r} has members; close them first")
        self._groups.pop(group, None)
        places = self._table.get(group)
        return None if not places else self.commit(group, dict.fromkeys(places), now_ms)

    def forget_topic(self, topic_id: bytes, now_ms: int) -> None:
        for group, table in list(self._table.items()):
            places = [place for place in table if place[0] == topic_id]
            if places:
                self.commit(group, dict.fromkeys(places), now_ms)

    # Members.

    def join(self, group: str, member: str, topics: Iterable[str], reset: OffsetReset) -> None:
        check_name("group", group)
        if group in self._topics.catalog.groups:
            raise GroupKindMismatch(f"group {group!r} reads as a queue; choose another name")
        names = tuple(self._topics.named(topic).name for topic in topics)
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
