"""Kafka's internal topics on Kafka's wire: what a tool reads that follows them."""

from __future__ import annotations

import pytest
from tests.unit.server.asking import run
from tests.unit.server.coordinator_door import (
    COMMITTED,
    METADATA,
    OFFSETS,
    TRANSACTIONS,
    UNCOMMITTED,
    CoordinatorDoor,
    batches_of,
    end_of,
    offset_in,
    value_in,
)
from tests.unit.server.transaction_door import GROUP, NAME, NEW, OLD, TOPIC, Transactor
from tests.unit.wire.coordinator_decoder import (
    TransactionState,
    decode_offset_key,
    decode_transaction_key,
    decode_transaction_value,
)

from headrace.core import limits
from headrace.core.settings import TopicSettings
from headrace.engine.broker import Broker
from headrace.engine.partition import Partition
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch, read_header, read_records
from headrace.server.kafka.errors import Error
from headrace.testing.manual_clock import ManualClock
from headrace.wire.kafka.generated.delete_groups_request import DeleteGroupsRequest
from headrace.wire.kafka.generated.delete_topics_request import (
    DeleteTopicsRequest,
    DeleteTopicState,
)
from headrace.wire.kafka.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.generated.metadata_request import MetadataRequest

DELETE_TOPICS, DELETE_GROUPS, FETCH = 20, 42, 1
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)


def stored(broker: Broker, name: str) -> Partition:
    topic = broker.topics.catalog.topics[name]
    return broker.topics.partition(topic, 0)


def compact(door: CoordinatorDoor, name: str = "__cursors") -> None:
    log, now_ms = stored(door.broker, name).log, door.clock.now_ms()
    log.roll(now_ms)
    for _ in log.compact(now_ms, log.end_offset):
        pass


async def delete_topic(door: CoordinatorDoor, name: str) -> None:
    request = DeleteTopicsRequest((DeleteTopicState(name),))
    (answer,) = (await door.ask(DELETE_TOPICS, 6, request)).responses
    assert answer.error_code == 0


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
def test_committed_offsets_are_read_as_kafka_writes_them(version: int) -> None:
    async def scenario() -> None:
        door = CoordinatorDoor()
        at_ms = door.clock.now_ms()
        await door.commit("readers", {0: 7, 1: 3}, note="from here")
        await door.commit("others", {0: 2**40})
        topic_id = (await door.find(OFFSETS)).topic_id
        read = await door.read(OFFSETS, version=version, topic_id=topic_id)
        assert [each.offset for each in read] == [0, 1, 2]
        assert {each.timestamp_ms for each in read} == {at_ms}
        assert [decode_offset_key(each.key) for each in read] == [
            ("readers", TOPIC, 0), ("readers", TOPIC, 1), ("others", TOPIC, 0),
        ]  # fmt: skip
        assert value_in(read[0]) == (7, 4, "from here", at_ms)
        assert value_in(read[2]) == (2**40, 4, "", at_ms)

    run(scenario)


def test_who_asks_for_all_topics_is_told_of_those_that_kafka_has() -> None:
    async def scenario() -> None:
        door = CoordinatorDoor()
        listing = MetadataRequest(None)

        async def listed() -> list[tuple[str, bool, int]]:
            topics = (await door.ask(METADATA, 12, listing)).topics
            return [(each.name, each.is_internal, len(each.partitions)) for each in topics]

        assert await listed() == [(TOPIC, False, 2)]
        await door.commit("readers", {0: 7})
        await Transactor(door, NEW).init()
        assert await listed() == [(OFFSETS, True, 1), (TRANSACTIONS, True, 1), (TOPIC, False, 2)]

    run(scenario)


@pytest.mark.parametrize("name", [OFFSETS, TRANSACTIONS])
def test_a_follower_may_come_before_anything_is_committed(name: str) -> None:
    async def scenario() -> None:
        door = CoordinatorDoor()
        unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
        assert (await door.find(name, may_create=False)).error_code == unknown
        assert (await door.fetch(name, 0)).error_code == unknown
        door.broker.topics.auto_create_partitions = 0
        found = await door.find(name)
        assert (found.error_code, found.is_internal, len(found.partitions)) == (0, True, 1)
        assert (await door.fetch(name, 0)).error_code == 0
        assert await door.find(name, may_create=False) == found

    run(scenario)


