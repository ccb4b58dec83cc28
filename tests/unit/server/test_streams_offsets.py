"""What streams groups have committed: which writes and reads are taken, how it goes away."""

from __future__ import annotations

from typing import Any

from tests.unit.server.asking import run
from tests.unit.server.streams_door import APP, TOPIC, Streaming

from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated.delete_groups_request import DeleteGroupsRequest
from headrace.wire.kafka.generated.describe_groups_request import DescribeGroupsRequest
from headrace.wire.kafka.generated.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.kafka.generated.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.kafka.generated.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.kafka.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.kafka.generated.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

COMMIT, FETCH, FIND, DESCRIBE, INIT, TXN_COMMIT, DELETE, OFFSET_DELETE = (
    8,
    9,
    10,
    15,
    22,
    28,
    42,
    47,
)
BY_NAME, BY_ID = 9, 10


async def commit(
    asking: Streaming, member: str, epoch: int, *partitions: int, version: int = BY_NAME
) -> int:
    topic = OffsetCommitRequestTopic(
        TOPIC if version == BY_NAME else "",
        asking.broker.topics.named(TOPIC).id,
        tuple(OffsetCommitRequestPartition(each, 5) for each in partitions or (0,)),
    )
    request = OffsetCommitRequest(APP, epoch, member, topics=(topic,))
    answer = await asking.ask(COMMIT, version, request)
    (code,) = {each.error_code for each in answer.topics[0].partitions}
    return int(code)


async def txn_commit(asking: Streaming, member: str, epoch: int, *partitions: int) -> int:
    made = await asking.ask(INIT, 5, InitProducerIdRequest("paying", 60_000))
    topic = TxnOffsetCommitRequestTopic(
        TOPIC, tuple(TxnOffsetCommitRequestPartition(each, 5) for each in partitions or (0,))
    )
    request = TxnOffsetCommitRequest(
        "paying", APP, made.producer_id, made.producer_epoch, epoch, member, topics=(topic,)
    )
    answer = await asking.ask(TXN_COMMIT, 5, request)
    (code,) = {each.error_code for each in answer.topics[0].partitions}
    return int(code)


async def fetch(asking: Streaming, member: str | None = None, epoch: int = -1) -> Any:
    wanted = (OffsetFetchRequestTopics(TOPIC, partition_indexes=(0,)),)
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(APP, member, epoch, wanted),))
    return (await asking.ask(FETCH, 9, request)).groups[0]


def test_the_node_is_the_coordinator() -> None:
    async def scenario() -> None:
        asking = Streaming()
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=(APP,))
        (found,) = (await asking.ask(FIND, 6, request)).coordinators
        assert (found.error_code, found.node_id) == (0, 1)

    run(scenario)


def test_members_commit_and_read_with_their_epoch() -> None:
    async def scenario() -> None:
        asking = Streaming()
        epoch = (await asking.settled()).member_epoch
        for version in (BY_NAME, BY_ID):
            assert await commit(asking, "m1", epoch, version=version) == 0
            stale = await commit(asking, "m1", epoch + 1, version=version)
            assert stale == Error.STALE_MEMBER_EPOCH
        assert await commit(asking, "m2", epoch) == Error.UNKNOWN_MEMBER_ID
        assert await commit(asking, "", -1) == Error.UNKNOWN_MEMBER_ID
        found = await fetch(asking, "m1", epoch)
        assert found.topics[0].partitions[0].committed_offset == 5
        assert (await fetch(asking)).error_code == 0
        assert (await fetch(asking, "m1", epoch - 1)).error_code == Error.STALE_MEMBER_EPOCH
        assert (await fetch(asking, "m2", epoch)).error_code == Error.UNKNOWN_MEMBER_ID

    run(scenario)


