"""The group APIs of the Kafka door, request by request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.server.asking import Asking, run

from headrace.core import limits
from headrace.core.settings import TopicSettings
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.connection import Connection
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.api import APIS
from headrace.wire.kafka.generated.consumer_group_describe_request import (
    ConsumerGroupDescribeRequest,
)
from headrace.wire.kafka.generated.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from headrace.wire.kafka.generated.heartbeat_request import HeartbeatRequest
from headrace.wire.kafka.generated.join_group_request import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from headrace.wire.kafka.generated.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.kafka.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.kafka.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from headrace.wire.kafka.generated.sync_group_request import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

GROUP = "billing"
TOPIC = "orders"
COMMIT, FETCH, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 11, 12, 13, 14
CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 68, 69


def door_with_topic(disk: MemoryDisk | None = None, **settings: Any) -> Asking:
    asking = Asking(disk or MemoryDisk(), **settings)
    if TOPIC not in asking.broker.topics.catalog.topics:
        now_ms = asking.service.clock.now_ms()
        asking.broker.topics.create(TOPIC, 3, TopicSettings(), now_ms)
    return asking


def nearest(key: int, version: int) -> int:
    """The version of this API that goes with that version of JoinGroup."""
    return max(APIS[key].first, min(APIS[key].last, version))


def joining(member_id: str = "", **changes: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol("range", b"what I read"),),
    )._replace(**changes)


async def join_alone(asking: Asking, version: int = 9, **changes: Any) -> Any:
    """A member that has joined and synced; its JoinGroup answer."""
    joined = await asking.ask(JOIN, version, joining(**changes))
    if joined.error_code == Error.MEMBER_ID_REQUIRED:
        joined = await asking.ask(JOIN, version, joining(joined.member_id, **changes))
    assert joined.error_code == 0
    mine = (SyncGroupRequestAssignment(joined.member_id, b"my part"),)
    synced = await asking.ask(
        SYNC,
        nearest(SYNC, version),
        SyncGroupRequest(GROUP, joined.generation_id, joined.member_id, assignments=mine),
    )
    assert (synced.error_code, synced.assignment) == (0, b"my part")
    return joined


def committing(
    asking: Asking, offset: int, member_id: str = "", generation: int = -1, **changes: Any
) -> OffsetCommitRequest:
    topic_id = asking.broker.topics.named(TOPIC).id
    partition = OffsetCommitRequestPartition(0, offset, 5, "a note")._replace(**changes)
    topic = OffsetCommitRequestTopic(TOPIC, topic_id, (partition,))
    return OffsetCommitRequest(GROUP, generation, member_id, topics=(topic,))


async def commit(asking: Asking, version: int, request: OffsetCommitRequest) -> int:
    response = await asking.ask(COMMIT, version, request)
    error: int = response.topics[0].partitions[0].error_code
    return error


async def committed(asking: Asking, version: int, group: str = GROUP) -> Any:
    """What the group committed for the topic's first partition."""
    topic = asking.broker.topics.named(TOPIC)
    if version >= 8:
        wanted = OffsetFetchRequestTopics(TOPIC, topic.id, (0,))
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group, topics=(wanted,)),))
        response = (await asking.ask(FETCH, version, request)).groups[0]
    else:
        topics = (OffsetFetchRequestTopic(TOPIC, (0,)),)
        response = await asking.ask(FETCH, version, OffsetFetchRequest(group, topics))
    assert response.error_code == 0
    return response.topics[0].partitions[0]


def heart(member_id: str, epoch: int, **changes: Any) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(GROUP, member_id, epoch)
    if epoch == 0:
        request = request._replace(
            rebalance_timeout_ms=20_000, subscribed_topic_names=(TOPIC,), topic_partitions=()
        )
    return request._replace(**changes)


# The life of a member, in every version.


