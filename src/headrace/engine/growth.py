"""Growing a topic: more partitions, which every queue group of it reads from the start.

    folder . files . views of the groups      for each new partition, unseen by others
    catalog                                   now all of them are there at once
    groups that came, went or changed         while that took its time

It is a generator that yields between two partitions: a door rests there, an embedded
node goes straight on.

Rejected: opening the views when the partitions are there. A group that begins at the
latest message would miss what was published before its view was opened.
"""

from __future__ import annotations

from headrace.core.steps import Steps
from headrace.engine.catalog import Topic
from headrace.engine.commit import Commit
from headrace.engine.groups import Groups
from headrace.engine.partition import Partition
from headrace.engine.topics import Topics


def growth(
    topics: Topics,
    groups: Groups,
    topic: Topic,
    partitions: int,
    now_ms: int,
    commit: Commit,
    *,
    break_key_order: bool,
) -> Steps[Topic]:
    """The commit has what must be on disk before it is answered."""
    opening = Commit(topics.metadata)

    def open_views(partition: Partition) -> None:
        for group in topics.catalog.groups.values():
            if topic.id in group.topics:
                groups.open_views(group, [partition], now_ms, opening)

    added = yield from topics.growth(
        topic, partitions, now_ms, break_key_order=break_key_order, prepare=open_views
    )
    _catch_up(topics, groups, topic, added, now_ms, opening)
    commit.state += [
        (partition, partition.state.log.end_offset)
        for partition in added
        if partition.state is not None
    ]
    return topics.named(topic.name)


def _catch_up(
    topics: Topics,
    groups: Groups,
    topic: Topic,
    added: list[Partition],
    now_ms: int,
    commit: Commit,
) -> None:
    """With what became of the groups since the first partition was prepared."""
    reading = {
        group.id: group for group in topics.catalog.groups.values() if topic.id in group.topics
    }
    for group in reading.values():
        groups.open_views(group, added, now_ms, commit)
    for partition in added:
        for group_id, view in list(partition.views.items()):
            if group_id in reading:
                view.settings = reading[group_id].settings
            else:
                # One that nobody subscribes to would keep its messages for ever.
                partition.close_view(group_id, now_ms)