def test_a_follower_gets_a_commit_when_it_is_made() -> None:
    async def scenario() -> None:
        door = CoordinatorDoor()
        await door.commit("readers", {0: 7})
        waiting = door.fetching(OFFSETS, 1, max_wait_ms=30_000)
        await door.skip(1)
        assert not waiting.done()
        await door.commit("readers", {0: 8})
        data = (await waiting).responses[0].partitions[0]
        assert (data.high_watermark, end_of(data)) == (2, 2)
        waiting = door.fetching(OFFSETS, 2, max_wait_ms=30_000)
        await door.skip(0)
        await door.skip(31)
        assert not (await waiting).responses[0].partitions[0].records

    run(scenario)


def test_a_fetch_session_follows_too() -> None:
    async def scenario() -> None:
        door = CoordinatorDoor()
        await door.commit("readers", {0: 7})
        first = await door.fetching(OFFSETS, 0, session_epoch=0)
        assert end_of(first.responses[0].partitions[0]) == 1
        moved = await door.fetching(OFFSETS, 1, session_id=first.session_id, session_epoch=1)
        assert not moved.responses
        later = FetchRequest(session_id=first.session_id, session_epoch=2, max_bytes=1 << 20)
        await door.commit("readers", {0: 8})
        told = await door.ask(FETCH, 12, later)
        assert end_of(told.responses[0].partitions[0]) == 2

    run(scenario)


def test_offsets_stay_what_they_are_over_a_restart_and_a_compaction() -> None:
    async def scenario() -> None:
        disk, clock = MemoryDisk(), ManualClock()
        door = CoordinatorDoor(disk, clock)
        for offset in range(20):
            await door.commit("readers", {0: offset})
            await door.commit("others", {offset % 2: offset})
        before = await door.read(OFFSETS)
        topic_id = (await door.find(OFFSETS)).topic_id
        await door.close()
        door = CoordinatorDoor(disk, clock)
        assert await door.read(OFFSETS) == before
        assert (await door.find(OFFSETS)).topic_id == topic_id
        compact(door)
        # Somebody who was slow goes on where it was, past what is gone.
        assert await door.read(OFFSETS, 5) == [before[37], before[38], before[39]]
        await door.commit("readers", {0: 20})
        (last,) = await door.read(OFFSETS, 40)
        assert (last.offset, offset_in(last)) == (40, 20)

    run(scenario)


def test_a_follower_is_told_what_is_forgotten() -> None:
    async def scenario() -> None:
        door = CoordinatorDoor()
        await door.commit("readers", {0: 7, 1: 8})
        deleted = await door.ask(DELETE_GROUPS, 2, DeleteGroupsRequest(("readers",)))
        assert deleted.results[0].error_code == 0
        told = await door.read_offsets(offset=2)
        assert sorted(told) == [("readers", TOPIC, 0, None), ("readers", TOPIC, 1, None)]

    run(scenario)


def test_positions_in_a_deleted_topic_are_forgotten_under_its_name() -> None:
    async def scenario() -> None:
        disk, clock = MemoryDisk(), ManualClock()
        door = CoordinatorDoor(disk, clock)
        await door.commit("readers", {0: 7})
        await delete_topic(door, TOPIC)
        door.make_topic()
        await door.commit("readers", {0: 1})
        expected = [("readers", TOPIC, 0, None), ("readers", TOPIC, 0, 1)]
        # A follower that has read the first record before is taken past it all the same.
        assert await door.read_offsets() == await door.read_offsets(offset=1) == expected
        assert end_of(await door.fetch(OFFSETS, 0, partition_max_bytes=1)) == 1
        await door.close()
        door = CoordinatorDoor(disk, clock)
        assert await door.read_offsets() == expected
        compact(door)
        assert await door.read_offsets() == expected

    run(scenario)


def test_of_what_an_earlier_version_forgot_the_name_is_told_while_the_topic_is_there() -> None:
    async def scenario() -> None:
        door = CoordinatorDoor()
        await door.commit("readers", {0: 7})
        partition, now_ms = stored(door.broker, "__cursors"), door.clock.now_ms()
        (written,) = read_records(bytes(partition.log.read(0, 1 << 20, 1)))
        batch = build_batch([NewRecord(written.key, None, (), now_ms)])
        partition.append(batch, read_header(batch), now_ms)
        await door.commit("others", {0: 1})
        forgotten = ("readers", TOPIC, 0, None)
        assert await door.read_offsets(offset=1) == [forgotten, ("others", TOPIC, 0, 1)]
        await delete_topic(door, TOPIC)
        # Both groups' positions are forgotten by now, and only that has a name.
        told = await door.read_offsets()
        assert sorted(told) == [("others", TOPIC, 0, None), forgotten]
        assert all(each.offset > 2 for each in await door.read(OFFSETS))

    run(scenario)


