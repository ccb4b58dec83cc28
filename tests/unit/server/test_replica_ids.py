"""A client that says it is a node: it is not believed, and learns and moves nothing."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.asking import Asking, run

from headrace.core.settings import TopicSettings
from headrace.engine.partition import Partition
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch, read_header
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.api import APIS
from headrace.wire.kafka.generated import fetch_request as fetch
from headrace.wire.kafka.generated import list_offsets_request as listing
from headrace.wire.kafka.generated import offset_for_leader_epoch_request as epochs

FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH = 1, 2, 23
REFUSED = Error.CLUSTER_AUTHORIZATION_FAILED
TOPIC = "orders"
CONSUMER = -1


def versions(key: int, first: int = 0) -> pytest.MarkDecorator:
    api = APIS[key]
    return pytest.mark.parametrize("version", range(max(first, api.first), api.last + 1))


class Node(Asking):
    """With a partition that has one record which is safe, and one behind it which is not."""

    def __init__(self) -> None:
        super().__init__(MemoryDisk())
        now_ms = self.service.clock.now_ms()
        self.topic = self.broker.topics.create(TOPIC, 1, TopicSettings(), now_ms)
        self.partition: Partition = self.broker.topics.partition(self.topic, 0)

    async def fill(self) -> None:
        self.append(b"safe")
        commit = self.service.commit()
        commit.data.append((self.partition, 1))
        await self.service.finish(commit)
        self.append(b"not yet")
        assert (self.partition.high_watermark, self.partition.log.end_offset) == (1, 2)

    def append(self, value: bytes) -> None:
        batch = build_batch([NewRecord(None, value, (), 1_000)])
        self.partition.append(batch, read_header(batch), self.service.clock.now_ms())

    def fetching(self, version: int, replica_id: int, **options: Any) -> fetch.FetchRequest:
        """As this version says it: in a field of its own, or in a tagged one."""
        wanted = fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1024 * 1024)
        topics = (fetch.FetchTopic(TOPIC, self.topic.id, (wanted,)),)
        named: dict[str, Any] = {"replica_id": replica_id}
        if version >= 15:
            named = {"replica_state": fetch.ReplicaState(replica_id, 1)}
        return fetch.FetchRequest(topics=topics, max_bytes=10**6, **named, **options)


@versions(FETCH)
def test_a_fetch_that_names_a_replica_is_refused_and_shows_nothing(version: int) -> None:
    async def scenario() -> None:
        node = Node()
        await node.fill()
        for replica_id in (0, 1, 2):
            answer = await node.ask(FETCH, version, node.fetching(version, replica_id))
            assert answer.error_code == (REFUSED if version >= 7 else 0)
            [told] = answer.responses[0].partitions
            assert told.error_code == REFUSED
            assert (told.high_watermark, told.records) == (-1, b"")
        assert node.partition.high_watermark == 1

    run(scenario)


@versions(FETCH, first=7)
def test_a_fetch_that_names_a_replica_leaves_sessions_as_they_are(version: int) -> None:
    async def scenario() -> None:
        node = Node()
        begun = await node.ask(FETCH, version, node.fetching(version, CONSUMER, session_epoch=0))
        sessions = node.door.fetch_sessions
        assert len(sessions) == 1
        for epoch in (0, 1, -1):
            going_on = {"session_id": begun.session_id, "session_epoch": epoch}
            await node.ask(FETCH, version, node.fetching(version, 2, **going_on))
        assert len(sessions) == 1
        going_on = {"session_id": begun.session_id, "session_epoch": 1}
        answer = await node.ask(FETCH, version, node.fetching(version, CONSUMER, **going_on))
        assert answer.error_code == 0

    run(scenario)


@versions(FETCH)
@pytest.mark.parametrize("replica_id", [-1, -2])
def test_a_fetch_of_a_consumer_shows_what_is_safe(version: int, replica_id: int) -> None:
    async def scenario() -> None:
        node = Node()
        await node.fill()
        answer = await node.ask(FETCH, version, node.fetching(version, replica_id))
        [told] = answer.responses[0].partitions
        assert (told.error_code, told.high_watermark) == (0, 1)
        assert read_header(told.records).next_offset == 1

    run(scenario)


@versions(LIST_OFFSETS)
@pytest.mark.parametrize("timestamp", [-1, -2, 1_000])
def test_offsets_are_not_listed_for_a_replica(version: int, timestamp: int) -> None:
    async def scenario() -> None:
        node = Node()
        await node.fill()
        wanted = listing.ListOffsetsTopic(TOPIC, (listing.ListOffsetsPartition(0, -1, timestamp),))
        for replica_id in (0, 2):
            asked = listing.ListOffsetsRequest(replica_id, 0, (wanted,))
            answer = await node.ask(LIST_OFFSETS, version, asked)
            [told] = answer.topics[0].partitions
            assert (told.error_code, told.offset) == (REFUSED, -1)
        asked = listing.ListOffsetsRequest(CONSUMER, 0, (wanted,))
        answer = await node.ask(LIST_OFFSETS, version, asked)
        assert answer.topics[0].partitions[0].error_code == 0

    run(scenario)


# Version 2 cannot name a replica.
@versions(OFFSET_FOR_LEADER_EPOCH, first=3)
def test_a_replica_is_not_told_where_an_epoch_ended(version: int) -> None:
    async def scenario() -> None:
        node = Node()
        await node.fill()
        place = epochs.OffsetForLeaderPartition(0, -1, node.partition.epoch)
        wanted = epochs.OffsetForLeaderTopic(TOPIC, (place,))
        for replica_id, code in ((0, REFUSED), (2, REFUSED), (-1, 0), (-2, 0)):
            asked = epochs.OffsetForLeaderEpochRequest(replica_id, (wanted,))
            answer = await node.ask(OFFSET_FOR_LEADER_EPOCH, version, asked)
            [told] = answer.topics[0].partitions
            assert told.error_code == code
            assert (told.end_offset == -1) == bool(code)

    run(scenario)


def test_a_request_about_very_much_is_refused_as_a_whole() -> None:
    async def scenario() -> None:
        node = Node()
        places = tuple(fetch.FetchPartition(index) for index in range(1_000))
        asked = fetch.FetchRequest(
            replica_id=2, topics=(fetch.FetchTopic(TOPIC, partitions=places),)
        )
        answer = await node.ask(FETCH, 12, asked)
        told = answer.responses[0].partitions
        assert [(each.partition_index, each.error_code) for each in told] == [
            (index, REFUSED) for index in range(1_000)
        ]

    run(scenario)
