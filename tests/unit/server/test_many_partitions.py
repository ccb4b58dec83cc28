"""Requests about very many partitions: others have their turn, and the answer is the
one that a small request gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.unit.server.asking import Asking, run

from headrace.core.settings import TopicSettings
from headrace.engine.catalog import Group
from headrace.engine.cursor import Commitment
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch
from headrace.server import slices
from headrace.server.kafka import fetch
from headrace.server.kafka.errors import Error
from headrace.testing.fault_disk import FaultDisk
from headrace.wire.kafka.generated import (
    consumer_group_describe_request,
    describe_configs_request,
    describe_groups_request,
    describe_log_dirs_request,
    describe_producers_request,
    describe_share_group_offsets_request,
    describe_topic_partitions_request,
    describe_transactions_request,
    offset_fetch_request,
    share_group_describe_request,
)
from headrace.wire.kafka.generated.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.kafka.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic

FETCH, GROW, PARTITIONS = 1, 37, 60
MAX_BYTES = 1 << 20


@pytest.fixture(autouse=True)
def shortest_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)


async def turns_until_done(answer: asyncio.Future[Any]) -> int:
    turns = 0
    while not answer.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


def publish(asking: Asking, index: int, value: bytes = b"value") -> None:
    topic = asking.broker.topics.named("orders")
    partition = asking.broker.topics.partition(topic, index)
    partition.log.append(build_batch([NewRecord(None, value, (), 1)]), partition.epoch, 1)
    partition.log.sync_now()
    partition.on_synced(1)
    asking.service.wake_partitions([partition])


def asking_with_topic(partitions: int = PARTITIONS) -> Asking:
    asking = Asking(MemoryDisk())
    asking.broker.topics.create("orders", partitions, TopicSettings(), 1)
    return asking


def queue_of(asking: Asking, name: str = "billing") -> Group:
    topic = asking.broker.topics.named("orders")
    return asking.broker.groups.open(name, [topic], {}, 1, asking.broker.commit())


# Describing.

INDEXES = tuple(range(-1, PARTITIONS + 1))
REQUESTS: dict[str, tuple[int, int, Any]] = {
    "offsets of a group, named": (
        9, 8, offset_fetch_request.OffsetFetchRequest(
            groups=(
                offset_fetch_request.OffsetFetchRequestGroup(
                    "audit",
                    topics=(
                        offset_fetch_request.OffsetFetchRequestTopics(
                            "orders", partition_indexes=INDEXES
                        ),
                        offset_fetch_request.OffsetFetchRequestTopics(
                            "unknown", partition_indexes=(0, 1)
                        ),
                    ),
                ),
            )
        ),
    ),
    "offsets of a group, all": (
        9, 8, offset_fetch_request.OffsetFetchRequest(
            groups=(offset_fetch_request.OffsetFetchRequestGroup("audit", topics=None),)
        ),
    ),
    "offsets of a group, as they were asked for once": (
        9, 6, offset_fetch_request.OffsetFetchRequest(
            "audit", (offset_fetch_request.OffsetFetchRequestTopic("orders", INDEXES),)
        ),
    ),
    "partitions of topics": (
        75, 0, describe_topic_partitions_request.DescribeTopicPartitionsRequest(
            (), 2000, None
        ),
    ),
    "sizes": (35, 4, describe_log_dirs_request.DescribeLogDirsRequest(None)),
    "producers": (
        61, 0, describe_producers_request.DescribeProducersRequest(
            (describe_producers_request.TopicRequest("orders", INDEXES),)
        ),
    ),
    "settings": (
        32, 4, describe_configs_request.DescribeConfigsRequest(
            tuple(
                describe_configs_request.DescribeConfigsResource(2, name, None)
                for name in ("orders", "unknown") * 30
            )
        ),
    ),
    "offsets of a share group": (
        90, 0, describe_share_group_offsets_request.DescribeShareGroupOffsetsRequest(
            (
                describe_share_group_offsets_request.DescribeShareGroupOffsetsRequestGroup(
                    "billing", None
                ),
            )
        ),
    ),
    "groups": (
        15, 5, describe_groups_request.DescribeGroupsRequest(("audit", "billing", "unknown") * 20)
    ),
    "groups with assignment by the broker": (
        69, 0, consumer_group_describe_request.ConsumerGroupDescribeRequest(
            ("audit", "unknown") * 30
        ),
    ),
    "share groups": (
        77, 1, share_group_describe_request.ShareGroupDescribeRequest(("billing", "unknown") * 30)
    ),
    "transactions": (
        65, 0, describe_transactions_request.DescribeTransactionsRequest(("a", "b") * 30)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
def test_a_large_answer_is_made_in_slices_and_is_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, version, request = REQUESTS[name]
    # There is no disk below, and a real one would have changed between two answers.
    monkeypatch.setattr("shutil.disk_usage", lambda path: (10, 4, 6))

    async def scenario() -> None:
        asking = asking_with_topic()
        topic = asking.broker.topics.named("orders")
        places: dict[tuple[bytes, int], Commitment | None] = {
            (topic.id, index): Commitment(0) for index in range(PARTITIONS)
        }
        asking.broker.cursors.commit("audit", places, 1)
        queue_of(asking)
        for log in asking.broker.topics:
            log.log.sync_now()
            log.on_synced(1)
        asking.broker.cursors.on_synced()
        monkeypatch.setattr(slices, "SMALL", 10_000)
        at_once = await asking.ask(key, version, request)
        monkeypatch.setattr(slices, "SMALL", 32)
        answer = asking.begin(key, version, request)
        assert await turns_until_done(answer) >= 50
        assert await answer == at_once

    run(scenario)


# Fetching.


def fetching(
    *indexes: int,
    at: int = 0,
    wait_ms: int = 0,
    min_bytes: int = 1,
    session: tuple[int, int] = (0, -1),
) -> FetchRequest:
    wanted = tuple(FetchPartition(index, -1, at, partition_max_bytes=4096) for index in indexes)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=MAX_BYTES,
        session_id=session[0],
        session_epoch=session[1],
        topics=(FetchTopic("orders", partitions=wanted),) if indexes else (),
    )


def found_in(answer: Any) -> dict[int, int]:
    return {
        each.partition_index: len(each.records or b"")
        for topic in answer.responses
        for each in topic.partitions
        if each.records
    }


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few are many, so that tests are short."""
    monkeypatch.setattr(fetch, "MANY", 10)