@pytest.mark.parametrize("versions", [OLD, NEW])
def test_offsets_of_transactions_count_when_they_are_committed(versions: dict[int, int]) -> None:
    async def scenario() -> None:
        door = CoordinatorDoor()
        producer = Transactor(door, versions)
        await producer.init()

        async def move(offset: int, *, commit: bool) -> None:
            if versions is OLD:
                assert await producer.add_offsets() == 0
            assert await producer.commit_offset(offset) == 0
            assert await producer.end(commit=commit) == 0

        await move(5, commit=True)
        await move(6, commit=False)
        await door.commit("others", {0: 1})
        if versions is OLD:
            await producer.add_offsets()
        await producer.commit_offset(9)
        expected = [(GROUP, TOPIC, 0, 5), ("others", TOPIC, 0, 1)]
        assert await door.read_offsets(isolation_level=COMMITTED) == expected
        every = await door.read_offsets(isolation_level=UNCOMMITTED)
        assert [each[3] for each in every] == [5, 6, 1, 9]
        stable = (await door.fetch(OFFSETS, 0)).last_stable_offset
        waiting = door.fetching(OFFSETS, stable, max_wait_ms=30_000, isolation_level=COMMITTED)
        await door.skip(1)
        assert not waiting.done()
        await producer.end(commit=True)
        assert end_of((await waiting).responses[0].partitions[0]) == stable + 2
        assert (await door.read_offsets(isolation_level=COMMITTED))[-1] == (GROUP, TOPIC, 0, 9)

    run(scenario)


async def states_of(door: CoordinatorDoor) -> list[tuple[str, TransactionState | None]]:
    return [
        (
            decode_transaction_key(each.key),
            None if each.value is None else decode_transaction_value(each.value),
        )
        for each in await door.read(TRANSACTIONS)
    ]


async def on_disk(door: CoordinatorDoor) -> None:
    """A follower waits for it: nobody else does before the next transaction."""
    partition = stored(door.broker, TRANSACTIONS)
    end = partition.log.end_offset
    waiting = door.fetching(TRANSACTIONS, end - 1, max_wait_ms=30_000)
    assert end_of((await waiting).responses[0].partitions[0]) == end


@pytest.mark.parametrize("version", [12, 17])
def test_what_transactional_ids_do_is_read_as_kafka_writes_it(version: int) -> None:
    async def scenario() -> None:
        door = CoordinatorDoor()
        producer = Transactor(door, OLD)
        await producer.init(timeout_ms=9_000)
        producer_id, now_ms = producer.producer_id, door.clock.now_ms()
        await producer.add(1, 0)
        await producer.add_offsets()
        await producer.end(commit=True)
        await on_disk(door)
        topic_id = (await door.find(TRANSACTIONS)).topic_id
        read = await door.read(TRANSACTIONS, version=version, topic_id=topic_id)
        assert {decode_transaction_key(each.key) for each in read} == {NAME}
        states = [decode_transaction_value(each.value or b"") for each in read]
        both, all_of_them = {TOPIC: [0, 1]}, {TOPIC: [0, 1], OFFSETS: [0]}
        assert [(each.state, each.partitions) for each in states] == [
            (EMPTY, None), (ONGOING, both), (ONGOING, all_of_them), (PREPARE_COMMIT, all_of_them),
            (COMPLETE_COMMIT, {}),
        ]  # fmt: skip
        assert {each[:3] for each in states} == {(producer_id, 0, 9_000)}
        # The producer id before, as Kafka has it where there was no other.
        assert states[0][-3:] == (now_ms, -1, {0: producer_id})
        assert states[1][-3:] == (now_ms, now_ms, {0: producer_id})

    run(scenario)


def test_epochs_and_ids_of_the_newer_protocol_are_shown() -> None:
    async def scenario() -> None:
        door = CoordinatorDoor()
        producer = Transactor(door, NEW)
        await producer.init()
        await producer.write(0, b"a")
        await producer.end(commit=False)
        await on_disk(door)
        await delete_topic(door, TOPIC)
        states = [state for _, state in await states_of(door) if state is not None]
        assert [(each.state, each.epoch) for each in states] == [
            (EMPTY, 0), (ONGOING, 0), (PREPARE_ABORT, 1), (COMPLETE_ABORT, 1),
        ]  # fmt: skip
        # A client of KIP-890; and of a topic that is gone nobody knows the name.
        assert [each.tags.get(2, 0) for each in states] == [0, 0, 2, 2]
        assert [each.partitions for each in states] == [None, {}, {}, {}]
        producer_id, now_ms = producer.producer_id, door.clock.now_ms()
        table = door.broker.transactions
        found = table.find(NAME)
        assert found is not None
        spent = found._replace(previous_producer_id=7, next_producer_id=producer_id + 1)
        table._change(NAME, spent, now_ms)
        table.unused_ms = 0
        written = table.forget_unused(now_ms)
        assert written is not None
        commit = door.service.commit()
        commit.data.append(written)
        await door.service.finish(commit)
        (_, last), (name, gone) = (await states_of(door))[-2:]
        assert last is not None
        assert last.tags == {0: 7, 1: producer_id + 1, 2: 2}
        assert (name, gone) == (NAME, None)

    run(scenario)


