"""Short ways to ask a door what the instances of a Kafka Streams application ask."""

from __future__ import annotations

from typing import Any

from tests.unit.server.asking import Asking

from headrace.core.settings import TopicSettings
from headrace.platform.memory_disk import MemoryDisk
from headrace.wire.kafka.generated.streams_group_describe_request import (
    StreamsGroupDescribeRequest,
)
from headrace.wire.kafka.generated.streams_group_heartbeat_request import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

STREAMS_HEARTBEAT, STREAMS_DESCRIBE = 88, 89
APP, TOPIC = "app", "orders"
CHANGELOG, REPARTITION = "app-counts-changelog", "app-by-region-repartition"
TOPOLOGY = Topology(
    0,
    (
        Subtopology("0", (TOPIC,), repartition_sink_topics=(REPARTITION,)),
        Subtopology(
            "1",
            state_changelog_topics=(
                TopicInfo(
                    CHANGELOG,
                    topic_configs=(
                        KeyValue("cleanup.policy", "compact"),
                        KeyValue("message.timestamp.type", "CreateTime"),
                    ),
                ),
            ),
            repartition_source_topics=(
                TopicInfo(REPARTITION, 0, 1, (KeyValue("retention.ms", "-1"),)),
            ),
        ),
    ),
)
# What clients have done when they were told of an assignment.
Tasks = dict[str, tuple[int, ...]]


def task_ids(tasks: Tasks) -> tuple[TaskIds, ...]:
    return tuple(TaskIds(subtopology, partitions) for subtopology, partitions in tasks.items())


def shown(tasks: Any) -> Tasks:
    return {each.subtopology_id: tuple(each.partitions) for each in tasks}


class Streaming(Asking):
    """A node with one topic, whose groups assign at once."""

    def __init__(self, partitions: int = 2, disk: MemoryDisk | None = None) -> None:
        super().__init__(disk or MemoryDisk())
        if partitions and TOPIC not in self.broker.topics.catalog.topics:
            self.make(TOPIC, partitions)

    def make(self, name: str, partitions: int) -> None:
        now_ms = self.service.clock.now_ms()
        self.broker.topics.create(name, partitions, TopicSettings(), now_ms)

    async def join(self, member: str = "m1", **changes: Any) -> Any:
        request = StreamsGroupHeartbeatRequest(
            APP,
            member,
            0,
            rebalance_timeout_ms=60_000,
            topology=TOPOLOGY,
            active_tasks=(),
            standby_tasks=(),
            warmup_tasks=(),
            process_id=f"process of {member}",
        )
        return await self.ask(STREAMS_HEARTBEAT, 0, request._replace(**changes))

    async def beat(self, member: str, epoch: int, **changes: Any) -> Any:
        request = StreamsGroupHeartbeatRequest(APP, member, epoch)
        return await self.ask(STREAMS_HEARTBEAT, 0, request._replace(**changes))

    async def settled(self, member: str = "m1") -> Any:
        """Have the member join, wait out the time that a new group waits, and take what it
        gets; its last answer."""
        joined = await self.join(member)
        assert joined.error_code == 0, joined
        await self.skip(4)
        answer = await self.beat(member, joined.member_epoch)
        assert answer.error_code == 0 and answer.active_tasks
        return await self.beat(
            member,
            answer.member_epoch,
            active_tasks=answer.active_tasks,
            standby_tasks=answer.standby_tasks,
            warmup_tasks=(),
        )

    async def describe(self, name: str = APP) -> Any:
        request = StreamsGroupDescribeRequest((name,))
        [group] = (await self.ask(STREAMS_DESCRIBE, 0, request)).groups
        return group
