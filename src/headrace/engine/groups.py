"""Queue groups: which there are, what they read, and how they are doing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from headrace.core import limits
from headrace.core.errors import (
    CorruptLog,
    GroupInUse,
    GroupKindMismatch,
    InvalidName,
    LimitExceeded,
    UnknownGroup,
    UnknownTopic,
)
from headrace.core.settings import GroupSettings, start_age_ms
from headrace.core.steps import Steps, run_to_end
from headrace.core.values import QueueStatistics, check_name
from headrace.engine import statistics
from headrace.engine.catalog import (
    DEAD_LETTER_GROUP,
    Group,
    GroupAltered,
    GroupCreated,
    GroupDeleted,
    GroupSubscribed,
    GroupUnsubscribed,
    Topic,
)
from headrace.engine.commit import Commit
from headrace.engine.consumers import Consumers, Readers
from headrace.engine.delayed import next_delayed_ms
from headrace.engine.lane import LaneSchedule
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.topics import Topics
from headrace.engine.view_opening import ViewOpening, new_view

# How many views are opened before what that has written should be safe. Each has files of its
# own, and only so many files with unsynced writes may be open: beyond, whoever opens one more
# has to wait for a sync.
VIEWS_AT_ONCE = 256


class Serving:
    """What a group keeps in memory while it is served: whose turn it is."""

    def __init__(self, settings: GroupSettings) -> None:
        self.schedule = LaneSchedule(settings.starvation_ms)
        self.turn = 0
        self.consumers = Consumers()


class Groups:
    def __init__(
        self,
        topics: Topics,
        readers: Readers,
        is_stream: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """`is_stream` knows the names of groups that read as streams."""
        self.readers = readers
        self._topics = topics
        self._is_stream = is_stream
        self._serving: dict[int, Serving] = {}
        # What was configured for a group of this name before it is made.
        self.told: Callable[[str], Mapping[str, Any]] = lambda name: {}

    def named(self, name: str) -> Group:
        group = self._topics.catalog.groups.get(name) if isinstance(name, str) else None
        if group is None:
            check_name("group", name)
            raise UnknownGroup(
                f"there is no queue group {name!r}; a group is made by the first queue(..., "
                f"group={name!r})"
            )
        return group

    def all_serving(self) -> Iterable[Serving]:
        """Of every group that somebody was served of."""
        return self._serving.values()

    def serving(self, group: Group) -> Serving:
        found = self._serving.get(group.id)
        if found is None:
            found = self._serving[group.id] = Serving(group.settings)
        return found

    def members(self, group: Group, now_ms: int) -> set[str]:
        """Who reads as this group: see `engine.consumers`."""
        return self.serving(group).consumers.present(lambda: self.holders(group, now_ms))

    def note_holders(self, partition: Partition, now_ms: int) -> None:
        """Those whose leases stand from before a restart are members."""
        for view in partition.views.values():
            group = self._topics.catalog.groups_by_id[view.group_id]
            for owner in filter(None, view.held):
                consumers = self.serving(group).consumers
                consumers.on_leased(owner, partial(self.holders, group, now_ms))

    def holders(self, group: Group, now_ms: int) -> set[str]:
        """The owners of leases that go on."""
        return {owner for _, view in self.views(group) for owner in view.holders(now_ms)}

    def open(
        self,
        name: str,
        topics: Sequence[Topic],
        settings: Mapping[str, Any],
        now_ms: int,
        commit: Commit,
        *,
        internal: bool = False,
    ) -> Group:
        """Make the group where needed and let it read these topics."""
        return run_to_end(self.opening(name, topics, settings, now_ms, commit, internal=internal))

    def opening(
        self,
        name: str,
        topics: Sequence[Topic],
        settings: Mapping[str, Any],
        now_ms: int,
        commit: Commit,
        *,
        internal: bool = False,
        any_name: bool = False,
    ) -> Steps[Group]:
        """Like `open`, in slices of one partition. The group is there from the first one on,
        and reads the partitions that it has come to. With `any_name` its name may have any
        characters, as those of Kafka's groups do."""
        if not (any_name and 0 < len(name) <= limits.NAME_CHARACTERS_MAX):
            check_name("group", name)
        if name == DEAD_LETTER_GROUP and not internal:
            raise InvalidName(f"{name!r} is a group that Headrace keeps for itself")
        catalog = self._topics.catalog
        group = catalog.groups.get(name)
        for topic in () if internal else topics:
            if group is None or topic.id not in group.topics:
                self._check_room(topic)
        if group is None:
            if self._is_stream(name):
                raise GroupKindMismatch(f"group {name!r} reads as a stream; choose another name")
            if len(catalog.groups) >= limits.GROUPS_MAX:
                raise LimitExceeded(f"there are {limits.GROUPS_MAX} groups, the most allowed")
            wanted = GroupSettings.from_mapping({**self.told(name), **settings})
            event = GroupCreated(catalog.next_group, name, "queue", wanted.to_mapping())
            self._topics.change([event], now_ms)
        elif settings:
            self.alter(group, settings, now_ms)
        group = self.named(name)
        for topic in topics:
            if topic.id not in group.topics:
                self._topics.change([GroupSubscribed(group.id, topic.id)], now_ms)
                group = self.named(name)
            for partition in tuple(self._topics.partitions(topic)):
                with _stopping(partition):
                    opening = self._preparing(group, partition, now_ms)
                    if opening is not None:
                        yield from opening.steps(now_ms)
                        group = self._still_reading(group, topic)
                    self._open_view(group, partition, now_ms, commit, opening)
                is_much = commit.state and not len(commit.state) % VIEWS_AT_ONCE
                yield commit if is_much else None
                group = self._still_reading(group, topic)
        return group

    def _check_room(self, topic: Topic) -> None:
        first = self._topics.partitions(topic)[0]
        if len(first.views) >= limits.QUEUE_GROUPS_PER_TOPIC_MAX:
            raise LimitExceeded(
                f"topic {topic.name!r} is read by {limits.QUEUE_GROUPS_PER_TOPIC_MAX} queue "
                "groups, the most allowed; delete those that nobody uses, or read it as a stream"
            )

    def _preparing(self, group: Group, partition: Partition, now_ms: int) -> ViewOpening | None:
        """Where a view takes long to open: keys are read from the log."""
        start = _start_for(group, partition, now_ms)
        if (
            partition.topic.settings.ordering != "key"
            or group.id in partition.views
            or partition.is_stopped
            or partition.is_led_elsewhere
            or start >= partition.high_watermark
        ):
            return None
        return ViewOpening(partition, group, start)

    def _still_reading(self, group: Group, topic: Topic) -> Group:
        """The group as it is after others had their turn: a view that nobody subscribes
        to would keep its messages for ever."""
        found = self._topics.catalog.groups_by_id.get(group.id)
        if found is None:
            raise UnknownGroup(f"group {group.name!r} was deleted while it was opened")
        if topic.id not in self._topics.catalog.topics_by_id or topic.id not in found.topics:
            raise UnknownTopic(
                f"topic {topic.name!r} was taken from group {group.name!r} while it was opened"
            )
        return found

    def open_views(
        self, group: Group, partitions: Sequence[Partition], now_ms: int, commit: Commit
    ) -> None:
        for partition in partitions:
            self._open_view(group, partition, now_ms, commit)

    def _open_view(
        self,
        group: Group,
        partition: Partition,
        now_ms: int,
        commit: Commit,
        opening: ViewOpening | None = None,
    ) -> None:
        # Where it is stopped, a start after its repair opens what is missing; where another
        # node leads, that node does.
        if (
            group.id not in partition.views
            and not partition.is_stopped
            and not partition.is_led_elsewhere
        ):
            start = _start_for(group, partition, now_ms)
            prepared = None if opening is None else opening.result(group, start)
            view = prepared or new_view(partition, group, start)
            partition.open_view(view, start, now_ms)
            assert partition.state is not None
            commit.state.append((partition, partition.state.log.end_offset))

    def alter(self, group: Group, settings: Mapping[str, Any], now_ms: int) -> Group:
        changed = group.settings.changed(settings)
        if changed != group.settings:
            self._topics.change([GroupAltered(group.id, changed.to_mapping())], now_ms)
            self.serving(group).schedule = LaneSchedule(changed.starvation_ms)
            for partition, view in self.views(group):
                view.settings = changed
                partition.show(now_ms)
        return self.named(group.name)

    def delete(self, group: Group, now_ms: int, commit: Commit) -> None:
        self._topics.change([GroupDeleted(group.id)], now_ms)
        for partition, _ in self._led(self.views(group)):
            partition.close_view(group.id, now_ms)
            assert partition.state is not None
            commit.state.append((partition, partition.state.log.end_offset))
        self._serving.pop(group.id, None)

    def restart_view(
        self, group: Group, partition: Partition, start: int, now_ms: int, commit: Commit
    ) -> None:
        """Read a partition from here on, whatever became of its messages before."""
        partition.check_here()
        _check_settled(partition, partition.views.get(group.id))
        partition.close_view(group.id, now_ms)
        partition.open_view(new_view(partition, group, start), start, now_ms)
        assert partition.state is not None
        commit.state.append((partition, partition.state.log.end_offset))

    def unsubscribe(self, group: Group, topic: Topic, now_ms: int, commit: Commit) -> None:
        """Read this topic no more, and forget how far the group was."""
        # The views first: one that nobody subscribes to would keep its messages
        # forever, the other way round a restart only opens it anew.
        views = self._led(self.views(group, [topic]))
        for partition, view in views:
            _check_settled(partition, view)
        for partition, _ in views:
            partition.close_view(group.id, now_ms)
            assert partition.state is not None
            commit.state.append((partition, partition.state.log.end_offset))
        if topic.id in group.topics:
            self._topics.change([GroupUnsubscribed(group.id, topic.id)], now_ms)

    def views(
        self, group: Group, topics: Sequence[Topic] | None = None
    ) -> list[tuple[Partition, QueueView]]:
        catalog = self._topics.catalog
        if topics is None:
            topics = [catalog.topics_by_id[i] for i in group.topics if i in catalog.topics_by_id]
        return [
            (partition, partition.views[group.id])
            for topic in topics
            for partition in self._topics.partitions(topic)
            if group.id in partition.views
        ]

    @staticmethod
    def _led(views: list[tuple[Partition, QueueView]]) -> list[tuple[Partition, QueueView]]:
        """Those that are ours to close. Where another node leads, that node does."""
        return [pair for pair in views if not pair[0].is_led_elsewhere]

    def check_queues(self, group: Group, topics: Sequence[Topic] | None = None) -> None:
        """Raise why queues are stopped that this group reads: numbers without them would
        look as if everything were done."""
        by_id = self._topics.catalog.topics_by_id
        if topics is None:
            topics = [by_id[topic_id] for topic_id in group.topics if topic_id in by_id]
        for topic in topics:
            for partition in self._topics.partitions(topic):
                if partition.queues_stopped is not None:
                    raise partition.queues_stopped.without_frames()

    def dead_letters(self, topic: Topic, now_ms: int) -> Topic:
        """The topic's dead letters, held by the group that keeps them."""
        letters = self._topics.ensure_dead_letters(topic, now_ms)
        group = self._topics.catalog.groups.get(DEAD_LETTER_GROUP)
        if (
            group is None
            or letters.id not in group.topics
            or any(
                group.id not in each.views and not each.is_led_elsewhere
                for each in self._topics.partitions(letters)
            )
        ):
            commit = Commit(self._topics.metadata)
            self.open(DEAD_LETTER_GROUP, [letters], {}, now_ms, commit, internal=True)
        return letters

    def open_missing_views(self, now_ms: int) -> None:
        """A crash can come between the catalog's word that a group reads a topic
        and the partitions' own. Without its view, what the group owes there, and
        above all a dead letter, would be seen by nobody."""
        catalog = self._topics.catalog
        for group in catalog.groups.values():
            for topic_id in group.topics & catalog.topics_by_id.keys():
                partitions = self._topics.partitions(catalog.topics_by_id[topic_id])
                self.open_views(group, partitions, now_ms, Commit(self._topics.metadata))

    def open_missing_views_of(self, partition: Partition, now_ms: int) -> None:
        """As `open_missing_views`, where another node led while groups came."""
        for group in self._topics.catalog.groups.values():
            if partition.topic.id in group.topics:
                self.open_views(group, [partition], now_ms, Commit(self._topics.metadata))

    def is_ordered(self, group: Group) -> bool:
        """Whether messages of this group wait for each other."""
        by_id = self._topics.catalog.topics_by_id
        return any(
            by_id[topic_id].settings.ordering != "none"
            for topic_id in group.topics
            if topic_id in by_id
        )

    # Numbers.

    def next_due_ms(self, group: Group, topics: Sequence[Topic]) -> int | None:
        return self.next_due_of(group, [partition for partition, _ in self.views(group, topics)])

    @staticmethod
    def next_due_of(group: Group, partitions: Sequence[Partition]) -> int | None:
        dues = [partition.next_due_ms(group.id) for partition in partitions]
        return min((due for due in dues if due is not None), default=None)

    def next_delayed_ms(self, group: Group) -> int | None:
        dues = [next_delayed_ms(partition, view) for partition, view in self.views(group)]
        return min((due for due in dues if due is not None), default=None)

    def statistics(
        self, group: Group, topics: Sequence[Topic] | None, now_ms: int
    ) -> QueueStatistics:
        self.check_queues(group, topics)
        views = self.views(group, topics)
        parts = [statistics.of_partition(partition, view, now_ms) for partition, view in views]
        for _, view in views:
            statistics.sample(view, now_ms)
        return statistics.of_group(group.name, parts, [view for _, view in views], now_ms)


@contextmanager
def _stopping(partition: Partition) -> Iterator[None]:
    """A partition whose messages turn out to be damaged is stopped; its group reads the others."""
    try:
        yield
    except CorruptLog as error:
        partition.stop(error)


def _start_for(group: Group, partition: Partition, now_ms: int) -> int:
    start = group.settings.start
    if start == "earliest":
        return partition.log.start_offset
    end = partition.high_watermark
    if group.settings.isolation == "read_committed":
        # Of what is undecided the group sees all or nothing.
        end = partition.last_stable_offset
    if start == "latest":
        return end
    found = partition.log.offset_for_timestamp(now_ms - start_age_ms(start))
    return end if found is None else min(found[0], end)


def _check_settled(partition: Partition, view: QueueView | None) -> None:
    if view is not None and view.held_acks:
        raise GroupInUse(
            f"acks of messages of {partition.path} wait for a transaction to end; try again then"
        )
    if view is not None and view.moves:
        raise GroupInUse(
            f"messages of {partition.path} are on their way to the dead letters; try again, and "
            "make room if the disk is full"
        )
