"""A stream: records in the order of their partitions, and a position in each.

With a group, the members of the group share the partitions and the group's
cursors remember how far they came. Without one, a stream reads every partition
from where it is told and moves nothing.

What a caller was given and what it has handled are two things. Coming back for
more says that everything before was handled, so that is what is committed:

    given      0 1 2 3 4 5 6 7
    handled    0 1 2 3                  committed while the loop still has 4 to 7

Leaving normally commits all that was given; leaving by an error commits what was
handled, so the record that failed is read again.

Rejected: a thread that commits by the clock. It would commit records that the
caller is still working on, and they would be lost with the process.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

from headrace.client.backend import Backend, Place
from headrace.client.connection import Connection
from headrace.client.membership import Membership
from headrace.client.positions import Position, Start, offset_of, starting_offsets
from headrace.client.progress import Progress
from headrace.client.queue import checked_count, consumer_id, topic_names
from headrace.client.times import Duration, optional_duration_ms
from headrace.client.values import ValueType
from headrace.client.views import Record
from headrace.client.waiting import Bell, endured, wait_for_some
from headrace.core.errors import (
    Closed,
    InvalidArgument,
    OffsetOutOfRange,
    StaleGeneration,
    TopicReplaced,
    UnknownTopic,
)
from headrace.core.ports import steady_ms
from headrace.core.settings import OffsetReset
from headrace.core.values import CursorMove, StreamRecord, check_name

T = TypeVar("T")

AUTO_COMMIT_SECONDS = 5.0
POLL_RECORDS = 500


class Stream(Generic[T]):
    def __init__(
        self,
        connection: Connection,
        topics: str | Iterable[str],
        group: str | None = None,
        *,
        start: Start | None = None,
        reset: str = "earliest",
        auto_commit: Duration | None = AUTO_COMMIT_SECONDS,
        partitions: Iterable[int] | None = None,
        consumer: str | None = None,
        value_type: ValueType | None = None,
    ) -> None:
        self.group = None if group is None else check_name("group", group)
        self.member = consumer_id(consumer)
        self.value_type = value_type
        self.bell = Bell()
        self._connection = connection
        self._lock = threading.RLock()
        self._topics = topic_names(topics)
        self._reset = _checked_reset(reset)
        self._auto_commit_ms = optional_duration_ms("auto_commit", auto_commit)
        self._partitions = _checked_partitions(partitions)
        self._membership: Membership | None = None
        self._progress = Progress()
        # Which topic a position is one of: a topic may be deleted and made again under
        # its name. A group's cursors know it themselves.
        self._topic_ids: dict[Place, str] = {}
        # Partitions take turns, so a full one does not hide the others.
        self._turn = 0
        backend = connection.reach()
        self._clock = backend.clock
        self._committed_at_ms = steady_ms(self._clock)
        self._begin(backend, start)
        connection.on_opened(self)

    def _begin(self, backend: Backend, start: Start | None) -> None:
        if self.group is None:
            places = self._places(backend, self._topics)
            self._progress.place(
                starting_offsets(backend, places, "earliest" if start is None else start)
            )
            return
        if self._partitions is not None:
            raise InvalidArgument("a group shares its partitions out; leave `partitions` away")
        if start is not None:
            if start not in ("earliest", "latest"):
                raise InvalidArgument(
                    "a group starts from its cursors, and `start` is 'earliest' or 'latest' for "
                    "partitions without one; use seek() to go elsewhere"
                )
            self._reset = _checked_reset(start)
        membership = Membership(self._connection, self, self.group, self.member)
        membership.join(backend, self._topics, self._reset)
        self._membership = membership
        try:
            self._refresh(backend)
        except BaseException:
            membership.leave(backend)
            raise

    # Reading.

    def poll(self, max: int = POLL_RECORDS, wait: Duration | None = None) -> list[Record[T]]:
        """At most `max` records, as soon as there is one. Empty when `wait` is
        over, or when the stream is closed meanwhile; None waits without end.

        Asking for more says that everything given before was handled.
        """
        count = checked_count("max", max)
        wait_ms = optional_duration_ms("wait", wait)
        self.on_handled()
        records = wait_for_some(
            self.check(), self.bell, lambda: self.take_nowait(count), _never, wait_ms, self._topics
        )
        return [Record(record, self.value_type) for record in records]

    def __iter__(self) -> Iterator[Record[T]]:
        """Record after record, until the stream is closed."""
        while not self.closed:
            try:
                self.on_handled()
                records = wait_for_some(
                    self.check(), self.bell, lambda: self.take_nowait(1), _never, None, self._topics
                )
            except Closed:
                # For a loop, a stream that is closed is the end and not an error.
                if self.closed:
                    return
                raise
            for record in records:
                yield Record(record, self.value_type)

    def take_nowait(self, count_max: int) -> list[StreamRecord]:
        """At most so many records that are there now, which counts them as given."""
        with self._lock:
            backend = self.check()
            if self._is_rebalanced or not self._progress.has_ahead:
                self._refresh(backend)
            if not self._progress.has_ahead:
                self._read_ahead(backend)
                if not self._progress.has_ahead and self._join_again(backend):
                    self._read_ahead(backend)
            return self._progress.take(count_max)

    def take_ahead(self) -> list[StreamRecord]:
        """One record that was read already, without touching the disk, or none."""
        with self._lock:
            return [] if self._is_rebalanced else self._progress.take(1)

    @property
    def _is_rebalanced(self) -> bool:
        return self._membership is not None and self._membership.is_rebalanced

    def _read_ahead(self, backend: Backend) -> None:
        places = list(self._progress.next)
        count = 0
        for step in range(len(places)):
            place = places[(self._turn + step) % len(places)]
            count += self._read_place(backend, place, POLL_RECORDS - count)
            if count >= POLL_RECORDS:
                break
        self._turn += 1
        if not count:
            self._progress.on_nothing_left()
            self._follow_growth(backend)

    def _read_place(self, backend: Backend, place: Place, count_max: int) -> int:
        topic, partition = place
        offset = self._progress.next[place]
        try:
            records, next_offset = backend.read(
                topic, partition, offset, count_max=count_max, topic_id=self._topic_ids.get(place)
            )
        except (OffsetOutOfRange, TopicReplaced):
            # Retention took what the position pointed at, or it was one of a topic that
            # is not there any more.
            if self._reset == "error":
                raise
            if not self._identify(backend, [place]):
                return 0
            records, next_offset = [], offset_of(backend, place, self._reset)
        self._progress.on_read(place, records, next_offset)
        return len(records)

    # What was given, and what is handled.

    def on_handled(self) -> None:
        """Everything given so far is handled; commit it when it is time."""
        if self.mark_handled():
            self.commit_handled()

    def mark_handled(self) -> bool:
        """Everything given so far is handled. Whether it is time to commit it."""
        with self._lock:
            self._progress.on_handled()
            if self._membership is None or self._auto_commit_ms is None:
                return False
            return steady_ms(self._clock) - self._committed_at_ms >= self._auto_commit_ms

    def commit_handled(self) -> None:
        """By itself, so a node that is away is no error: it is told the next time."""
        backend = self.check()
        with self._lock, contextlib.suppress(*endured(backend, None)):
            self._commit(backend, failed=True)

    def commit(self) -> None:
        """The group goes on behind everything that was given so far."""
        if self._membership is None:
            raise InvalidArgument("a stream without a group has nothing to commit to")
        with self._lock:
            self._commit(self.check(), failed=False)
            # Or a later commit of what is handled would take this one back.
            self._progress.on_handled()

    def _commit(self, backend: Backend, *, failed: bool) -> None:
        """What was given, or after a failure only what was handled. What went to
        another member meanwhile is that one's to commit."""
        if self._membership is None:
            return
        self._committed_at_ms = steady_ms(self._clock)
        positions = self._progress.handled if failed else self._progress.given
        self._refresh(backend)
        while changed := self._progress.uncommitted(positions):
            try:
                self._membership.commit(backend, changed)
            except StaleGeneration:
                # Somebody joined or left between the two calls.
                self._refresh(backend)
            else:
                self._progress.on_committed(changed)

    # As part of a transaction.

    def begin_move(self) -> CursorMove | None:
        """What a commit would say now; None when it would say nothing.

        StaleGeneration when some of what was given went to another member: what
        was made of it must not be written beside what that one will make. The
        rest is given again.
        """
        assert self._membership is not None
        with self._lock:
            self._refresh(self.check())
            lost = self._progress.take_lost()
            if lost:
                self._progress.rewind()
                places = ", ".join(f"{topic}:{index}" for topic, index in sorted(lost))
                raise StaleGeneration(
                    f"{places} went to another member of {self.group!r} before this was "
                    "committed; forget what was made of it and poll again"
                )
            changed = self._progress.uncommitted(self._progress.given)
            return self._membership.move_to(changed) if changed else None

    def on_moved(self, move: CursorMove) -> None:
        with self._lock:
            self._progress.on_committed(
                {(topic, index): offset for topic, index, offset in move.positions}
            )
            self._progress.on_handled()

    def on_rebalance_ahead(self) -> None:
        """Somebody is about to join: commit what is handled while the partitions
        are still ours."""
        with self._lock:
            if self._auto_commit_ms is not None and not self.closed:
                self._commit(self.check(), failed=True)

    def on_rebalanced(self) -> None:
        """The partitions were shared anew: look before giving what is ahead."""
        if self._membership is not None:
            self._membership.is_rebalanced = True

    # Positions.

    def seek(
        self, position: Position, *, topic: str | None = None, partition: int | None = None
    ) -> None:
        """Go on from there: in all of the stream's partitions, or in those of
        one topic, or in that one partition."""
        with self._lock:
            backend = self.check()
            self._refresh(backend)
            places = [
                place
                for place in self._progress.next
                if (topic is None or place[0] == topic)
                and (partition is None or place[1] == partition)
            ]
            if not places:
                raise InvalidArgument(
                    f"this stream has no partition that is {topic or 'any topic'}:"
                    f"{'any' if partition is None else partition}"
                )
            self._identify(backend, places)
            self._progress.place({place: offset_of(backend, place, position) for place in places})

    def position(self) -> dict[Place, int]:
        """The offset behind the last record given, for every partition."""
        with self._lock:
            self._refresh(self.check())
            return dict(self._progress.given)

    def assignment(self) -> list[Place]:
        """The (topic, partition) pairs that this stream reads now."""
        return sorted(self.position())

    def _refresh(self, backend: Backend) -> None:
        """Follow the group, whose members share the partitions anew whenever one
        of them comes or goes."""
        if self._membership is not None:
            cursors = self._membership.new_cursors(backend)
            if cursors is not None:
                self._progress.place_at_cursors(cursors)

    def _follow_growth(self, backend: Backend) -> None:
        """Without a group nobody tells us of new partitions."""
        if self._membership is not None or self._partitions is not None:
            return
        known = self._progress.next
        grown = [each for each in self._places(backend, self._topics) if each not in known]
        self._progress.place(starting_offsets(backend, grown, "earliest"))

    def _identify(self, backend: Backend, places: list[Place]) -> bool:
        """From now on these are positions in the topics that have the names now;
        whether all of them are there. Called before an offset is looked up: whoever
        makes a topic again between the two is noticed by the next read."""
        if self._membership is not None:
            return True
        for name in sorted({topic for topic, _ in places}):
            info = backend.topic(name)
            for place in [each for each in places if each[0] == name]:
                if place[1] < len(info.partitions):
                    self._topic_ids[place] = info.id
                elif self._partitions is None:
                    # Made again with fewer partitions than it had.
                    self._topic_ids.pop(place, None)
                    self._progress.drop([place])
        return all(place in self._topic_ids for place in places)

    def _join_again(self, backend: Backend) -> bool:
        """A topic that was deleted and made again has no cursors of the group;
        whether there was one. A topic of which we have partitions costs nothing."""
        if self._membership is None or self.group is None:
            return False
        assigned = {topic for topic, _ in self._progress.next}
        existing, made_again = [], False
        for topic in self._topics:
            try:
                if topic not in assigned and not backend.committed(self.group, topic):
                    made_again = True
            except UnknownTopic:
                continue
            existing.append(topic)
        if made_again:
            self._membership.change(backend, existing)
            self._refresh(backend)
        return made_again

    def _places(self, backend: Backend, topics: tuple[str, ...]) -> list[Place]:
        found = [backend.topic(topic) for topic in topics]
        places = [(info.name, each.partition) for info in found for each in info.partitions]
        if self._membership is None:
            ids = {info.name: info.id for info in found}
            # Known ones stay what they are: their positions are older than this look.
            self._topic_ids = {place: ids[place[0]] for place in places} | self._topic_ids
        if self._partitions is None:
            return places
        chosen = [place for place in places if place[1] in self._partitions]
        if {partition for _, partition in chosen} != self._partitions:
            raise InvalidArgument(
                f"not all of the partitions {sorted(self._partitions)} exist in {', '.join(topics)}"
            )
        return chosen

    # Topics, and the end.

    @property
    def topics(self) -> tuple[str, ...]:
        return self._topics

    @property
    def closed(self) -> bool:
        return self.bell.rung

    def add_topics(self, *topics: str, start: Start = "earliest") -> None:
        """Read these too. `start` counts where there is no group."""
        with self._lock:
            backend = self.check()
            added = tuple(name for name in topic_names(topics) if name not in self._topics)
            changed = topic_names((*self._topics, *added))
            if self._membership is None:
                self._progress.place(starting_offsets(backend, self._places(backend, added), start))
            else:
                self._membership.change(backend, changed)
            self._topics = changed

    def remove_topics(self, *topics: str) -> None:
        """Read no more of these. With a group, what was given is committed first."""
        with self._lock:
            backend = self.check()
            removed = topic_names(topics)
            left = tuple(name for name in self._topics if name not in removed)
            if not left:
                raise InvalidArgument("a stream keeps at least one topic; close it instead")
            if self._membership is not None:
                if self._auto_commit_ms is not None:
                    self._commit(backend, failed=False)
                self._membership.change(backend, left)
                self._refresh(backend)
            gone = [place for place in self._progress.next if place[0] in removed]
            self._progress.drop(gone)
            for place in gone:
                self._topic_ids.pop(place, None)
            self._topics = left

    def close(self) -> None:
        """Commit what was given, unless told never to, and leave the group. Fine
        when closed."""
        self.end(failed=False)

    def end(self, *, failed: bool) -> None:
        """Close. After a failure only what was handled is committed, so that what
        failed is read again."""
        if self._connection.is_forked or not self.bell.ring():
            return
        self._connection.on_closed(self)
        if self._membership is None or self._connection.closed:
            return
        backend = self._connection.reach()
        with self._lock:
            try:
                if self._auto_commit_ms is not None:
                    self._commit(backend, failed=failed)
            finally:
                self._membership.leave(backend)

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end(failed=error is not None)

    def __repr__(self) -> str:
        return f"<Stream {','.join(self._topics)} group={self.group}>"

    def check(self) -> Backend:
        """What serves us; Closed or Forked when nothing does any more."""
        backend = self._connection.reach()
        if self.bell.rung:
            raise Closed("this stream is closed; open another one")
        return backend


def _never() -> None:
    """When time alone brings a record: it does not."""
    return None


def _checked_partitions(partitions: object) -> frozenset[int] | None:
    if partitions is None:
        return None
    given = list(partitions) if isinstance(partitions, Iterable) else []
    if not given or not all(type(each) is int for each in given):
        raise InvalidArgument(f"partitions are a list of numbers, not {partitions!r}")
    return frozenset(given)


def _checked_reset(reset: object) -> OffsetReset:
    if reset in ("earliest", "latest", "error"):
        return reset
    raise InvalidArgument(f"reset must be 'earliest', 'latest' or 'error', not {reset!r}")