def test_many_partitions_are_fetched_in_slices_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        asking = asking_with_topic()
        for index in (0, 7, 59):
            publish(asking, index)
        request = fetching(*range(PARTITIONS + 2))
        monkeypatch.setattr(fetch, "MANY", 10_000)
        at_once = await asking.ask(FETCH, 12, request)
        monkeypatch.setattr(fetch, "MANY", 10)
        answer = asking.begin(FETCH, 12, request)
        assert await turns_until_done(answer) >= 2 * PARTITIONS
        assert await answer == at_once
        assert list(found_in(at_once)) == [0, 7, 59]

    run(scenario)


@pytest.mark.usefixtures("many")
def test_a_fetch_of_many_waits_for_news() -> None:
    async def scenario() -> None:
        asking = asking_with_topic()
        answer = asking.begin(FETCH, 12, fetching(*range(PARTITIONS), wait_ms=30_000))
        for _ in range(5 * PARTITIONS):
            await asyncio.sleep(0)
        assert not answer.done()
        publish(asking, 33)
        assert list(found_in(await answer)) == [33]
        assert asking.service._waiting == {} and asking.door.polls == set()

    run(scenario)


@pytest.mark.usefixtures("many")
def test_a_fetch_of_many_misses_nothing_that_comes_while_it_looks() -> None:
    async def scenario(turns: int) -> None:
        asking = asking_with_topic()
        answer = asking.begin(FETCH, 12, fetching(*range(PARTITIONS), wait_ms=30_000))
        for _ in range(turns):
            await asyncio.sleep(0)
        publish(asking, 3)
        assert list(found_in(await answer)) == [3]

    for turns in range(0, 4 * PARTITIONS, 17):
        run(partial(scenario, turns))


@pytest.mark.usefixtures("many")
def test_a_fetch_of_many_waits_for_enough_and_ends_in_time() -> None:
    async def scenario() -> None:
        asking = asking_with_topic()
        request = fetching(*range(PARTITIONS), wait_ms=30_000, min_bytes=100_000)
        answer = asking.begin(FETCH, 12, request)
        for _ in range(5 * PARTITIONS):
            await asyncio.sleep(0)
        publish(asking, 3)
        for _ in range(5 * PARTITIONS):
            await asyncio.sleep(0)
        assert not answer.done()
        publish(asking, 4, b"v" * 200_000)
        assert set(found_in(await answer)) == {3, 4}
        late = asking.begin(FETCH, 12, fetching(0, *range(5, PARTITIONS), at=0, wait_ms=50))
        for _ in range(5 * PARTITIONS):
            await asyncio.sleep(0)
        assert not late.done()
        await asking.skip(0.06)
        assert found_in(await late) == {}

    run(scenario)


@pytest.mark.usefixtures("many")
def test_a_fetch_of_many_ends_with_the_node_and_with_its_connection() -> None:
    async def scenario() -> None:
        asking = asking_with_topic()
        answer = asking.begin(FETCH, 12, fetching(*range(PARTITIONS), wait_ms=30_000))
        for _ in range(5 * PARTITIONS):
            await asyncio.sleep(0)
        for finish in list(asking.door.polls):
            finish()
        assert found_in(await answer) == {}
        assert asking.service._waiting == {}

    run(scenario)


