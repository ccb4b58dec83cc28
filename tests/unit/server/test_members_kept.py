"""Members of groups after a restart of the node: they go on, as with Kafka.

A restart is a loss of power: the disk keeps what was synced, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.server.asking import Asking, run
from tests.unit.server.test_groups import (
    CONSUMER_DESCRIBE,
    CONSUMER_HEARTBEAT,
    GROUP,
    HEARTBEAT,
    JOIN,
    LEAVE,
    SYNC,
    TOPIC,
    commit,
    committing,
    door_with_topic,
    heart,
    join_alone,
    joining,
)

from headrace.engine.broker import Broker
from headrace.engine.coordinator.assignment_bytes import encode_assignment
from headrace.engine.cursor import Commitment, Cursors
from headrace.platform.entropy import SystemEntropy
from headrace.server.kafka.errors import Error
from headrace.testing.fault_disk import FaultDisk
from headrace.wire.kafka.embedded import encode_subscription
from headrace.wire.kafka.generated.consumer_group_describe_request import (
    ConsumerGroupDescribeRequest,
)
from headrace.wire.kafka.generated.consumer_group_heartbeat_request import TopicPartitions
from headrace.wire.kafka.generated.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from headrace.wire.kafka.generated.describe_groups_request import DescribeGroupsRequest
from headrace.wire.kafka.generated.heartbeat_request import HeartbeatRequest
from headrace.wire.kafka.generated.join_group_request import JoinGroupRequestProtocol
from headrace.wire.kafka.generated.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.kafka.generated.sync_group_request import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

DESCRIBE = 15
NAME = "till-7"


async def restarted(asking: Asking, disk: FaultDisk) -> tuple[Asking, FaultDisk]:
    # What nobody waits for is on its way.
    while not asking.service.commits.is_idle:
        await asyncio.sleep(0)
    left = disk.crash(lambda states: 0)
    await asking.close()
    return door_with_topic(left), left


async def beat(asking: Asking, joined: Any, instance: str | None = None) -> int:
    asked = HeartbeatRequest(GROUP, joined.generation_id, joined.member_id, instance)
    error: int = (await asking.ask(HEARTBEAT, 4, asked)).error_code
    return error


async def described(asking: Asking) -> Any:
    [group] = (await asking.ask(DESCRIBE, 5, DescribeGroupsRequest((GROUP,)))).groups
    return group


async def consume(asking: Asking, member: str, epoch: int, **changes: Any) -> Any:
    return await asking.ask(CONSUMER_HEARTBEAT, 1, heart(member, epoch, **changes))


def subscribing() -> tuple[JoinGroupRequestProtocol, ...]:
    said = ConsumerProtocolSubscription((TOPIC,), None, ())
    return (JoinGroupRequestProtocol("range", encode_subscription(1, said)),)


def assigned(partitions: list[int]) -> bytes:
    return encode_assignment(1, [(TOPIC, number) for number in partitions])


def partitions_of(assignment: Any) -> list[int]:
    return [number for topic in assignment.topic_partitions for number in topic.partitions]


# The classic protocol.


def test_a_member_goes_on_with_its_generation_and_its_part() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = door_with_topic(disk)
        joined = await join_alone(asking)
        before = await described(asking)

        asking, _ = await restarted(asking, disk)
        after = await described(asking)
        assert (after.group_state, after.protocol_data) == ("Stable", "range")
        assert after.members == before.members
        assert await beat(asking, joined) == Error.NONE
        assert (
            await commit(asking, 9, committing(asking, 5, joined.member_id, joined.generation_id))
            == Error.NONE
        )
        again = SyncGroupRequest(GROUP, joined.generation_id, joined.member_id)
        assert (await asking.ask(SYNC, 5, again)).assignment == b"my part"
        left = LeaveGroupRequest(GROUP, members=(MemberIdentity(joined.member_id),))
        await asking.ask(LEAVE, 5, left)
        assert (await described(asking)).members == ()

    run(scenario)


def test_who_had_not_been_given_its_part_joins_again() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = door_with_topic(disk)
        joined = await asking.ask(JOIN, 3, joining())
        assert joined.error_code == Error.NONE
        asking, _ = await restarted(asking, disk)
        assert await beat(asking, joined) == Error.UNKNOWN_MEMBER_ID
        await join_alone(asking)

    run(scenario)


def test_a_rebalance_that_was_cut_short_begins_anew_from_the_last_generation() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = door_with_topic(disk)
        first = await join_alone(asking, 3)
        waiting = asking.begin(JOIN, 3, joining())
        assert await beat(asking, first) == Error.REBALANCE_IN_PROGRESS
        again = await asking.ask(JOIN, 3, joining(first.member_id))
        second = await waiting
        assert again.generation_id == second.generation_id == first.generation_id + 1

        asking, _ = await restarted(asking, disk)
        assert await beat(asking, again) == Error.ILLEGAL_GENERATION
        assert await beat(asking, second) == Error.UNKNOWN_MEMBER_ID
        assert await beat(asking, first) == Error.NONE
        assert (await asking.ask(JOIN, 3, joining(first.member_id))).error_code == Error.NONE

    run(scenario)


def test_a_member_that_is_gone_is_missed_a_session_after_the_restart() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = door_with_topic(disk)
        await join_alone(asking)
        asking, left = await restarted(asking, disk)
        await asking.skip(9.9)
        assert len((await described(asking)).members) == 1
        await asking.skip(0.2)
        assert (await described(asking)).group_state == "Empty"
        # That it went is on record: it is not there after another restart.
        asking, _ = await restarted(asking, left)
        assert (await described(asking)).group_state == "Dead"

    run(scenario)


def test_a_static_member_that_restarts_with_the_node_keeps_its_part() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = door_with_topic(disk)
        joined = await join_alone(asking, group_instance_id=NAME)
        asking, left = await restarted(asking, disk)
        back = await asking.ask(JOIN, 9, joining(group_instance_id=NAME))
        assert (back.error_code, back.generation_id) == (0, joined.generation_id)
        assert back.skip_assignment
        synced = await asking.ask(
            SYNC, 5, SyncGroupRequest(GROUP, back.generation_id, back.member_id, NAME)
        )
        assert synced.assignment == b"my part"
        # Its new id is the one that counts from now on.
        asking, _ = await restarted(asking, left)
        assert await beat(asking, back, NAME) == Error.NONE
        assert await beat(asking, joined, NAME) == Error.FENCED_INSTANCE_ID

    run(scenario)


def test_a_group_of_large_members_is_kept_whole() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = door_with_topic(disk)
        members = [f"member-{number}" for number in range(5)]
        joined = await join_alone(asking)
        parts = tuple(
            SyncGroupRequestAssignment(joined.member_id, bytes([number]) * 400_000)
            for number in range(len(members))
        )
        again = SyncGroupRequest(GROUP, joined.generation_id, joined.member_id, assignments=parts)
        assert (await asking.ask(JOIN, 9, joining(joined.member_id))).generation_id == 2
        synced = await asking.ask(SYNC, 5, again._replace(generation_id=2))
        assert len(synced.assignment) == 400_000
        asking, _ = await restarted(asking, disk)
        kept = await asking.ask(SYNC, 5, SyncGroupRequest(GROUP, 2, joined.member_id))
        assert kept.assignment == synced.assignment

    run(scenario)


# The consumer protocol.


def test_a_member_with_assignment_by_the_broker_goes_on_with_its_epoch() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = door_with_topic(disk)
        joined = await consume(asking, "ann", 0)
        held = joined.assignment.topic_partitions
        assert partitions_of(joined.assignment) == [0, 1, 2]

        asking, _ = await restarted(asking, disk)
        epoch = joined.member_epoch
        owned = tuple(TopicPartitions(*each) for each in held)
        again = await consume(asking, "ann", epoch, topic_partitions=owned)
        assert (again.error_code, again.member_epoch, again.assignment) == (0, epoch, None)
        assert await commit(asking, 9, committing(asking, 5, "ann", epoch)) == Error.NONE
        request = ConsumerGroupDescribeRequest((GROUP,))
        [group] = (await asking.ask(CONSUMER_DESCRIBE, 1, request)).groups
        assert (group.group_state, group.group_epoch) == ("Stable", epoch)
        [member] = group.members
        assert (member.member_id, member.subscribed_topic_names) == ("ann", (TOPIC,))

    run(scenario)


def test_nobody_gets_what_another_has_not_let_go_of_before_the_restart() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = door_with_topic(disk)
        topic_id = asking.broker.topics.named(TOPIC).id
        everything = (TopicPartitions(topic_id, (0, 1, 2)),)
        ann = await consume(asking, "ann", 0)
        bob = await consume(asking, "bob", 0)
        assert partitions_of(bob.assignment) == []
        told = await consume(asking, "ann", ann.member_epoch, topic_partitions=everything)
        kept = partitions_of(told.assignment)
        assert 0 < len(kept) < 3

        asking, _ = await restarted(asking, disk)
        bob = await consume(asking, "bob", bob.member_epoch, topic_partitions=())
        assert bob.error_code == 0
        assert bob.assignment is None or partitions_of(bob.assignment) == []
        mine = (TopicPartitions(topic_id, tuple(kept)),)
        ann = await consume(asking, "ann", told.member_epoch, topic_partitions=mine)
        assert ann.error_code == 0
        bob = await consume(asking, "bob", bob.member_epoch, topic_partitions=())
        assert sorted(kept + partitions_of(bob.assignment)) == [0, 1, 2]

    run(scenario)


def test_partitions_that_were_added_before_the_restart_are_given_out_after_it() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = door_with_topic(disk)
        joined = await consume(asking, "ann", 0)
        topic = asking.broker.topics.named(TOPIC)
        written = asking.service.commit()
        now_ms = asking.service.clock.now_ms()
        for _ in asking.broker.topic_growth(topic, 4, now_ms, written, break_key_order=False):
            pass
        await asking.service.finish(written)
        asking, _ = await restarted(asking, disk)
        owned = (TopicPartitions(topic.id, (0, 1, 2)),)
        told = await consume(asking, "ann", joined.member_epoch, topic_partitions=owned)
        assert partitions_of(told.assignment) == [0, 1, 2, 3]

    run(scenario)


def test_a_member_that_left_is_not_there_after_a_restart() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = door_with_topic(disk)
        ann = await consume(asking, "ann", 0)
        bob = await consume(asking, "bob", 0)
        assert (await consume(asking, "bob", -1)).error_code == 0
        asking, _ = await restarted(asking, disk)
        assert (await consume(asking, "bob", bob.member_epoch)).error_code == (
            Error.UNKNOWN_MEMBER_ID
        )
        assert (await consume(asking, "ann", ann.member_epoch)).error_code == 0

    run(scenario)


def test_members_of_both_protocols_go_on_together() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = door_with_topic(disk)
        joined = await join_alone(asking, protocols=subscribing())
        mine = (SyncGroupRequestAssignment(joined.member_id, assigned([0, 1, 2])),)
        joined = await asking.ask(JOIN, 9, joining(joined.member_id, protocols=subscribing()))
        await asking.ask(SYNC, 5, SyncGroupRequest(GROUP, 2, joined.member_id, assignments=mine))
        ann = await consume(asking, "ann", 0)
        assert ann.error_code == 0
        asking, _ = await restarted(asking, disk)
        request = ConsumerGroupDescribeRequest((GROUP,))
        [group] = (await asking.ask(CONSUMER_DESCRIBE, 1, request)).groups
        kinds = {each.member_id: each.member_type for each in group.members}
        assert kinds == {"ann": 1, joined.member_id: 0}
        assert (await consume(asking, "ann", ann.member_epoch)).error_code == 0
        assert await beat(asking, joined) == Error.REBALANCE_IN_PROGRESS

    run(scenario)


# What may go wrong.


def test_where_nothing_can_be_written_members_go_on_and_nobody_joins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        def full(*args: object) -> None:
            raise OSError(28, "No space left on device")

        disk = FaultDisk()
        asking = door_with_topic(disk)
        ann = await consume(asking, "ann", 0)
        monkeypatch.setattr(Cursors, "write_members", full)
        assert (await consume(asking, "ann", ann.member_epoch)).error_code == 0
        refused = await consume(asking, "bob", 0)
        assert refused.error_code == Error.COORDINATOR_NOT_AVAILABLE
        monkeypatch.undo()
        bob = await consume(asking, "bob", 0)
        assert bob.error_code == 0
        asking, _ = await restarted(asking, disk)
        assert (await consume(asking, "ann", ann.member_epoch)).error_code == 0
        assert (await consume(asking, "bob", bob.member_epoch)).error_code == 0

    run(scenario)


def test_a_classic_assignment_that_cannot_be_written_is_not_given_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        def full(*args: object) -> None:
            raise OSError(28, "No space left on device")

        asking = door_with_topic(FaultDisk())
        joined = await asking.ask(JOIN, 3, joining())
        mine = (SyncGroupRequestAssignment(joined.member_id, b"my part"),)
        handed_in = SyncGroupRequest(GROUP, 1, joined.member_id, assignments=mine)
        monkeypatch.setattr(Cursors, "write_members", full)
        refused = await asking.ask(SYNC, 3, handed_in)
        assert (refused.error_code, refused.assignment) == (Error.COORDINATOR_NOT_AVAILABLE, b"")
        monkeypatch.undo()
        synced = await asking.ask(SYNC, 3, handed_in)
        assert (synced.error_code, synced.assignment) == (0, b"my part")

    run(scenario)


def test_who_asks_while_a_write_is_under_way_waits_for_it() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = door_with_topic(disk)
        first = asking.begin(CONSUMER_HEARTBEAT, 1, heart("ann", 0))
        again = asking.begin(CONSUMER_HEARTBEAT, 1, heart("ann", 0))
        await asyncio.sleep(0)
        assert not again.done()
        assert (await again).member_epoch == (await first).member_epoch
        asking, _ = await restarted(asking, disk)
        assert (await consume(asking, "ann", (await first).member_epoch)).error_code == 0

    run(scenario)


def test_a_static_member_that_was_away_while_the_node_restarted_gets_its_part_back() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = door_with_topic(disk)
        await consume(asking, "ann", 0, instance_id=NAME)
        assert (await consume(asking, "ann", -2, instance_id=NAME)).error_code == 0
        asking, _ = await restarted(asking, disk)
        back = await consume(asking, "ann again", 0, instance_id=NAME)
        assert (back.error_code, partitions_of(back.assignment)) == (0, [0, 1, 2])
        assert back.member_epoch > 0

    run(scenario)


def test_a_group_that_is_read_without_a_node_is_not_its_members_any_more() -> None:
    """Were they to go on, they would commit what they had read before that."""

    async def scenario() -> None:
        disk = FaultDisk()
        asking = door_with_topic(disk)
        ann = await consume(asking, "ann", 0)
        while not asking.service.commits.is_idle:
            await asyncio.sleep(0)
        left = disk.crash(lambda states: 0)
        await asking.close()
        broker = Broker(left, SystemEntropy(), 0)
        place = (broker.topics.named(TOPIC).id, 0)
        broker.cursors.commit(GROUP, {place: Commitment(0)}, 0)
        broker.close()
        asking = door_with_topic(left)
        unknown = Error.UNKNOWN_MEMBER_ID
        assert (await consume(asking, "ann", ann.member_epoch)).error_code == unknown

    run(scenario)


def test_a_group_without_members_costs_nothing() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = door_with_topic(disk)
        for _ in range(3):
            ann = await consume(asking, "ann", 0)
            await consume(asking, "ann", -1)
        assert ann.error_code == 0
        asking, _ = await restarted(asking, disk)
        assert asking.door.groups.registry.find(GROUP) is None

    run(scenario)


def test_a_group_that_was_made_a_queue_without_a_node_has_no_such_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And a disk that takes nothing does not keep the node from starting."""

    async def scenario() -> None:
        def full(*args: object) -> None:
            raise OSError(28, "No space left on device")

        disk = FaultDisk()
        asking = door_with_topic(disk)
        await consume(asking, "ann", 0)
        while not asking.service.commits.is_idle:
            await asyncio.sleep(0)
        left = disk.crash(lambda states: 0)
        await asking.close()
        broker = Broker(left, SystemEntropy(), 0)
        broker.groups.open(GROUP, [broker.topics.named(TOPIC)], {}, 0, broker.commit())
        broker.close()
        monkeypatch.setattr(Cursors, "write_members", full)
        asking = door_with_topic(left)
        assert asking.door.groups.registry.find(GROUP) is None
        await asking.close()
        monkeypatch.undo()
        asking = door_with_topic(left)
        assert asking.door.groups.registry.find(GROUP) is None
        await asking.close()
        assert not Broker(left, SystemEntropy(), 0).cursors.memberships.members(GROUP)

    run(scenario)
