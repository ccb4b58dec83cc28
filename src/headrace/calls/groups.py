"""Groups of both kinds, and what became of a message in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.calls.served import Served
from headrace.core.errors import GroupInUse
from headrace.core.values import GroupInfo, MessageId, MessageStatus, QueueStatistics
from headrace.engine.catalog import Group
from headrace.engine.partition import Partition


class GroupCalls(Served):
    def groups(self) -> list[GroupInfo]:
        with self._reading() as now_ms:
            broker = self._broker
            found = [
                self._describe_group(group, now_ms)
                for group in broker.topics.catalog.groups.values()
                if not group.is_internal
            ]
            found += [self._describe_stream(name) for name in self._streams()]
            return sorted(found)

    def group(self, name: str) -> GroupInfo:
        with self._reading() as now_ms:
            group = self._broker.topics.catalog.groups.get(name)
            if group is not None:
                return self._describe_group(group, now_ms)
            self._check_group(name)
            return self._describe_stream(name)

    def _describe_group(self, group: Group, now_ms: int) -> GroupInfo:
        by_id = self._broker.topics.catalog.topics_by_id
        return GroupInfo(
            group.name,
            "queue",
            tuple(sorted(by_id[topic_id].name for topic_id in group.topics if topic_id in by_id)),
            group.settings.to_mapping(),
            tuple(sorted(self._broker.groups.members(group, now_ms))),
        )

    def _describe_stream(self, name: str) -> GroupInfo:
        cursors, guests = self._broker.cursors, self._members_at_doors(name)
        topics = {topic for each in guests for topic, _ in each.assigned}
        return GroupInfo(
            name,
            "stream",
            tuple(sorted(topics.union(cursors.topics_of(name)))),
            {},
            (*cursors.members(name), *(each.id for each in guests)),
        )

    def alter_group(self, name: str, settings: Mapping[str, Any]) -> GroupInfo:
        queues = self._broker.groups
        with self._writing() as (now_ms, _):
            altered = queues.alter(queues.named(name), settings, now_ms)
            return self._describe_group(altered, now_ms)

    def delete_group(self, name: str) -> None:
        queues, cursors = self._broker.groups, self._broker.cursors
        with self._writing() as (now_ms, commit):
            if name in self._broker.topics.catalog.groups:
                queues.delete(queues.named(name), now_ms, commit)
                return
            self._check_group(name)
            if self._members_at_doors(name):
                raise GroupInUse(f"group {name!r} has members; let them leave first")
            written = cursors.forget(name, now_ms)
            if written is not None:
                commit.data.append(written)

    def status(self, id: MessageId, group: str) -> MessageStatus:
        with self._looking(lambda: self._partitions_named(id.topic)):
            return self._broker.status(id, self._broker.groups.named(group))

    def queue_statistics(self, group: str, topics: Sequence[str] | None = None) -> QueueStatistics:
        queues = self._broker.groups

        def find() -> list[Partition]:
            wanted = None if topics is None else self._topics_named(topics)
            return [partition for partition, _ in queues.views(queues.named(group), wanted)]

        with self._looking(find) as now_ms:
            found = None if topics is None else self._topics_named(topics)
            return queues.statistics(queues.named(group), found, now_ms)

    def next_delayed_ms(self, group: str) -> int | None:
        """When the next message comes due that is delayed or rests before a retry."""
        queues = self._broker.groups

        def find() -> list[Partition]:
            return [partition for partition, _ in queues.views(queues.named(group))]

        with self._looking(find):
            return queues.next_delayed_ms(queues.named(group))
