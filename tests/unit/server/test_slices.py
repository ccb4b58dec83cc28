"""Long work in slices: others have their turn, and see nothing half done."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.unit.server.asking import Asking, run

from headrace.core.errors import TopicExists
from headrace.core.settings import TopicSettings
from headrace.log.segment import Segment
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch
from headrace.server import slices
from headrace.server.glance import Glance
from headrace.server.kafka.errors import Error
from headrace.testing.fault_disk import FaultDisk
from headrace.wire.kafka.generated.create_topics_request import (
    CreatableTopic,
    CreateTopicsRequest,
)
from headrace.wire.kafka.generated.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.kafka.generated.metadata_request import MetadataRequest

CREATE, METADATA, LIST_OFFSETS = 19, 3, 2


@pytest.fixture(autouse=True)
def shortest_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)


def creating(name: str, partitions: int) -> CreateTopicsRequest:
    return CreateTopicsRequest((CreatableTopic(name, partitions, 1),))


async def names(asking: Asking) -> dict[str, int]:
    answer = await asking.ask(METADATA, 12, MetadataRequest(None))
    return {topic.name: len(topic.partitions) for topic in answer.topics}


def test_a_large_topic_is_made_while_others_are_served_and_seen_when_it_is_whole() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        # The first answer waits for a sync, for as many turns as its thread takes.
        assert await names(asking) == {}
        answer = asking.begin(CREATE, 7, creating("large", 200))
        seen: list[dict[str, int]] = []
        while not answer.done():
            seen.append(await names(asking))
        assert (await answer).topics[0].error_code == 0
        assert len(seen) > 10
        assert all(each in ({}, {"large": 200}) for each in seen)
        assert await names(asking) == {"large": 200}

    run(scenario)


def test_the_name_of_a_topic_that_is_being_made_is_taken() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        answer = asking.begin(CREATE, 7, creating("large", 200))
        await asyncio.sleep(0)
        second = await asking.ask(CREATE, 7, creating("large", 3))
        assert second.topics[0].error_code == Error.TOPIC_ALREADY_EXISTS
        assert (await answer).topics[0].error_code == 0

    run(scenario)


def test_a_topic_that_finds_no_room_leaves_nothing_and_its_name_is_free() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = Asking(disk)
        before = set(disk.list("topics"))
        real, left = disk.make_directory, [60]

        def make_directory(path: str) -> None:
            left[0] -= 1
            if not left[0]:
                raise OSError(28, "no space left")
            real(path)

        disk.make_directory = make_directory  # type: ignore[method-assign]
        answer: Any = await asking.ask(CREATE, 7, creating("large", 200))
        assert answer.topics[0].error_code == Error.KAFKA_STORAGE_ERROR
        assert set(disk.list("topics")) == before
        assert (await asking.ask(CREATE, 7, creating("large", 2))).topics[0].error_code == 0

    run(scenario)


def test_a_creation_that_is_given_up_leaves_nothing() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        topics = Asking(disk).broker.topics
        making = topics.creation("large", 10, TopicSettings(), 1)
        for _ in range(5):
            next(making)
        with pytest.raises(TopicExists):
            topics.check_new("large", 1)
        making.close()
        assert disk.list("topics") == []
        topics.check_new("large", 1)

    run(scenario)


@pytest.mark.parametrize("timestamp", [-3, 0, 1_015, 1_019, 5_000])
def test_a_time_is_looked_for_in_a_thread_and_found_as_ever(
    monkeypatch: pytest.MonkeyPatch, timestamp: int
) -> None:
    threads: set[str] = set()
    real = Segment.read_batch

    def read_batch(self: Segment, *given: Any) -> bytes:
        threads.add(threading.current_thread().name)
        return real(self, *given)

    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        settings = TopicSettings(segment_bytes=1_024, segment_ms=2**50)
        topic = asking.broker.topics.create("orders", 1, settings, 1)
        log = asking.broker.topics.partition(topic, 0).log
        for number in range(20):
            log.append(build_batch([NewRecord(None, b"v" * 200, (), 1_000 + number)]), 1, 1)
        log.sync_now()
        asking.broker.topics.partition(topic, 0).on_synced(1)
        is_latest = timestamp == -3
        expected = log.latest_timestamp() if is_latest else log.offset_for_timestamp(timestamp)
        monkeypatch.setattr(Segment, "read_batch", read_batch)
        wanted = ListOffsetsTopic("orders", (ListOffsetsPartition(0, -1, timestamp),))
        answer = await asking.ask(LIST_OFFSETS, 8, ListOffsetsRequest(-1, 0, (wanted,)))
        (found,) = answer.topics[0].partitions
        assert found.error_code == 0
        assert (found.offset, found.timestamp) == (expected or (-1, -1))
        assert threading.main_thread().name not in threads

    run(scenario)


def test_many_partitions_are_asked_for_at_once() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        asking.broker.topics.create("orders", 100, TopicSettings(), 1)
        places = tuple(ListOffsetsPartition(index, -1, -1) for index in range(101))
        request = ListOffsetsRequest(-1, 0, (ListOffsetsTopic("orders", places),))
        answer = await asking.ask(LIST_OFFSETS, 8, request)
        codes = [each.error_code for each in answer.topics[0].partitions]
        assert codes == [0] * 100 + [Error.UNKNOWN_TOPIC_OR_PARTITION]

    run(scenario)


def test_the_overview_is_taken_in_slices_and_once_for_all_who_ask() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        topic = asking.broker.topics.create("orders", 100, TopicSettings(), 1)
        glance = Glance(asking.door.service)
        looks = [asyncio.ensure_future(glance.overview()) for _ in range(3)]
        turns = 0
        while not all(look.done() for look in looks):
            turns += 1
            await asyncio.sleep(0)
        assert turns > 50
        first, *others = [look.result() for look in looks]
        assert all(each is first for each in others)
        assert [(each.name, each.partitions) for each in first.topics] == [("orders", 100)]
        # A topic that is deleted in the middle of a look does no harm.
        look = asyncio.ensure_future(glance.overview())
        await asyncio.sleep(0)
        asking.broker.delete_topic(topic, 1, asking.broker.commit())
        assert sum(each.records for each in (await look).topics) == 0
        assert (await glance.overview()).topics == ()

    run(scenario)
