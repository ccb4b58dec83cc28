"""A Kafka door with a share group behind it, and short ways to speak as its members."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tests.unit.server.asking import Asking

from headrace.core.settings import TopicSettings
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import build_batch, read_header
from headrace.record.record import NewRecord
from headrace.wire.kafka.generated import share_acknowledge_request as acknowledging
from headrace.wire.kafka.generated.share_fetch_request import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from headrace.wire.kafka.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest

HEARTBEAT, DESCRIBE, FETCH, ACKNOWLEDGE = 76, 77, 78, 79
TOPIC, GROUP = "jobs", "workers"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)

Ack = tuple[int, int, tuple[int, ...]]


class Shared(Asking):
    """A door with a topic of one partition and a group that reads all of it."""

    def __init__(
        self,
        partitions: int = 1,
        disk: MemoryDisk | None = None,
        *,
        node: Mapping[str, Any] = MappingProxyType({}),
        **settings: Any,
    ) -> None:
        """On a disk that was used before everything is there already. `node` are settings of
        the node, the others of the group."""
        super().__init__(disk or MemoryDisk(), **node)
        if disk is not None:
            self.topic = self.broker.topics.named(TOPIC)
            return
        now_ms = self.service.clock.now_ms()
        self.topic = self.broker.topics.create(TOPIC, partitions, TopicSettings(), now_ms)
        wanted = {"start": "earliest", "backoff_ms": 0, **settings}
        self.broker.groups.open(GROUP, [], wanted, now_ms, self.service.commit())

    async def reopen(self) -> Shared:
        disk = self.service.disk
        assert isinstance(disk, MemoryDisk)
        await self.close()
        return Shared(disk=disk)

    async def publish(self, *values: bytes, partition: int = 0) -> None:
        batch = build_batch([NewRecord(None, value) for value in values])
        place = self.broker.topics.partition(self.topic, partition)
        place.append(batch, read_header(batch), self.service.clock.now_ms())
        commit = self.service.commit()
        commit.data.append((place, place.log.end_offset))
        await self.service.finish(commit)

    async def beat(
        self, member: str = "m1", epoch: int = 0, topics: tuple[str, ...] | None = (TOPIC,)
    ) -> Any:
        request = ShareGroupHeartbeatRequest(GROUP, member, epoch, None, topics)
        return await self.ask(HEARTBEAT, 1, request)

    def fetching(
        self,
        epoch: int,
        member: str = "m1",
        *,
        acks: tuple[Ack, ...] = (),
        wait_ms: int = 0,
        count: int = 500,
        bytes_max: int = 2**20,
        forget: bool = False,
        group: str = GROUP,
        topic_id: bytes | None = None,
        version: int = 2,
        renew: bool = False,
        exact: bool = False,
    ) -> asyncio.Future[Any]:
        topics: tuple[FetchTopic, ...] = ()
        if epoch == 0 or acks or topic_id:
            batches = tuple(AcknowledgementBatch(*ack) for ack in acks)
            topics = (FetchTopic(topic_id or self.topic.id, (FetchPartition(0, batches),)),)
        return self.begin(
            FETCH,
            version,
            ShareFetchRequest(
                group, member, epoch, wait_ms, 1, bytes_max, count, count, int(exact), renew,
                topics, (ForgottenTopic(self.topic.id, (0,)),) if forget else (),
            ),
        )  # fmt: skip

    async def fetch(self, epoch: int, member: str = "m1", **options: Any) -> Any:
        async with asyncio.timeout(60):
            return await self.fetching(epoch, member, **options)

    async def acknowledge(
        self, epoch: int, *acks: Ack, member: str = "m1", group: str = GROUP
    ) -> Any:
        batches = tuple(acknowledging.AcknowledgementBatch(*ack) for ack in acks)
        partitions = (acknowledging.AcknowledgePartition(0, batches),)
        topics = (acknowledging.AcknowledgeTopic(self.topic.id, partitions),) if acks else ()
        return await self.ask(
            ACKNOWLEDGE,
            2,
            acknowledging.ShareAcknowledgeRequest(group, member, epoch, False, topics),
        )

    def states(self) -> list[int]:
        group = self.broker.groups.named(GROUP)
        window = self.broker.topics.partition(self.topic, 0).views[group.id].window
        return [window.state_at(offset) for offset in range(window.end)]


def ranges(response: Any) -> list[tuple[int, int, int]]:
    assert response.error_code == 0, response
    return [
        tuple(acquired)
        for topic in response.responses
        for partition in topic.partitions
        for acquired in partition.acquired_records
    ]


def ack_error(response: Any) -> int:
    [topic] = response.responses
    [partition] = topic.partitions
    name = "acknowledge_error_code" if hasattr(partition, "acknowledge_error_code") else None
    error: int = getattr(partition, name or "error_code")
    return error