@pytest.mark.parametrize("version", range(11))
def test_a_classic_member_lives_and_leaves_in_every_version(version: int) -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        joined = await join_alone(asking, nearest(JOIN, version))
        assert joined.leader == joined.member_id
        assert joined.protocol_name == "range"
        assert [bytes(member.metadata) for member in joined.members] == [b"what I read"]
        member, generation = joined.member_id, joined.generation_id
        assert member.startswith("app-")
        beat = await asking.ask(
            HEARTBEAT, nearest(HEARTBEAT, version), HeartbeatRequest(GROUP, generation, member)
        )
        assert beat.error_code == 0
        request = committing(asking, 7, member, generation)
        assert await commit(asking, nearest(COMMIT, version), request) == 0
        found = await committed(asking, nearest(FETCH, version))
        assert (found.committed_offset, found.metadata, found.error_code) == (7, "a note", 0)
        left = await asking.ask(
            LEAVE,
            nearest(LEAVE, version),
            LeaveGroupRequest(GROUP, member, (MemberIdentity(member),)),
        )
        assert left.error_code == 0
        assert all(each.error_code == 0 for each in left.members)
        beat = await asking.ask(HEARTBEAT, 4, HeartbeatRequest(GROUP, generation, member))
        assert beat.error_code == Error.UNKNOWN_MEMBER_ID

    run(scenario)


@pytest.mark.parametrize("version", [0, 1])
def test_a_consumer_member_lives_and_leaves_in_every_version(version: int) -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        topic_id = asking.broker.topics.named(TOPIC).id
        everything = (TopicPartitions(topic_id, (0, 1, 2)),)
        chosen = "" if version == 0 else "my own id"
        joined = await asking.ask(CONSUMER_HEARTBEAT, version, heart(chosen, 0))
        assert joined.error_code == 0
        assert joined.assignment.topic_partitions == everything
        member, epoch = joined.member_id, joined.member_epoch
        assert member and epoch > 0
        assert version == 0 or member == chosen
        kept = await asking.ask(
            CONSUMER_HEARTBEAT, version, heart(member, epoch, topic_partitions=everything)
        )
        assert (kept.error_code, kept.assignment) == (0, None)
        described = await asking.ask(
            CONSUMER_DESCRIBE, version, ConsumerGroupDescribeRequest((GROUP,))
        )
        (group,) = described.groups
        assert (group.group_state, group.assignor_name) == ("Stable", "uniform")
        assert group.members[0].client_host == "10.0.0.7"
        assert group.members[0].assignment.topic_partitions[0].topic_name == TOPIC
        left = await asking.ask(CONSUMER_HEARTBEAT, version, heart(member, -1))
        assert (left.error_code, left.member_epoch) == (0, -1)

    run(scenario)


def test_members_are_told_to_call_less_often_when_there_are_many_clients() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        quick = await asking.ask(CONSUMER_HEARTBEAT, 1, heart("first", 0))
        asking.door.connections |= {Connection(asking.door) for _ in range(1_000)}
        slow = await asking.ask(CONSUMER_HEARTBEAT, 1, heart("first", quick.member_epoch))
        assert quick.heartbeat_interval_ms < 1_000
        assert slow.heartbeat_interval_ms == 5_000

    run(scenario)


def test_an_administrator_sends_members_of_a_consumer_group_away() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        await asking.ask(CONSUMER_HEARTBEAT, 1, heart("dynamic", 0))
        await asking.ask(CONSUMER_HEARTBEAT, 1, heart("static", 0, instance_id="east"))
        named = (MemberIdentity("dynamic"), MemberIdentity("", "east"), MemberIdentity("nobody"))
        left = await asking.ask(LEAVE, 5, LeaveGroupRequest(GROUP, members=named))
        assert [each.error_code for each in left.members] == [0, 0, Error.UNKNOWN_MEMBER_ID]
        described = await asking.ask(CONSUMER_DESCRIBE, 1, ConsumerGroupDescribeRequest((GROUP,)))
        assert described.groups[0].members == ()

    run(scenario)


# Waiting, and time.


def test_a_join_waits_for_the_other_members() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        first = await join_alone(asking)
        second = asking.begin(JOIN, 3, joining())
        await asking.skip(0)
        assert not second.done()
        again = await asking.ask(JOIN, 9, joining(first.member_id))
        newcomer = await second
        assert again.generation_id == newcomer.generation_id == first.generation_id + 1
        assert len(again.members) == 2
        assert newcomer.members == ()
        part = SyncGroupRequestAssignment(newcomer.member_id, b"yours")
        waiting = asking.begin(
            SYNC, 5, SyncGroupRequest(GROUP, newcomer.generation_id, newcomer.member_id)
        )
        await asking.skip(0)
        assert not waiting.done()
        await asking.ask(
            SYNC,
            5,
            SyncGroupRequest(GROUP, again.generation_id, again.member_id, assignments=(part,)),
        )
        assert (await waiting).assignment == b"yours"

    run(scenario)


