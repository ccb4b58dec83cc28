"""A node whose clock is set: what lasts for a while goes on, and moments have come."""

from __future__ import annotations

import asyncio

from tests.unit.server.test_idle_node import DAY, Node, commit_positions, open_transaction, play

from headrace.calls import Face
from headrace.core.values import MessageId, Outgoing
from headrace.record import attribute_headers


async def state_of(node: Node, offset: int = 0) -> str:
    status = await node.calls.run(Face.status, MessageId("orders", 0, offset), "billing")
    return str(status.state)


def test_leases_and_delays_do_not_end_because_the_clock_was_set() -> None:
    async def scenario(node: Node) -> None:
        await node.calls.run(Face.create_topic, "orders", partitions=1)
        await node.calls.run(Face.open_queue, "billing", ["orders"], "worker")
        delayed = Outgoing(b"later", headers=attribute_headers(delay_ms=60_000))
        living = Outgoing(b"mortal", headers=attribute_headers(ttl_ms=60_000))
        await node.calls.run(Face.publish, "orders", [Outgoing(b"now"), delayed, living])
        leased = await node.calls.run(
            Face.lease, "billing", ["orders"], "worker", 1, visibility_ms=30_000
        )
        assert len(leased) == 1
        for jump in (3_600, -7_200, 40 * DAY, -80 * DAY):
            node.clock.jump(jump)
            assert await state_of(node) == "leased"
            assert await state_of(node, 1) == "delayed"
            assert await state_of(node, 2) == "pending"
        node.clock.skip(30)
        assert await state_of(node) == "pending"
        node.clock.skip(30)
        assert await state_of(node, 1) == "pending"
        assert await state_of(node, 2) == "expired"

    play(scenario)


def test_a_group_that_comes_after_the_clock_was_set_waits_as_long_as_the_others() -> None:
    async def scenario(node: Node) -> None:
        await node.calls.run(Face.create_topic, "orders", partitions=1)
        await node.calls.run(Face.open_queue, "early", ["orders"], "worker")
        delayed = Outgoing(b"later", headers=attribute_headers(delay_ms=60_000))
        await node.calls.run(Face.publish, "orders", [delayed])
        node.clock.jump(3_600)
        settings = {"start": "earliest"}
        await node.calls.run(Face.open_queue, "billing", ["orders"], "worker", settings)
        assert await state_of(node) == "delayed"
        listed = await node.calls.run(Face.delayed, "orders")
        assert [each.deliver_at_ms - node.clock.now_ms() for each in listed] == [60_000]
        node.clock.skip(60)
        assert await state_of(node) == "pending"

    play(scenario)


def test_ids_are_known_as_long_as_they_are_to_be() -> None:
    async def publish(node: Node, offset: int, *, again: bool) -> None:
        once = Outgoing(b"once", headers=attribute_headers(dedup_id=b"one"))
        (published,) = await node.calls.run(Face.publish, "orders", [once])
        assert (published.offset, published.duplicate) == (offset, again)

    async def scenario(node: Node) -> None:
        settings = {"dedup": True, "dedup_window_ms": 60_000}
        await node.calls.run(Face.create_topic, "orders", partitions=1, settings=settings)
        await publish(node, 0, again=False)
        node.clock.skip(30)
        for jump in (3_600, -7_200, 40 * DAY, -80 * DAY):
            node.clock.jump(jump)
            await publish(node, 0, again=True)
        node.clock.skip(29)
        await publish(node, 0, again=True)
        node.clock.skip(1)
        await publish(node, 1, again=False)
        # A machine that slept did not stop its publishers' clocks.
        node.clock.sleep(60)
        await publish(node, 2, again=False)

    play(scenario)


def test_who_waits_is_woken_when_a_moment_has_come_by_a_set_clock() -> None:
    async def scenario(node: Node) -> None:
        await node.calls.run(Face.create_topic, "orders", partitions=1)
        await node.calls.run(Face.open_queue, "billing", ["orders"], "worker")
        moment = node.clock.now_ms() + 3_600_000
        scheduled = Outgoing(b"then", headers=attribute_headers(deliver_at_ms=moment))
        await node.calls.run(Face.publish, "orders", [scheduled])
        woken: list[str] = []
        partitions = [each for each in node.broker.topics if each.topic.name == "orders"]
        node.service.wait_on(partitions, lambda: woken.append("looked"))

        node.clock.jump(3_599)
        node.service._look_at_clock()
        await asyncio.sleep(0)
        assert woken == ["looked"]
        assert await state_of(node) == "delayed"
        node.clock.jump(1)
        assert await state_of(node) == "pending"

    play(scenario)


def test_transactions_last_as_long_as_they_may_whatever_the_clock_shows() -> None:
    async def scenario(node: Node) -> None:
        await commit_positions(node, 1)
        await open_transaction(node, "payments", 60_000)
        for jump in (3_600, -7_200):
            node.clock.jump(jump)
            node.service.duties.see_to_all()
            assert node.broker.transactions.unfinished()
        node.clock.skip(60)
        node.service.duties.see_to_all()
        await node.settle()
        assert not node.broker.transactions.unfinished()

    play(scenario)


def test_a_clock_that_is_a_month_ahead_for_a_moment_costs_no_positions() -> None:
    async def scenario(node: Node) -> None:
        await commit_positions(node, 1)
        node.service.duties.see_to_all()
        node.clock.jump(30 * DAY)
        node.service.duties.see_to_all()
        await node.settle()
        node.clock.jump(-30 * DAY)
        node.service.duties.see_to_all()
        assert node.broker.cursors.groups() == {"readers-0"}

    play(scenario)
