"""A node that went and came back: who was working goes on, who does not come back is missed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.engine.conftest import copy_of
from tests.unit.server.asking import ManualLoop
from tests.unit.server.share_door import GROUP as SHARED_GROUP
from tests.unit.server.share_door import Shared
from tests.unit.server.test_lease_grace import GRACE_SECONDS, back, lease, pass_by, working
from tests.unit.server.test_remote_session import GROUP, TOPIC, Client, Node, let_others_run

from headrace.calls import Face
from headrace.core.errors import StaleReceipt
from headrace.core.values import Outgoing
from headrace.engine.grant import SOCKET, STREAM
from headrace.server.loop_calls import Calls
from headrace.server.orphans import Orphans


def over_a_restart(
    before: Callable[[Node], Coroutine[Any, Any, Any]],
    after: Callable[[Node, ManualLoop, Any], Coroutine[Any, Any, None]],
    *,
    kill: bool,
) -> None:
    """`after` is given what `before` returned, and the node that came after the first."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ManualLoop)
        first = Node()
        left = await before(first)
        disk = copy_of(first.disk)
        await end(first)
        again = Node(disk if kill else first.disk)
        try:
            await after(again, loop, left)
        finally:
            await end(again)

    with asyncio.Runner(loop_factory=ManualLoop) as runner:
        runner.run(play())


async def end(node: Node) -> None:
    node.service.begin_closing()
    for connection in tuple(node.door.connections):
        connection.connection_lost(None)
    for finish in tuple(node.door.polls):
        finish()
    await let_others_run()
    await node.service.close()
    node.broker.close()


both_ways = pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped"])


@both_ways
def test_a_client_that_comes_back_keeps_its_leases_and_its_receipts_are_good(kill: bool) -> None:
    async def after(node: Node, loop: ManualLoop, left: tuple[Client, Any]) -> None:
        _, leased = left
        await pass_by(loop, GRACE_SECONDS - 1)
        new = await back(node)
        await pass_by(loop, 2 * GRACE_SECONDS)
        assert await lease(await back(node, "other"), "other") == []
        assert await new.ask("ack", GROUP, [leased.receipt]) == [None]

    over_a_restart(working, after, kill=kill)


@both_ways
def test_what_a_client_held_that_does_not_come_back_ends_after_the_grace_and_counts(
    kill: bool,
) -> None:
    async def after(node: Node, loop: ManualLoop, left: tuple[Client, Any]) -> None:
        _, leased = left
        other = await back(node, "other")
        waiting = other.send("lease", GROUP, [TOPIC], "other", 1, None, 20_000, None)
        await pass_by(loop, GRACE_SECONDS - 0.1)
        assert waiting not in other.answers()
        await pass_by(loop, 0.2)
        [again] = other.answers()[waiting]
        assert again.attempt == 2
        new = await back(node)
        [outcome] = await new.ask("ack", GROUP, [leased.receipt])
        assert outcome.code == StaleReceipt.code

    over_a_restart(working, after, kill=kill)


@both_ways
def test_a_lease_of_no_connection_stands_until_its_deadline(kill: bool) -> None:
    async def before(node: Node) -> Any:
        client = await node.client()
        await client.ask("publish", TOPIC, [Outgoing(b"job")])
        [leased] = await Calls(node.service).run(Face.lease, GROUP, [TOPIC], "http-1", 10)
        return leased

    async def after(node: Node, loop: ManualLoop, leased: Any) -> None:
        await pass_by(loop, 2 * GRACE_SECONDS)
        client = await back(node, "other")
        assert await lease(client, "other") == []
        assert await client.ask("ack", GROUP, [leased.receipt]) == [None]

    over_a_restart(before, after, kill=kill)


@pytest.mark.parametrize("tie", [SOCKET, STREAM])
def test_each_door_waits_for_its_own(tie: int) -> None:
    """The SDK's door does not end what a WebSocket or a `Consume` stream held."""

    async def before(node: Node) -> Any:
        client = await node.client()
        await client.ask("publish", TOPIC, [Outgoing(b"job")])
        [leased] = await Calls(node.service).run(Face.lease, GROUP, [TOPIC], "ws-1", 10, tie=tie)
        return leased

    async def after(node: Node, loop: ManualLoop, leased: Any) -> None:
        own = Orphans(Calls(node.service), tie)
        assert own.is_waited_for(GROUP, "ws-1")
        assert not node.service.holdings.orphans.is_waited_for(GROUP, "ws-1")  # type: ignore[union-attr]
        await own.come_back(GROUP, "ws-1", [leased.receipt])
        await pass_by(loop, 2 * GRACE_SECONDS)
        assert await lease(await back(node, "other"), "other") == []

    over_a_restart(before, after, kill=True)


def test_what_a_share_consumer_held_comes_back_with_the_node_and_counts() -> None:
    async def play() -> None:
        shared = Shared()
        await shared.publish(b"job")
        await shared.beat()
        topic = shared.topic
        group = shared.broker.groups.named(SHARED_GROUP)
        now_ms = shared.service.clock.now_ms()
        places = shared.broker.topics.partitions(topic)
        [acquired] = shared.broker.sharing.acquire(group, places, "m1", 10, 10**6, now_ms)
        assert acquired.ranges == [(0, 1, 1)]
        disk = copy_of(shared.service.disk)  # type: ignore[arg-type]
        await shared.close()
        node = Node(disk)
        again = node.broker.topics.partitions(node.broker.topics.named(topic.name))
        group = node.broker.groups.named(SHARED_GROUP)
        now_ms = node.service.clock.now_ms()
        [acquired] = node.broker.sharing.acquire(group, again, "m2", 10, 10**6, now_ms)
        assert acquired.ranges == [(0, 1, 2)]
        await end(node)

    with asyncio.Runner(loop_factory=ManualLoop) as runner:
        runner.run(play())
