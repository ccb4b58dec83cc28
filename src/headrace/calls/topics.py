"""Topics: making, changing and describing them; publishing to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.calls.served import Served
from headrace.core.errors import HeadraceError, InvalidArgument
from headrace.core.settings import TopicSettings
from headrace.core.steps import Steps, run_to_end
from headrace.core.values import Headers, Outgoing, PartitionInfo, Published, TopicInfo
from headrace.engine.catalog import STATE_TOPICS, Topic
from headrace.engine.commit import Commit
from headrace.engine.partition import Partition


class TopicCalls(Served):
    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 3,
        settings: Mapping[str, Any] | None = None,
        exist_ok: bool = False,
    ) -> TopicInfo:
        return run_to_end(
            self.topic_creation(name, partitions=partitions, settings=settings, exist_ok=exist_ok)
        )

    def topic_creation(
        self,
        name: str,
        *,
        partitions: int = 3,
        settings: Mapping[str, Any] | None = None,
        exist_ok: bool = False,
    ) -> Steps[TopicInfo]:
        """`create_topic` in steps of one partition."""
        topics = self._broker.topics
        with self._writing() as (now_ms, _):
            try:
                wanted = TopicSettings.from_mapping(settings or {})
                while exist_ok and topics.is_being_made(name):
                    # By somebody else who is fine with either.
                    yield
                topic = topics.catalog.topics.get(name) if exist_ok else None
                if topic is None:
                    topic = yield from topics.creation(name, partitions, wanted, now_ms)
            except HeadraceError as error:
                topics.note_refused(name, error, now_ms)
                raise
            info = self._describe(topic)
        self._notify_changed()
        return info

    def delete_topic(self, name: str) -> None:
        broker = self._broker
        with self._writing() as (now_ms, commit):
            topic = _changeable(broker.topics.named(name))
            self._remove(broker.delete_topic(topic, now_ms, commit), commit)
        self._notify_changed()

    def alter_topic(self, name: str, settings: Mapping[str, Any]) -> TopicInfo:
        with self._writing() as (now_ms, _):
            topic = _changeable(self._broker.topics.named(name))
            return self._describe(self._broker.topics.alter(topic, settings, now_ms))

    def grow_topic(self, name: str, partitions: int, *, break_key_order: bool = False) -> TopicInfo:
        return run_to_end(self.topic_growth(name, partitions, break_key_order=break_key_order))

    def topic_growth(
        self, name: str, partitions: int, *, break_key_order: bool = False
    ) -> Steps[TopicInfo]:
        """The same in steps of one partition."""
        broker = self._broker
        with self._writing() as (now_ms, commit):
            topic = _changeable(broker.topics.named(name))
            grown = yield from broker.topic_growth(
                topic, partitions, now_ms, commit, break_key_order=break_key_order
            )
            info = self._describe(grown)
        self._notify_changed()
        return info

    def topic(self, name: str) -> TopicInfo:
        with self._reading():
            return self._describe(self._broker.topics.named(name))

    def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        with self._reading():
            return [
                self._describe(topic)
                for name, topic in sorted(self._broker.topics.catalog.topics.items())
                if internal or not topic.is_internal
            ]

    def topic_names(self) -> list[str]:
        """Of the topics that people have made, sorted."""
        with self._reading():
            topics = self._broker.topics.catalog.topics.values()
            return sorted(topic.name for topic in topics if not topic.is_internal)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Everything below the offset is gone; where the partition starts now."""
        with self._writing() as (now_ms, _):
            found = self._broker.topics.named(topic)
            return self._broker.delete_records(found, partition, before_offset, now_ms)

    def partition_info(self, topic: str, partition: int) -> PartitionInfo:
        with self._reading():
            found = self._broker.topics.named(topic)
            return _describe_partition(self._broker.topics.partition(found, partition))

    def _describe(self, topic: Topic) -> TopicInfo:
        return TopicInfo(
            topic.name,
            topic.id.hex(),
            tuple(map(_describe_partition, self._broker.topics.partitions(topic))),
            topic.settings.to_mapping(),
        )

    # Publishing.

    def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[Published]:
        def publish(now_ms: int, commit: Commit) -> list[Published]:
            found = self._topic_to_write(topic, now_ms)
            self._broker.check_space(sum(len(message.value or b"") + 128 for message in messages))
            published = self._broker.publisher.publish(found, messages, now_ms, commit)
            self._maintain(now_ms)
            return published

        published = self._write(publish, waits=self._is_synced(topic))
        self._notify_published()
        return published

    def publish_values(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Sequence[Published]:
        def publish(now_ms: int, commit: Commit) -> Sequence[Published]:
            found = self._topic_to_write(topic, now_ms)
            self._broker.check_space(sum(map(len, values)) + 32 * len(values))
            published = self._broker.publisher.publish_values(
                found, values, headers, partition, now_ms, commit
            )
            self._maintain(now_ms)
            return published

        published = self._write(publish, waits=self._is_synced(topic))
        self._notify_published()
        return published


def _describe_partition(partition: Partition) -> PartitionInfo:
    return PartitionInfo(
        partition.index,
        partition.log.start_offset,
        partition.high_watermark,
        partition.log.end_offset,
        partition.log.size_bytes,
        len(partition.log.segment_list),
        partition.last_stable_offset,
    )


def _changeable(topic: Topic) -> Topic:
    """InvalidArgument for those in which the node keeps offsets and transactions."""
    if topic.name in STATE_TOPICS:
        raise InvalidArgument(
            f"{topic.name} is the node's own, and holds what it has promised to clients: it is "
            "neither changed nor deleted"
        )
    return topic