@pytest.mark.usefixtures("many")
def test_a_session_may_change_while_it_is_answered() -> None:
    async def scenario() -> None:
        asking = asking_with_topic()
        for index in range(PARTITIONS):
            publish(asking, index)
        opened = await asking.ask(FETCH, 12, fetching(*range(PARTITIONS), session=(0, 0)))
        first = asking.begin(FETCH, 12, fetching(session=(opened.session_id, 1)))
        await asyncio.sleep(0)
        second = asking.begin(FETCH, 12, fetching(1, at=1, session=(opened.session_id, 2)))
        assert len(found_in(await first)) == PARTITIONS
        assert (await second).error_code == 0

    run(scenario)


# Growing.


def growing(count: int, name: str = "orders") -> CreatePartitionsRequest:
    return CreatePartitionsRequest((CreatePartitionsTopic(name, count, None),))


def codes_of(answer: Any) -> list[int]:
    return [each.error_code for each in answer.results]


def count_of(asking: Asking) -> int:
    return asking.broker.topics.named("orders").partitions


def test_a_topic_grows_while_others_are_served_and_all_at_once() -> None:
    async def scenario() -> None:
        asking = asking_with_topic(2)
        group = queue_of(asking)
        answer = asking.begin(GROW, 3, growing(PARTITIONS))
        seen = set()
        while not answer.done():
            seen.add(count_of(asking))
            await asyncio.sleep(0)
        assert codes_of(await answer) == [0]
        assert seen <= {2, PARTITIONS} and count_of(asking) == PARTITIONS
        assert len(asking.broker.groups.views(group)) == PARTITIONS
        publish(asking, PARTITIONS - 1)
        assert codes_of(await asking.ask(GROW, 3, growing(PARTITIONS))) == [
            Error.INVALID_PARTITIONS
        ]

    run(scenario)


def test_two_cannot_grow_a_topic_at_once() -> None:
    async def scenario() -> None:
        asking = asking_with_topic(2)
        first = asking.begin(GROW, 3, growing(PARTITIONS))
        await asyncio.sleep(0)
        second = await asking.ask(GROW, 3, growing(PARTITIONS + 5))
        assert codes_of(second) == [Error.INVALID_REQUEST]
        assert codes_of(await first) == [0] and count_of(asking) == PARTITIONS

    run(scenario)


def test_a_topic_that_is_deleted_while_it_grows_leaves_nothing() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        asking = Asking(disk)
        topic = asking.broker.topics.create("orders", 2, TopicSettings(), 1)
        answer = asking.begin(GROW, 3, growing(PARTITIONS))
        for _ in range(10):
            await asyncio.sleep(0)
        deleted = asking.broker.delete_topic(topic, 1, asking.broker.commit())
        for partition in deleted.partitions:
            partition.close_files()
        asking.broker.topics.remove_files(topic)
        assert codes_of(await answer) == [Error.UNKNOWN_TOPIC_OR_PARTITION]
        assert disk.list(f"{topic.folder}/5") == []
        assert "orders" not in asking.broker.topics.catalog.topics

    run(scenario)


def test_a_topic_that_finds_no_room_to_grow_stays_as_it_was() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = Asking(disk)
        topic = asking.broker.topics.create("orders", 2, TopicSettings(), 1)
        real, left = disk.make_directory, [20]

        def make_directory(path: str) -> None:
            left[0] -= 1
            if not left[0]:
                raise OSError(28, "no space left")
            real(path)

        disk.make_directory = make_directory  # type: ignore[method-assign]
        assert codes_of(await asking.ask(GROW, 3, growing(PARTITIONS))) == [
            Error.KAFKA_STORAGE_ERROR
        ]
        assert count_of(asking) == len(disk.list(topic.folder)) == 2
        publish(asking, 1)
        assert codes_of(await asking.ask(GROW, 3, growing(5))) == [0]
        publish(asking, 4)

    run(scenario)


Change = Callable[[Asking, Group], None]


def _subscribe(asking: Asking, group: Group) -> None:
    queue_of(asking, "late")


def _delete(asking: Asking, group: Group) -> None:
    asking.broker.groups.delete(group, 1, asking.broker.commit())


def _alter(asking: Asking, group: Group) -> None:
    asking.broker.groups.alter(group, {"max_attempts": 9}, 1)
    topic = asking.broker.topics.named("orders")
    asking.broker.topics.alter(topic, {"retention_ms": 1_234}, 1)


@pytest.mark.parametrize("change", [_subscribe, _delete, _alter])
def test_groups_that_change_while_a_topic_grows_read_all_of_it(change: Change) -> None:
    async def scenario() -> None:
        asking = asking_with_topic(2)
        group = queue_of(asking)
        answer = asking.begin(GROW, 3, growing(PARTITIONS))
        for _ in range(10):
            await asyncio.sleep(0)
        change(asking, group)
        assert codes_of(await answer) == [0]
        topic = asking.broker.topics.named("orders")
        catalog = asking.broker.topics.catalog
        for partition in asking.broker.topics.partitions(topic):
            assert set(partition.views) == {each.id for each in catalog.groups.values()}
            for view in partition.views.values():
                assert view.settings == catalog.groups_by_id[view.group_id].settings
            assert partition.topic.settings == topic.settings

    run(scenario)