def test_much_is_fetched_in_parts_that_are_bounded() -> None:
    async def scenario() -> None:
        door = CoordinatorDoor()
        now_ms = door.clock.now_ms()
        topic = door.broker.topics.create("long-name" * 20, 4_000, TopicSettings(), now_ms)
        places = {(topic.id, index): None for index in range(4_000)}
        # One batch on disk, and nine times as large in Kafka's format.
        written = door.broker.cursors.commit("readers", places, now_ms)
        commit = door.service.commit()
        commit.data.append(written)
        await door.service.finish(commit)
        whole = await door.fetch(OFFSETS, 0, partition_max_bytes=1 << 24)
        parts = list(batches_of(whole))
        assert len(parts) > 10
        assert all(len(batch) < 10 * limits.COORDINATOR_PART_BYTES for _, batch in parts)
        cut = await door.fetch(OFFSETS, 0, partition_max_bytes=100_000)
        assert len(bytes(cut.records)) <= 100_000
        assert end_of(cut) < end_of(whole)
        read = await door.read(OFFSETS, partition_max_bytes=1)
        assert [each.offset for each in read] == list(range(4_000))
        # What is read at once is bounded, whatever the client allows.
        for _ in range(3):
            await door.commit("x" * 249, {0: 1}, note="n" * 4_000)
        for _ in range(200):
            await door.commit("readers", {0: 1}, note="n" * 4_000)
        one = await door.fetch(OFFSETS, 4_000, partition_max_bytes=1 << 24)
        assert len(bytes(one.records)) < 2 * limits.COORDINATOR_READ_BYTES_MAX
        assert len(await door.read(OFFSETS, 4_000)) == 203

    run(scenario)


def test_beside_others_in_one_fetch_there_is_room_for_both() -> None:
    async def scenario() -> None:
        door = CoordinatorDoor()
        producer = Transactor(door, NEW)
        await producer.init()
        await producer.write(0, b"x" * 50_000)
        await door.commit("readers", {0: 7})

        async def fetch(max_bytes: int) -> list[int]:
            partition = FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)
            topics = tuple(FetchTopic(name, partitions=(partition,)) for name in (TOPIC, OFFSETS))
            request = FetchRequest(max_wait_ms=0, max_bytes=max_bytes, topics=topics)
            answer = await door.ask(FETCH, 12, request)
            return [len(bytes(each.partitions[0].records or b"")) for each in answer.responses]

        both = await fetch(1 << 20)
        assert both[0] > 50_000
        assert both[1] > 0
        # The first goes out whatever its size; for the second there is no room then.
        assert await fetch(both[0] + 50) == [both[0], 0]

    run(scenario)


def test_damage_is_not_sealed_again() -> None:
    async def scenario() -> None:
        disk, clock = MemoryDisk(), ManualClock()
        door = CoordinatorDoor(disk, clock)
        await door.commit("readers", {0: 7})
        partition = stored(door.broker, "__cursors")
        (name,) = [
            each
            for each in disk.names
            if each.startswith(f"{partition.path}/0") and each.endswith(".log")
        ]
        disk.names[name].data[70] ^= 1
        data = await door.fetch(OFFSETS, 0)
        assert (data.error_code, bytes(data.records)) == (Error.KAFKA_STORAGE_ERROR, b"")

    run(scenario)


def test_who_follows_as_a_group_may_commit_where_it_is() -> None:
    async def scenario() -> None:
        door = CoordinatorDoor()
        await door.commit("readers", {0: 7})
        assert await door.commit("tool", {0: 1}, topic=OFFSETS) == [0]
        assert await door.commit("tool", {0: 0}, topic="__trace") == [
            Error.UNKNOWN_TOPIC_OR_PARTITION
        ]
        assert await door.read_offsets(offset=1) == [("tool", OFFSETS, 0, 1)]

    run(scenario)