def test_a_member_that_does_not_join_again_is_left_behind() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        silent = await join_alone(asking, rebalance_timeout_ms=5_000, session_timeout_ms=60_000)
        second = asking.begin(JOIN, 3, joining(rebalance_timeout_ms=5_000))
        await asking.skip(4.9)
        assert not second.done()
        await asking.skip(0.2)
        assert len((await second).members) == 1
        beat = await asking.ask(
            HEARTBEAT, 4, HeartbeatRequest(GROUP, silent.generation_id, silent.member_id)
        )
        assert beat.error_code == Error.UNKNOWN_MEMBER_ID

    run(scenario)


def test_a_silent_member_is_dropped_and_one_that_calls_is_not() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        joined = await join_alone(asking)
        beat = HeartbeatRequest(GROUP, joined.generation_id, joined.member_id)
        for _ in range(3):
            await asking.skip(9)
            assert (await asking.ask(HEARTBEAT, 4, beat)).error_code == 0
        await asking.skip(10.1)
        assert (await asking.ask(HEARTBEAT, 4, beat)).error_code == Error.UNKNOWN_MEMBER_ID

    run(scenario)


def test_what_a_silent_consumer_member_had_goes_to_the_others() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        await asking.ask(CONSUMER_HEARTBEAT, 1, heart("silent", 0))
        other = await asking.ask(CONSUMER_HEARTBEAT, 1, heart("other", 0))
        assert other.assignment.topic_partitions == ()
        await asking.skip(44)
        other = await asking.ask(CONSUMER_HEARTBEAT, 1, heart("other", other.member_epoch))
        await asking.skip(2)
        other = await asking.ask(
            CONSUMER_HEARTBEAT, 1, heart("other", other.member_epoch, topic_partitions=())
        )
        assert [list(each.partitions) for each in other.assignment.topic_partitions] == [[0, 1, 2]]

    run(scenario)


def test_a_new_group_waits_for_more_members_if_it_is_told_to() -> None:
    async def scenario() -> None:
        asking = door_with_topic(rebalance_delay_ms=3_000)
        both = [asking.begin(JOIN, 3, joining()) for _ in range(2)]
        await asking.skip(2.9)
        assert not any(each.done() for each in both)
        # They came within the first wait, so there is one more for others.
        await asking.skip(0.2)
        await asking.skip(2.7)
        assert not any(each.done() for each in both)
        await asking.skip(0.4)
        first, second = [await each for each in both]
        assert first.generation_id == second.generation_id == 1

    run(scenario)


# Kinds do not mix, but for consumers of the two protocols: see test_mixed.py.


def test_a_member_of_the_other_protocol_is_refused_by_others_than_consumers() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        await join_alone(asking)
        refused = await asking.ask(CONSUMER_HEARTBEAT, 1, heart("new", 0))
        assert refused.error_code == Error.GROUP_ID_NOT_FOUND
        assert GROUP in refused.error_message

        asking = door_with_topic()
        await asking.ask(CONSUMER_HEARTBEAT, 1, heart("new", 0))
        assert (await asking.ask(JOIN, 9, joining())).error_code == (
            Error.INCONSISTENT_GROUP_PROTOCOL
        )

    run(scenario)


def test_the_name_of_a_queue_group_is_refused_by_every_api() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        now_ms = asking.service.clock.now_ms()
        topic = asking.broker.topics.named(TOPIC)
        asking.broker.groups.open(GROUP, [topic], {}, now_ms, asking.service.commit())
        assert (await asking.ask(JOIN, 9, joining())).error_code == (
            Error.INCONSISTENT_GROUP_PROTOCOL
        )
        refused = await asking.ask(CONSUMER_HEARTBEAT, 1, heart("new", 0))
        assert refused.error_code == Error.GROUP_ID_NOT_FOUND
        assert await commit(asking, 9, committing(asking, 1)) == Error.GROUP_ID_NOT_FOUND
        fetched = await asking.ask(
            FETCH, 9, OffsetFetchRequest(groups=(OffsetFetchRequestGroup(GROUP, topics=None),))
        )
        assert fetched.groups[0].error_code == Error.GROUP_ID_NOT_FOUND

    run(scenario)


