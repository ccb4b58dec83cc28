"""Streams: reading by offset, and the cursors of stream groups.

What is read is committed. The end of a stream is the last stable offset: behind it
lies what is still to be decided, of which a reader who began there would see the end
without the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace.calls.served import Served
from headrace.core.errors import InvalidArgument, OffsetOutOfRange, TopicReplaced
from headrace.core.settings import OffsetReset
from headrace.core.values import StreamRecord
from headrace.engine.commit import Commit
from headrace.engine.cursor import Commitment

READ_BYTES_MAX = 1024 * 1024
Place = tuple[str, int]


# Offset and time of the record that it finds.
TimeSearch = Callable[[], tuple[int, int] | None]


class StreamCalls(Served):
    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        count_max: int = 500,
        bytes_max: int = READ_BYTES_MAX,
        topic_id: str | None = None,
    ) -> tuple[list[StreamRecord], int]:
        """Committed records from `offset` on, and the offset to go on from. Who has
        the offset from an earlier look says by `topic_id` at which topic that was."""
        with self._reading():
            found = self._broker.topics.named(topic)
            if topic_id is not None and topic_id != found.id.hex():
                raise TopicReplaced(
                    f"topic {topic} was deleted and made again since it was looked at; offsets "
                    "of the old one mean nothing in it, so begin anew: 'earliest' or 'latest'"
                )
            place = self._broker.topics.partition(found, partition)
            place.check_here()
            place.check_sound()
            start, end = place.log.start_offset, place.high_watermark
            if isinstance(offset, bool) or not isinstance(offset, int):
                raise InvalidArgument(f"an offset is a number, not {offset!r}")
            if not start <= offset <= end:
                raise OffsetOutOfRange(
                    f"offset {offset} of {topic}:{partition} is outside of {start} to {end}"
                )
            return self._broker.read(found, partition, offset, count_max, bytes_max)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The first committed record of that time or later; the end where there is none."""
        return self.offset_of(topic, partition, self.time_search(topic, partition, timestamp_ms)())

    def time_search(self, topic: str, partition: int, timestamp_ms: int) -> TimeSearch:
        """The first half of `offset_at`, to be called anywhere: records are read for it."""
        with self._reading():
            found = self._broker.topics.named(topic)
            place = self._broker.topics.partition(found, partition)
            place.check_here()
            place.check_sound()
            return place.log.time_search(timestamp_ms)

    def offset_of(self, topic: str, partition: int, record: tuple[int, int] | None) -> int:
        """The second half: what was found, as offset and time, as a place to read from."""
        with self._reading():
            found = self._broker.topics.named(topic)
            place = self._broker.topics.partition(found, partition)
            end = place.last_stable_offset
            # It may have been deleted meanwhile.
            return end if record is None else min(max(record[0], place.log.start_offset), end)

    def join_stream(
        self, group: str, topics: Sequence[str], member: str, reset: OffsetReset
    ) -> None:
        with self._writing() as (now_ms, commit):
            self._join(group, topics, member, reset, now_ms, commit)
        self._notify_changed()

    def change_stream(self, group: str, member: str, topics: Sequence[str]) -> None:
        with self._writing() as (now_ms, commit):
            reset = self._broker.cursors.reset_of(group, member)
            self._join(group, topics, member, reset, now_ms, commit)
        self._notify_changed()

    def _join(
        self, group: str, topics: Sequence[str], member: str, reset: OffsetReset,
        now_ms: int, commit: Commit,
    ) -> None:  # fmt: skip
        """A group has a cursor on every partition from the start, so that
        nothing is deleted that it has not seen."""
        cursors = self._broker.cursors
        found = self._topics_named(topics)
        begins: dict[tuple[bytes, int], Commitment | None] = {}
        for topic in found:
            for partition in self._broker.topics.partitions(topic):
                place = (topic.id, partition.index)
                start, end = partition.log.start_offset, partition.high_watermark
                cursor = cursors.find(group, place)
                # Where another node leads, the log may be longer by now.
                is_unsure = partition.stopped or partition.is_led_elsewhere
                if cursor is not None and (is_unsure or start <= cursor.offset <= end):
                    continue
                partition.check_here()
                if reset == "error":
                    raise OffsetOutOfRange(
                        f"group {group!r} has no position on {topic.name}:{partition.index} "
                        "that is still there; choose reset='earliest' or 'latest', or seek"
                    )
                stable = partition.last_stable_offset
                begins[place] = Commitment(start if reset == "earliest" else stable)
        cursors.join(group, member, [topic.name for topic in found], reset)
        if begins:
            commit.data.append(cursors.commit(group, begins, now_ms))

    def leave_stream(self, group: str, member: str) -> None:
        with self._reading() as now_ms:
            self._broker.cursors.leave(group, member)
            self._broker.readers.note(group, now_ms)
        self._notify_changed()

    def assignment(self, group: str, member: str) -> tuple[int, dict[Place, int]]:
        """The generation, and where this member reads."""
        with self._reading():
            cursors = self._broker.cursors
            generation, places = cursors.membership(group, member)
            reset = self._broker.cursors.reset_of(group, member)
            positions = {}
            for name, index in places:
                partition = self._broker.topics.partition(self._broker.topics.named(name), index)
                start, end = partition.log.start_offset, partition.high_watermark
                cursor = cursors.find(group, (partition.topic.id, index))
                is_unsure = partition.stopped or partition.is_led_elsewhere
                if cursor is not None and (is_unsure or start <= cursor.offset <= end):
                    positions[name, index] = cursor.offset
                else:
                    partition.check_here()
                    stable = partition.last_stable_offset
                    positions[name, index] = stable if reset == "latest" else start
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
            places: dict[tuple[bytes, int], Commitment | None] = {}
            for (name, index), offset in positions.items():
                partition = self._broker.topics.partition(self._broker.topics.named(name), index)
                if isinstance(offset, bool) or not isinstance(offset, int):
                    raise InvalidArgument(f"an offset is a number, not {offset!r}")
                # Where another node leads, the log may be longer by now.
                if offset < 0 or not (
                    offset <= partition.high_watermark or partition.is_led_elsewhere
                ):
                    raise OffsetOutOfRange(
                        f"offset {offset} of {name}:{index} is outside of 0 to "
                        f"{partition.high_watermark}"
                    )
                places[partition.topic.id, index] = Commitment(offset)
            if places:
                self._broker.cursors.check_room(group)
                commit.data.append(self._broker.cursors.commit(group, places, now_ms))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        with self._reading():
            found = self._broker.topics.named(topic)
            return {
                index: cursor.offset
                for (topic_id, index), cursor in self._broker.cursors.of(group).items()
                if topic_id == found.id and cursor.offset >= 0
            }
