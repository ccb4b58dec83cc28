"""The overview: one look over all topics and groups, in steps that others do not feel.

    topics ---- sums of their partitions
    groups ---- queue: what the windows count        stream: cursors against ends
           |--- members, of doors too
           '--- since when the next message waits    by the header of its batch

It is a generator that yields between two partitions: a door rests there, an embedded
node goes straight on. What changes between two steps is seen or not; a topic that is
deleted meanwhile is left out. A partition in which a stream group has committed
nothing counts as unread if the group has read its topic otherwise.

Rejected: asking for each topic's partitions and each queue's statistics from outside.
With ten thousand partitions that is megabytes a look, and each of them one long turn
of the loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from heapq import nlargest
from typing import TYPE_CHECKING, Literal, NamedTuple

from headrace.core.errors import HeadraceError
from headrace.core.overview_values import GroupTotals, OpenTransaction, Overview, TopicTotals
from headrace.core.ports import WouldWait
from headrace.core.steps import Steps
from headrace.core.values import SPARK_PROGRESS, SPARK_SINK_PREFIX, GroupMember
from headrace.engine.age import published_ms, ready_offset
from headrace.engine.catalog import DEAD_LETTER_GROUP, Group, Topic
from headrace.engine.consumers import is_lately
from headrace.engine.coordinator.transaction import State
from headrace.engine.lane import LANE_COUNT
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.statistics import rates_of
from headrace.engine.window import DELAYED, LEASED, MOVING, READY, RETRYING, SETTLING, WAITING

if TYPE_CHECKING:
    from headrace.engine.broker import Broker

# The first waiting message is looked for in so many partitions of a group.
LOOKED_AT_MAX = 16
# Of the partitions in which a stream group has committed nothing, so many are candidates.
CANDIDATES_MAX = 64
TRANSACTIONS_SHOWN_MAX = 100
_STATES = (READY, WAITING, LEASED, SETTLING, RETRYING, DELAYED, MOVING)

Patience = Callable[[], AbstractContextManager[None]]
# A partition, how much waits there, and where its next message is.
_Waiting = tuple[int, Partition, Callable[[], int | None]]


def overlook(
    broker: Broker,
    now_ms: int,
    *,
    patience: Patience = nullcontext,
    members_of: Callable[[str], Sequence[GroupMember]] = lambda group: (),
    groups: Iterable[str] = (),
) -> Steps[Overview]:
    """`patience` is what the disk is read in; `members_of` knows of members that the
    broker does not, and `groups` are the streams that have such members."""
    return _Look(broker, now_ms, patience, members_of, groups).steps()


class _Whole(NamedTuple):
    topic_id: bytes
    published: int
    records: int
    # Records by partition, where there are any.
    counts: dict[int, int]
    # The partitions that have most of them.
    largest: list[tuple[int, Partition]]


class _Look:
    def __init__(
        self,
        broker: Broker,
        now_ms: int,
        patience: Patience,
        members_of: Callable[[str], Sequence[GroupMember]],
        groups: Iterable[str],
    ) -> None:
        self._broker = broker
        self._now_ms = now_ms
        self._patience = patience
        self._members_of = members_of
        self._groups = groups
        # By topic.
        self._delivered: Counter[bytes] = Counter()
        self._letters: Counter[bytes] = Counter()
        self._lag: dict[bytes, int] = {}
        self._wholes: dict[bytes, _Whole] = {}

    def steps(self) -> Steps[Overview]:
        broker = self._broker
        groups: list[GroupTotals] = []
        for group in list(broker.topics.catalog.groups.values()):
            if group.name == DEAD_LETTER_GROUP:
                yield from self._count_letters(group)
            elif not group.is_internal:
                groups.append((yield from self._queue(group)))
        for name in sorted(broker.cursors.groups().union(self._groups)):
            if not name.startswith(SPARK_SINK_PREFIX):
                groups.append((yield from self._stream(name)))
        topics: list[TopicTotals] = []
        for topic in list(broker.topics.catalog.topics.values()):
            if self._knows(topic.id):
                topics.append((yield from self._topic(topic)))
        opened = [
            OpenTransaction(name, each.started_at_ms, each.timeout_ms)
            for name, each in broker.transactions.items()
            if each.state is State.ONGOING or each.is_ending
        ]
        opened.sort(key=lambda each: each.started_at_ms)
        return Overview(
            self._now_ms,
            tuple(sorted(topics)),
            tuple(sorted(groups)),
            tuple(opened[:TRANSACTIONS_SHOWN_MAX]),
            len(opened),
        )

    # Topics.

    def _kind(self, topic: Topic) -> Literal["topic", "letters", "internal"]:
        """Dead letters are counted with the topic that they are of, while there is one."""
        if topic.is_internal:
            return "internal"
        is_letters = topic.source_id is not None and self._knows(topic.source_id)
        return "letters" if is_letters else "topic"

    def _knows(self, topic_id: bytes) -> bool:
        return topic_id in self._broker.topics.catalog.topics_by_id

    def _topic(self, topic: Topic) -> Steps[TopicTotals]:
        records = size = published = stopped = undecided = 0
        for partition in list(self._broker.topics.partitions(topic)):
            end = partition.high_watermark
            records += end - partition.log.start_offset
            published += end
            size += partition.log.size_bytes
            stopped += partition.is_stopped
            undecided += partition.last_stable_offset < end
            yield
        return TopicTotals(
            topic.name, topic.partitions, records, size, published, self._delivered[topic.id],
            self._lag.get(topic.id, 0), stopped, undecided, self._letters[topic.id],
            self._kind(topic),
        )  # fmt: skip

    def _count_letters(self, keeper: Group) -> Steps[None]:
        for partition, view in self._broker.groups.views(keeper):
            source = partition.topic.source_id
            if source is not None:
                self._letters[source] += view.window.count_in(READY)
            yield

    # Groups.

    def _queue(self, group: Group) -> Steps[GroupTotals]:
        counts = dict.fromkeys(_STATES, 0)
        published = delivered = dead = failed = 0
        rates: list[list[float]] = []
        waiting: list[_Waiting] = []
        behind: Counter[bytes] = Counter()
        for partition, view in self._broker.groups.views(group):
            window = view.window
            # Most partitions of most groups have nothing to do.
            if window.start < window.end:
                for state in _STATES:
                    found = window.count_in(state)
                    counts[state] += found
                    behind[partition.topic.id] += found
                ready = window.count_in(READY)
                if ready:
                    waiting.append((ready, partition, partial(_first_ready, view)))
                    held_back = sum(view.held_back())
                    counts[READY] -= held_back
                    counts[WAITING] += held_back
            published += view.window.end
            delivered += view.totals["delivered"]
            dead += view.totals["dead_lettered"]
            failed += view.totals["nacked"] + view.totals["lease_expired"]
            self._delivered[partition.topic.id] += view.totals["delivered"]
            if view.rates.is_known:
                rates.append(rates_of(view, self._now_ms))
            yield
        self._note_lag(behind)
        oldest_ms = yield from self._oldest(waiting)
        by_id = self._broker.topics.catalog.topics_by_id
        names = sorted(by_id[each].name for each in group.topics if each in by_id)
        return GroupTotals(
            group.name, "queue", tuple(names),
            self._members(group.name, self._broker.groups.members(group, self._now_ms)),
            sum(counts.values()), oldest_ms, counts[READY], counts[WAITING],
            counts[LEASED] + counts[SETTLING], counts[RETRYING], counts[DELAYED], counts[MOVING],
            published, delivered, dead, failed + dead,
            self._broker.readers.read_lately(group.name, self._now_ms),
            sum(sum(each[:LANE_COUNT]) for each in rates) if rates else None,
            sum(sum(each[LANE_COUNT:]) for each in rates) if rates else None,
        )  # fmt: skip

    def _stream(self, name: str) -> Steps[GroupTotals]:
        cursors = self._broker.cursors
        published = read = 0
        waiting: list[_Waiting] = []
        behind: Counter[bytes] = Counter()
        table, known = cursors.of(name), cursors.topics_of(name)
        read_lately = self._broker.readers.read_lately(name, self._now_ms)
        wholes: dict[bytes, _Whole] = {}
        for topic in known:
            whole = yield from self._whole(topic)
            if whole is not None:
                wholes[whole.topic_id] = whole
                published += whole.published
                behind[whole.topic_id] += whole.records
        for (topic_id, index), cursor in table.items():
            partition = self._broker.topics.find(topic_id, index)
            if partition is None or topic_id not in wholes:
                continue
            end, at = partition.high_watermark, max(cursor.offset, partition.log.start_offset)
            read += max(0, cursor.offset)
            read_lately |= is_lately(cursor.at_ms, self._now_ms)
            self._delivered[topic_id] += max(0, cursor.offset)
            behind[topic_id] += max(0, end - at) - wholes[topic_id].counts.get(index, 0)
            if end > at:
                waiting.append((end - at, partition, partial(int, at)))
            yield
        for whole in wholes.values():
            for count, partition in whole.largest:
                if (whole.topic_id, partition.index) not in table:
                    waiting.append((count, partition, partial(int, partition.log.start_offset)))
        self._note_lag(behind)
        oldest_ms = yield from self._oldest(waiting)
        guests = self._members_of(name)
        members = self._members(name, cursors.members(name))
        if not members and any(each.metadata == SPARK_PROGRESS for each in table.values()):
            members = None
        read_now = {topic for each in guests for topic, _ in each.assigned}
        return GroupTotals(
            name, "stream", tuple(sorted(read_now.union(known))), members, behind.total(),
            oldest_ms, 0, 0, 0, 0, 0, 0, published, read, 0, 0, read_lately,
        )  # fmt: skip

    def _whole(self, name: str) -> Steps[_Whole | None]:
        """All of a topic, as it is for a group that has read nothing of it: counted once
        for all groups, so that each is gone through by its cursors alone."""
        topic = self._broker.topics.catalog.topics.get(name)
        if topic is None:
            return None
        if topic.id not in self._wholes:
            counts: dict[int, int] = {}
            largest: list[tuple[int, Partition]] = []
            published = 0
            for partition in list(self._broker.topics.partitions(topic)):
                published += partition.high_watermark
                count = partition.high_watermark - partition.log.start_offset
                if count:
                    counts[partition.index] = count
                    largest.append((count, partition))
                yield
            largest = nlargest(CANDIDATES_MAX, largest, key=lambda each: each[0])
            self._wholes[topic.id] = _Whole(
                topic.id, published, sum(counts.values()), counts, largest
            )
        return self._wholes[topic.id]

    def _members(self, group: str, ours: Iterable[str]) -> int | None:
        """Who reads only a directory's files does not see who else is there. A member may
        be known here and at a door."""
        if self._broker.read_only:
            return None
        return len({*ours, *(each.id for each in self._members_of(group))})

    def _note_lag(self, behind: Counter[bytes]) -> None:
        for topic_id, lag in behind.items():
            self._lag[topic_id] = max(lag, self._lag.get(topic_id, 0))

    def _oldest(self, waiting: list[_Waiting]) -> Steps[int | None]:
        oldest_ms: int | None = None
        for _, partition, offset in nlargest(LOOKED_AT_MAX, waiting, key=lambda each: each[0]):
            found = self._published_ms(partition, offset())
            if found is not None and (oldest_ms is None or found < oldest_ms):
                oldest_ms = found
            yield
        return oldest_ms

    def _published_ms(self, partition: Partition, offset: int | None) -> int | None:
        if offset is None:
            return None
        try:
            with self._patience():
                return published_ms(partition, offset)
        except (HeadraceError, OSError, WouldWait):
            # Nothing that a look should stop for: whoever reads there is told.
            return None


def _first_ready(view: QueueView) -> int | None:
    """The lowest offset that could be leased now, or could be but for others before it in
    its partition."""
    first = [ready_offset(view, lane) for lane in range(LANE_COUNT)]
    return min((offset for offset in first if offset is not None), default=None)