def test_after_a_restart_offsets_are_read_and_not_written() -> None:
    """A task of Kafka Streams that is refused its offsets ends its application."""

    async def scenario() -> None:
        disk = MemoryDisk()
        asking = Streaming(disk=disk)
        epoch = (await asking.settled()).member_epoch
        assert await commit(asking, "m1", epoch) == 0
        await asking.close()
        again = Streaming(disk=disk)
        found = await fetch(again, "m1", epoch)
        assert found.error_code == 0
        # The topic is empty, and so that is where the group is.
        assert found.topics[0].partitions[0].committed_offset == 0
        assert await commit(again, "m1", epoch) == Error.UNKNOWN_MEMBER_ID

    run(scenario)


def test_a_transaction_commits_with_the_members_epoch() -> None:
    async def scenario() -> None:
        asking = Streaming()
        epoch = (await asking.settled()).member_epoch
        assert await txn_commit(asking, "m1", epoch) == 0
        # Producers know generations only.
        assert await txn_commit(asking, "m1", epoch + 1) == Error.ILLEGAL_GENERATION
        assert await txn_commit(asking, "m2", epoch) == Error.UNKNOWN_MEMBER_ID
        assert await txn_commit(asking, "", -1) == 0

    run(scenario)


def test_a_commit_under_way_while_the_epoch_rises_counts_for_tasks_held_before() -> None:
    async def scenario() -> None:
        asking = Streaming()
        first = await asking.settled()
        await asking.join("m2")
        await asking.skip(2)
        told = await asking.beat("m1", first.member_epoch)
        kept = {each.subtopology_id: each.partitions for each in told.active_tasks}
        released = await asking.beat(
            "m1",
            first.member_epoch,
            active_tasks=told.active_tasks,
            standby_tasks=(),
            warmup_tasks=(),
        )
        assert released.member_epoch > first.member_epoch
        (mine,) = kept["0"]
        for version in (BY_NAME, BY_ID):
            assert await commit(asking, "m1", first.member_epoch, mine, version=version) == 0
            gone = await commit(asking, "m1", first.member_epoch, 1 - mine, version=version)
            assert gone == Error.STALE_MEMBER_EPOCH
        assert await txn_commit(asking, "m1", first.member_epoch, mine) == 0
        late = await txn_commit(asking, "m1", first.member_epoch, 1 - mine)
        assert late == Error.ILLEGAL_GENERATION

    run(scenario)


def test_offsets_and_groups_go_away_without_members() -> None:
    async def scenario() -> None:
        asking = Streaming()
        epoch = (await asking.settled()).member_epoch
        assert await commit(asking, "m1", epoch) == 0
        deleted = OffsetDeleteRequest(
            APP, (OffsetDeleteRequestTopic(TOPIC, (OffsetDeleteRequestPartition(0),)),)
        )
        answer = await asking.ask(OFFSET_DELETE, 0, deleted)
        assert answer.topics[0].partitions[0].error_code == Error.GROUP_SUBSCRIBED_TO_TOPIC
        gone = await asking.ask(DELETE, 2, DeleteGroupsRequest((APP,)))
        assert gone.results[0].error_code == Error.NON_EMPTY_GROUP
        await asking.beat("m1", -1)
        assert await commit(asking, "", -1) == 0, "which is how tools reset offsets"
        answer = await asking.ask(OFFSET_DELETE, 0, deleted)
        assert answer.topics[0].partitions[0].error_code == 0
        assert (await fetch(asking)).topics[0].partitions[0].committed_offset == -1
        gone = await asking.ask(DELETE, 2, DeleteGroupsRequest((APP,)))
        assert gone.results[0].error_code == 0
        assert (await asking.describe()).error_code == Error.GROUP_ID_NOT_FOUND
        again = await asking.ask(DELETE, 2, DeleteGroupsRequest((APP,)))
        assert again.results[0].error_code == Error.GROUP_ID_NOT_FOUND

    run(scenario)


def test_other_descriptions_do_not_show_a_streams_group_as_theirs() -> None:
    async def scenario() -> None:
        asking = Streaming()
        await asking.settled()
        (group,) = (await asking.ask(DESCRIBE, 6, DescribeGroupsRequest((APP,)))).groups
        assert (group.error_code, group.group_state) == (Error.GROUP_ID_NOT_FOUND, "Dead")

    run(scenario)
