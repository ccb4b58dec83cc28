"""One look over a node: what it counts, whom it lists, and what it leaves out."""

from __future__ import annotations

import asyncio

from tests.unit.server.asking import Asking, run

from headrace.calls import Face
from headrace.core.errors import CorruptLog
from headrace.core.overview_values import GroupTotals, Overview
from headrace.core.values import SPARK_PROGRESS, GroupMember, Outgoing
from headrace.engine.coordinator.values import HeartbeatRequest
from headrace.engine.cursor import Commitment
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.aftermath import Aftermath
from headrace.server.glance import Glance
from headrace.server.leasing import open_leasing
from headrace.server.loop_calls import Calls
from headrace.testing import ManualClock


async def commit(asking: Asking, group: str, offset: int, partition: int, note: str = "") -> None:
    topic = asking.broker.topics.named("orders")
    place = {(topic.id, partition): Commitment(offset, note)}
    written = asking.broker.cursors.commit(group, place, asking.service.clock.now_ms())
    commit = asking.service.commit()
    commit.data.append(written)
    await asking.service.finish(commit)


async def with_orders(asking: Asking) -> Calls:
    calls = Calls(asking.service, door="test")
    await calls.run(Face.create_topic, "orders", partitions=2)
    for partition in range(2):
        await calls.run(Face.publish, "orders", [Outgoing(b"x", partition=partition)] * 10)
    return calls


def group_in(overview: Overview, name: str) -> GroupTotals:
    return next(each for each in overview.groups if each.name == name)


def test_a_partition_without_a_cursor_counts_as_unread_where_the_topic_is_read() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        await with_orders(asking)
        await commit(asking, "audit", 4, 0)
        overview = await Glance(asking.service).overview()
        found = group_in(overview, "audit")
        assert (found.lag, found.delivered, found.topics) == (16, 4, ("orders",))
        assert found.oldest_ms is not None and found.published == 20
        assert overview.topics[-1].lag == 16

    run(scenario)


def test_a_query_on_spark_is_not_called_a_group_without_members_nor_a_sink_a_group() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        await with_orders(asking)
        await commit(asking, "rollup", 4, 0, SPARK_PROGRESS)
        await commit(asking, "audit", 4, 0)
        await commit(asking, "__spark.sink.0", 3, 0)
        overview = await Glance(asking.service).overview()
        assert [each.name for each in overview.groups] == ["audit", "rollup"]
        assert group_in(overview, "rollup").members is None
        assert group_in(overview, "audit").members == 0

    run(scenario)


def test_members_that_only_a_door_knows_of_are_counted_and_their_groups_listed() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        calls = await with_orders(asking)
        await calls.run(Face.join_stream, "audit", ["orders"], "ours", "earliest")
        known = {
            "reader": [GroupMember("reader-1", "app", "::1", (("orders", 0),))],
            # Known here and there.
            "audit": [GroupMember("ours", "", ""), GroupMember("theirs", "", "")],
        }
        asking.service.group_lists.append(lambda: list(known))
        asking.service.member_lists.append(lambda group: known.get(group, []))
        overview = await Glance(asking.service).overview()
        reader = group_in(overview, "reader")
        # It has committed nothing; where it began is its own affair.
        assert (reader.members, reader.topics, reader.lag) == (1, ("orders",), 0)
        assert group_in(overview, "audit").members == 2
        listed = {each.name: each for each in await calls.run(Face.groups)}
        assert listed["reader"].consumers == ("reader-1",)
        assert listed["reader"] == await calls.run(Face.group, "reader")

    run(scenario)


def test_damage_to_our_own_notes_is_seen_as_well() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        await with_orders(asking)
        await commit(asking, "audit", 4, 0)
        notes = asking.broker.topics.catalog.topics["__cursors"]
        [partition] = asking.broker.topics.partitions(notes)
        partition.stop(CorruptLog("stored bytes are damaged"))
        overview = await Glance(asking.service).overview()
        kinds = {each.name: (each.kind, each.stopped) for each in overview.topics}
        assert kinds == {"__cursors": ("internal", 1), "orders": ("topic", 0)}

    run(scenario)


def test_a_client_that_leases_by_calls_is_counted_while_its_call_waits_or_it_holds_leases() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        calls, aftermath = Calls(asking.service, door="test"), Aftermath()
        await calls.run(Face.create_topic, "orders", partitions=1)
        leasing = await open_leasing(
            calls, aftermath, "work", ["orders"], "http-1", {}, None, stays=False
        )

        async def members() -> int | None:
            listed = [each.id for each in asking.service.members_of("work")]
            counted = group_in(await Glance(asking.service).overview(), "work").members
            assert listed == ["http-1"][:counted]
            return counted

        assert await members() == 0
        waiting = asyncio.ensure_future(leasing.find(1, 30_000))
        await asyncio.sleep(0)
        assert await members() == 1
        await calls.run(Face.publish, "orders", [Outgoing(b"x")])
        [leased] = await waiting
        assert await members() == 1
        await calls.run(Face.ack, "work", [leased.receipt])
        assert await members() == 0

    run(scenario)


def test_a_kafka_group_that_was_heard_of_just_now_is_not_unread() -> None:
    async def scenario() -> None:
        clock = ManualClock(autoskip=False)
        asking = Asking(MemoryDisk(), clock=clock)
        await with_orders(asking)
        await commit(asking, "audit", 4, 0)
        clock.skip(600)
        assert group_in(await Glance(asking.service).overview(), "audit").is_unread
        request = HeartbeatRequest(
            "m", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=("orders",)
        )
        asking.door.groups.consumer_heartbeat("audit", request)
        asking.door.groups.consumer_heartbeat("audit", HeartbeatRequest("m", -1))
        found = group_in(await Glance(asking.service).overview(), "audit")
        assert (found.members, found.is_unread) == (0, False)
        clock.skip(60)
        assert group_in(await Glance(asking.service).overview(), "audit").is_unread

    run(scenario)


def test_what_came_due_is_ready_although_nobody_waits_for_it() -> None:
    async def scenario() -> None:
        clock = ManualClock(autoskip=False)
        asking = Asking(MemoryDisk(), clock=clock)
        calls = await with_orders(asking)
        await calls.run(Face.open_queue, "workers", ["orders"], "ann")
        leased = await calls.run(Face.lease, "workers", ["orders"], "ann", 20)
        receipts = [each.receipt for each in leased]
        await calls.run(Face.nack, "workers", receipts[:5], delay_ms=5_000)
        clock.skip(6)
        found = group_in(await Glance(asking.service).overview(), "workers")
        assert (found.ready, found.retrying, found.leased) == (5, 0, 15)

    run(scenario)
