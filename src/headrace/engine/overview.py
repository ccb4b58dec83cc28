"""The overview: one look over all topics and groups, in steps that others do not feel.

    topics ---- sums of their partitions
    groups ---- queue: what the windows count        stream: cursors against ends
           '--- since when the next message waits    by the header of its batch

It is a generator that yields between two partitions: a door rests there, an embedded
node goes straight on. What changes between two steps is seen or not; a topic that is
deleted meanwhile is left out.

Rejected: asking for each topic's partitions and each queue's statistics from outside.
With ten thousand partitions that is megabytes a look, and each of them one long turn
of the loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sized
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from heapq import nlargest
from typing import TYPE_CHECKING

from headrace.core.errors import HeadraceError
from headrace.core.overview_values import GroupTotals, OpenTransaction, Overview, TopicTotals
from headrace.core.ports import WouldWait
from headrace.engine.age import published_ms, ready_offset
from headrace.engine.catalog import DEAD_LETTER_GROUP, Group, Topic
from headrace.engine.coordinator.transaction import State
from headrace.engine.lane import LANE_COUNT
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.window import DELAYED, LEASED, MOVING, READY, RETRYING, SETTLING, WAITING

if TYPE_CHECKING:
    from headrace.engine.broker import Broker

# The first waiting message is looked for in so many partitions of a group.
LOOKED_AT_MAX = 16
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
    members_of: Callable[[str], int] = lambda group: 0,
) -> Generator[None, None, Overview]:
    """`patience` is what the disk is read in; `members_of` knows of members that the
    broker does not."""
    return _Look(broker, now_ms, patience, members_of).steps()


class _Look:
    def __init__(
        self,
        broker: Broker,
        now_ms: int,
        patience: Patience,
        members_of: Callable[[str], int],
    ) -> None:
        self._broker = broker
        self._now_ms = now_ms
        self._patience = patience
        self._members_of = members_of
        # By topic.
        self._delivered: Counter[bytes] = Counter()
        self._letters: Counter[bytes] = Counter()
        self._lag: dict[bytes, int] = {}

    def steps(self) -> Generator[None, None, Overview]:
        broker = self._broker
        groups: list[GroupTotals] = []
        for group in list(broker.topics.catalog.groups.values()):
            if group.name == DEAD_LETTER_GROUP:
                yield from self._count_letters(group)
            elif not group.is_internal:
                groups.append((yield from self._queue(group)))
        for name in sorted(broker.cursors.groups()):
            groups.append((yield from self._stream(name)))
        topics: list[TopicTotals] = []
        for topic in list(broker.topics.catalog.topics.values()):
            if not topic.is_internal and not self._is_letters(topic):
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

    def _is_letters(self, topic: Topic) -> bool:
        """Dead letters are counted with the topic that they are of, while there is one."""
        return topic.source_id is not None and self._knows(topic.source_id)

    def _knows(self, topic_id: bytes) -> bool:
        return topic_id in self._broker.topics.catalog.topics_by_id

    def _topic(self, topic: Topic) -> Generator[None, None, TopicTotals]:
        records = size = published = stopped = undecided = 0
        partitions = list(self._broker.topics.partitions(topic)) if self._knows(topic.id) else []
        for partition in partitions:
            end = partition.high_watermark
            records += end - partition.log.start_offset
            published += end
            size += partition.log.size_bytes
            stopped += partition.stopped is not None
            undecided += partition.last_stable_offset < end
            yield
        return TopicTotals(
            topic.name, topic.partitions, records, size, published, self._delivered[topic.id],
            self._lag.get(topic.id, 0), stopped, undecided, self._letters[topic.id],
        )  # fmt: skip

    def _count_letters(self, keeper: Group) -> Generator[None, None, None]:
        for partition, view in self._broker.groups.views(keeper):
            source = partition.topic.source_id
            if source is not None:
                self._letters[source] += view.window.count_in(READY)
            yield

    # Groups.

    def _queue(self, group: Group) -> Generator[None, None, GroupTotals]:
        counts = dict.fromkeys(_STATES, 0)
        published = delivered = dead = 0
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
            published += view.window.end
            delivered += view.totals["delivered"]
            dead += view.totals["dead_lettered"]
            self._delivered[partition.topic.id] += view.totals["delivered"]
            yield
        self._note_lag(behind)
        oldest_ms = yield from self._oldest(waiting)
        by_id = self._broker.topics.catalog.topics_by_id
        names = sorted(by_id[each].name for each in group.topics if each in by_id)
        return GroupTotals(
            group.name, "queue", tuple(names),
            self._members(group.name, self._broker.groups.serving(group).consumers),
            sum(counts.values()), oldest_ms, counts[READY], counts[WAITING],
            counts[LEASED] + counts[SETTLING], counts[RETRYING], counts[DELAYED], counts[MOVING],
            published, delivered, dead,
        )  # fmt: skip

    def _stream(self, name: str) -> Generator[None, None, GroupTotals]:
        cursors = self._broker.cursors
        published = read = 0
        waiting: list[_Waiting] = []
        behind: Counter[bytes] = Counter()
        for (topic_id, index), cursor in cursors.of(name).items():
            partition = self._broker.topics.find(topic_id, index)
            if partition is None:
                continue
            end, at = partition.high_watermark, max(cursor.offset, partition.log.start_offset)
            published += end
            read += cursor.offset
            self._delivered[topic_id] += cursor.offset
            if end > at:
                behind[topic_id] += end - at
                waiting.append((end - at, partition, partial(int, at)))
            yield
        self._note_lag(behind)
        oldest_ms = yield from self._oldest(waiting)
        members = self._members(name, cursors.members(name))
        return GroupTotals(
            name, "stream", cursors.topics_of(name), members, behind.total(), oldest_ms,
            0, 0, 0, 0, 0, 0, published, read, 0,
        )  # fmt: skip

    def _members(self, group: str, ours: Sized) -> int | None:
        """Who reads only a directory's files does not see who else is there."""
        return None if self._broker.read_only else len(ours) + self._members_of(group)

    def _note_lag(self, behind: Counter[bytes]) -> None:
        for topic_id, lag in behind.items():
            self._lag[topic_id] = max(lag, self._lag.get(topic_id, 0))

    def _oldest(self, waiting: list[_Waiting]) -> Generator[None, None, int | None]:
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
    """The lowest offset that could be leased now."""
    first = [ready_offset(view, lane) for lane in range(LANE_COUNT)]
    return min((offset for offset in first if offset is not None), default=None)