def test_members_inside_the_process_are_not_mixed_with_kafka_members() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        asking.broker.cursors.join(GROUP, "worker-1", [TOPIC], "earliest")
        assert (await asking.ask(JOIN, 9, joining())).error_code == (
            Error.INCONSISTENT_GROUP_PROTOCOL
        )
        assert await commit(asking, 9, committing(asking, 1)) == Error.UNKNOWN_MEMBER_ID
        asking.broker.cursors.leave(GROUP, "worker-1")
        await join_alone(asking)

    run(scenario)


@pytest.mark.parametrize("name", ["", "x" * (limits.NAME_CHARACTERS_MAX + 1)])
def test_a_group_id_has_at_least_one_character_and_not_too_many(name: str) -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        invalid = Error.INVALID_GROUP_ID
        assert (await asking.ask(JOIN, 9, joining(group_id=name))).error_code == invalid
        assert (await asking.ask(SYNC, 5, SyncGroupRequest(name, 1, "m"))).error_code == invalid
        assert (await asking.ask(HEARTBEAT, 4, HeartbeatRequest(name, 1, "m"))).error_code == (
            invalid
        )
        left = await asking.ask(LEAVE, 5, LeaveGroupRequest(name, members=(MemberIdentity("m"),)))
        assert left.error_code == invalid
        beat = await asking.ask(CONSUMER_HEARTBEAT, 1, heart("m", 0, group_id=name))
        assert beat.error_code == invalid
        request = committing(asking, 1)._replace(group_id=name)
        assert await commit(asking, 9, request) == invalid

    run(scenario)


def test_a_group_id_may_hold_any_characters() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        name = "Rechnungen: März / team 7"
        request = committing(asking, 4)._replace(group_id=name)
        assert await commit(asking, 9, request) == 0
        assert (await committed(asking, 9, name)).committed_offset == 4

    run(scenario)


def test_a_member_that_says_too_much_of_itself_is_refused() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        much = (JoinGroupRequestProtocol("range", bytes(limits.MEMBER_BYTES_MAX + 1)),)
        refused = await asking.ask(JOIN, 9, joining(protocols=much))
        assert refused.error_code == Error.INVALID_REQUEST

    run(scenario)


# After a restart.


def test_offsets_outlive_the_node() -> None:
    """And so do members: test_members_kept.py."""

    async def scenario() -> None:
        disk = MemoryDisk()
        asking = door_with_topic(disk)
        assert await commit(asking, 9, committing(asking, 0)) == 0
        await asking.close()

        asking = door_with_topic(disk)
        kept = await committed(asking, 9)
        assert (kept.committed_offset, kept.metadata) == (0, "a note")
        unknown = Error.UNKNOWN_MEMBER_ID
        assert (await asking.ask(JOIN, 9, joining("stranger"))).error_code == unknown
        synced = await asking.ask(SYNC, 5, SyncGroupRequest(GROUP, 1, "stranger"))
        assert synced.error_code == unknown
        left = await asking.ask(
            LEAVE, 5, LeaveGroupRequest(GROUP, members=(MemberIdentity("stranger"),))
        )
        assert [each.error_code for each in left.members] == [unknown]

    run(scenario)


def test_an_answer_that_nobody_waits_for_any_more_harms_nobody() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        await join_alone(asking, rebalance_timeout_ms=5_000, session_timeout_ms=60_000)
        gone = asking.begin(JOIN, 3, joining(rebalance_timeout_ms=5_000))
        await asyncio.sleep(0)
        gone.cancel()
        other = asking.begin(JOIN, 3, joining(rebalance_timeout_ms=5_000))
        await asking.skip(5.1)
        assert (await other).error_code == 0

    run(scenario)
