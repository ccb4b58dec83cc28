"""Instances of a Kafka Streams application after a restart of the node: they keep their tasks.

A restart is a loss of power: the disk keeps what was synced, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.server.asking import run
from tests.unit.server.streams_door import (
    APP,
    CHANGELOG,
    TOPIC,
    Streaming,
    Tasks,
    shown,
    task_ids,
)

from headrace.engine.broker import Broker
from headrace.engine.coordinator.stored import TOPOLOGY_KEY, TopologyRecord, Unwritten
from headrace.engine.coordinator.streams.values import Topology
from headrace.engine.cursor import Cursors
from headrace.platform.entropy import SystemEntropy
from headrace.server.kafka.errors import Error
from headrace.testing.fault_disk import FaultDisk
from headrace.wire.kafka.generated.delete_groups_request import DeleteGroupsRequest
from headrace.wire.kafka.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.kafka.generated.streams_group_heartbeat_request import Endpoint

OFFSET_COMMIT, DELETE = 8, 42
MISSING_INTERNAL = 3
EVERYTHING: Tasks = {"0": (0, 1), "1": (0, 1)}


async def cut_off(asking: Streaming, disk: FaultDisk) -> FaultDisk:
    """The power goes; what the disk has kept."""
    # What nobody waits for is on its way.
    while not asking.service.commits.is_idle:
        await asyncio.sleep(0)
    left = disk.crash(lambda states: 0)
    await asking.close()
    return left


async def restarted(asking: Streaming, disk: FaultDisk) -> tuple[Streaming, FaultDisk]:
    left = await cut_off(asking, disk)
    return Streaming(disk=left), left


def owning(tasks: Tasks) -> dict[str, Any]:
    return {"active_tasks": task_ids(tasks), "standby_tasks": (), "warmup_tasks": ()}


async def commit(asking: Streaming, member: str, epoch: int) -> int:
    partition = OffsetCommitRequestPartition(0, 5)
    topic = OffsetCommitRequestTopic(TOPIC, partitions=(partition,))
    asked = OffsetCommitRequest(APP, epoch, member, topics=(topic,))
    [answered] = (await asking.ask(OFFSET_COMMIT, 9, asked)).topics
    error: int = answered.partitions[0].error_code
    return error


def test_an_instance_goes_on_with_its_tasks() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = Streaming(disk=disk)
        before = await asking.settled()
        was = await asking.describe()

        asking, _ = await restarted(asking, disk)
        # What was read before is committed, with the epoch of before.
        assert await commit(asking, "m1", before.member_epoch) == Error.NONE
        again = await asking.beat("m1", before.member_epoch)
        assert (again.error_code, again.active_tasks, again.status) == (0, None, ())
        assert again.member_epoch > before.member_epoch
        assert await commit(asking, "m1", before.member_epoch) == Error.NONE
        group = await asking.describe()
        assert (group.group_state, group.topology) == ("Stable", was.topology)
        [member], [known] = group.members, was.members
        assert member == known._replace(member_epoch=again.member_epoch)
        assert shown(member.assignment.active_tasks) == EVERYTHING

    run(scenario)


def test_no_task_is_given_to_a_second_instance_before_the_first_let_go_of_it() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = Streaming(disk=disk)
        first = await asking.settled()
        second = await asking.join("m2")
        await asking.skip(2)
        told = await asking.beat("m1", first.member_epoch, **owning(EVERYTHING))
        kept = shown(told.active_tasks)
        assert 0 < sum(map(len, kept.values())) < 4

        asking, _ = await restarted(asking, disk)
        second = await asking.beat("m2", second.member_epoch, **owning({}))
        assert (second.error_code, second.active_tasks) == (0, None)
        first = await asking.beat("m1", told.member_epoch, **owning(kept))
        assert first.error_code == 0
        second = await asking.beat("m2", second.member_epoch, **owning({}))
        given = shown(second.active_tasks)
        every = [(name, number) for part in (kept, given) for name in part for number in part[name]]
        assert sorted(every) == [("0", 0), ("0", 1), ("1", 0), ("1", 1)]

    run(scenario)


def test_an_instance_that_waited_for_its_first_tasks_gets_them_after_the_restart() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = Streaming(disk=disk)
        first = await asking.settled()
        second = await asking.join("m2")
        assert shown(second.active_tasks) == {}, "a target was made just now"
        asking, _ = await restarted(asking, disk)
        first = await asking.beat("m1", first.member_epoch, **owning(EVERYTHING))
        kept = shown(first.active_tasks)
        assert sum(map(len, kept.values())) == 2
        await asking.beat("m1", first.member_epoch, **owning(kept))
        second = await asking.beat("m2", second.member_epoch, **owning({}))
        assert sum(map(len, shown(second.active_tasks).values())) == 2

    run(scenario)


def test_an_instance_that_is_gone_is_missed_a_session_after_the_restart() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = Streaming(disk=disk)
        await asking.settled()
        asking, left = await restarted(asking, disk)
        await asking.skip(44.9)
        assert len((await asking.describe()).members) == 1
        await asking.skip(0.2)
        assert (await asking.describe()).group_state == "Empty"
        # That it went is on record: it is not there after another restart.
        asking, _ = await restarted(asking, left)
        assert (await asking.describe()).error_code == Error.GROUP_ID_NOT_FOUND

    run(scenario)


def test_an_application_without_instances_costs_nothing() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = Streaming(disk=disk)
        for _ in range(2):
            assert (await asking.join()).error_code == 0
            assert (await asking.beat("m1", -1)).error_code == 0
        left = await cut_off(asking, disk)
        cursors = Broker(left, SystemEntropy(), 0).cursors
        assert not cursors.memberships.members(APP)

    run(scenario)


def test_a_topology_of_which_no_member_was_written_is_forgotten() -> None:
    """Where writing was cut short, and so was not answered."""

    async def scenario() -> None:
        disk = FaultDisk()
        asking = Streaming(disk=disk)
        alone: Unwritten = {TOPOLOGY_KEY: TopologyRecord(Topology(0, ()), 0)}
        commit = asking.service.commit()
        commit.data.append(asking.broker.cursors.write_members(APP, alone, 0))
        await asking.service.finish(commit)
        asking, left = await restarted(asking, disk)
        assert (await asking.describe()).error_code == Error.GROUP_ID_NOT_FOUND
        await asking.close()
        assert not Broker(left, SystemEntropy(), 0).cursors.memberships.members(APP)

    run(scenario)


def test_instances_are_told_all_endpoints_after_a_restart() -> None:
    """Epochs of before mean nothing to the node any more, also where they are equal."""

    async def scenario() -> None:
        disk = FaultDisk()
        asking = Streaming(disk=disk)
        joined = await asking.join(user_endpoint=Endpoint("host", 8080))
        await asking.skip(4)
        before = await asking.beat("m1", joined.member_epoch)
        known = before.endpoint_information_epoch
        asking, _ = await restarted(asking, disk)
        for number in range(known + 1):
            again = await asking.join(f"other{number}", user_endpoint=Endpoint("h", number))
            assert again.error_code == 0
            if again.endpoint_information_epoch == known:
                break
        told = await asking.beat("m1", before.member_epoch, endpoint_information_epoch=known)
        assert len(told.partitions_by_user_endpoint) > 1
        known = told.endpoint_information_epoch
        quiet = await asking.beat("m1", told.member_epoch, endpoint_information_epoch=known)
        assert quiet.partitions_by_user_endpoint is None

    run(scenario)


def test_topics_that_went_while_the_node_was_down_are_missed() -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = Streaming(disk=disk)
        before = await asking.settled()
        left = await cut_off(asking, disk)
        broker = Broker(left, SystemEntropy(), 0)
        broker.topics.delete(broker.topics.named(CHANGELOG), 0)
        broker.close()
        asking = Streaming(disk=left)
        told = await asking.beat("m1", before.member_epoch, **owning(EVERYTHING))
        assert [each.status_code for each in told.status] == [MISSING_INTERNAL]
        assert CHANGELOG in asking.broker.topics.catalog.topics, "made anew"

    run(scenario)


def test_a_deleted_application_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it could not be written that its last instance left."""

    async def scenario() -> None:
        def full(*args: object) -> None:
            raise OSError(28, "No space left on device")

        disk = FaultDisk()
        asking = Streaming(disk=disk)
        await asking.settled()
        monkeypatch.setattr(Cursors, "write_members", full)
        await asking.beat("m1", -1)
        monkeypatch.undo()
        [deleted] = (await asking.ask(DELETE, 2, DeleteGroupsRequest((APP,)))).results
        assert deleted.error_code == Error.NONE
        asking, _ = await restarted(asking, disk)
        assert (await asking.describe()).error_code == Error.GROUP_ID_NOT_FOUND

    run(scenario)


def test_where_nothing_can_be_written_instances_go_on_and_nobody_joins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        def full(*args: object) -> None:
            raise OSError(28, "No space left on device")

        disk = FaultDisk()
        asking = Streaming(disk=disk)
        first = await asking.settled()
        monkeypatch.setattr(Cursors, "write_members", full)
        assert (await asking.beat("m1", first.member_epoch)).error_code == 0
        refused = await asking.join("m2")
        assert refused.error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert refused.active_tasks is None
        monkeypatch.undo()
        second = await asking.join("m2")
        assert second.error_code == 0
        asking, _ = await restarted(asking, disk)
        assert (await asking.beat("m1", first.member_epoch)).error_code == 0
        assert (await asking.beat("m2", second.member_epoch)).error_code == 0

    run(scenario)
