"""A consumer whose connection broke keeps its leases for a grace, and its receipts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.server.asking import ManualLoop
from tests.unit.server.test_remote_session import GROUP, TOPIC, Client, Node, let_others_run

from headrace.core.errors import StaleReceipt, UnknownTopic
from headrace.core.values import Outgoing
from headrace.server.remote import session

GRACE_SECONDS = 5.0


def on_a_node(scenario: Callable[[Node, ManualLoop], Coroutine[Any, Any, None]]) -> None:
    """Time passes when a scenario says so."""

    async def play() -> None:
        node, loop = Node(), asyncio.get_running_loop()
        assert isinstance(loop, ManualLoop)
        try:
            await scenario(node, loop)
        finally:
            for finish in tuple(node.door.polls):
                finish()
            await let_others_run()
            await node.service.close()
            node.broker.close()

    with asyncio.Runner(loop_factory=ManualLoop) as runner:
        runner.run(play())


async def lease(client: Client, consumer: str = "worker") -> list[Any]:
    found: list[Any] = await client.ask("lease", GROUP, [TOPIC], consumer, 10, None, 0, None)
    return found


async def pass_by(loop: ManualLoop, seconds: float) -> None:
    loop.skipped_seconds += seconds
    await let_others_run()


async def working(node: Node) -> tuple[Client, Any]:
    """A client in the middle of a job."""
    client = await node.client()
    await client.ask("publish", TOPIC, [Outgoing(b"job")])
    [leased] = await lease(client)
    return client, leased


async def back(node: Node, consumer: str = "worker") -> Client:
    """The same client over a new connection: it says again who it is."""
    client = Client(node.door)
    await client.ask("hello", False)
    await client.ask("open_queue", GROUP, [TOPIC], consumer, None)
    return client


def test_a_client_that_comes_back_keeps_its_leases_and_its_receipts_are_good() -> None:
    async def scenario(node: Node, loop: ManualLoop) -> None:
        old, leased = await working(node)
        old.connection.connection_lost(None)
        await pass_by(loop, GRACE_SECONDS - 1)
        new = await back(node)
        await pass_by(loop, 2 * GRACE_SECONDS)
        assert await lease(await back(node, "other"), "other") == []
        assert await new.ask("ack", GROUP, [leased.receipt]) == [None]

    on_a_node(scenario)


def test_what_a_killed_worker_held_comes_back_after_the_grace_and_counts() -> None:
    async def scenario(node: Node, loop: ManualLoop) -> None:
        old, leased = await working(node)
        other = await back(node, "other")
        waiting = other.send("lease", GROUP, [TOPIC], "other", 1, None, 20_000, None)
        old.connection.connection_lost(None)
        await pass_by(loop, GRACE_SECONDS - 0.1)
        assert waiting not in other.answers()
        await pass_by(loop, 0.2)
        [again] = other.answers()[waiting]
        assert again.attempt == 2
        # Whoever comes back later has lost it.
        new = await back(node)
        [outcome] = await new.ask("ack", GROUP, [leased.receipt])
        assert outcome.code == StaleReceipt.code

    on_a_node(scenario)


def test_a_client_that_says_goodbye_gives_back_at_once_and_it_does_not_count() -> None:
    async def scenario(node: Node, loop: ManualLoop) -> None:
        old, _ = await working(node)
        await old.ask("leave", GROUP, "worker")
        old.connection.connection_lost(None)
        [again] = await lease(await back(node, "other"), "other")
        assert again.attempt == 1

    on_a_node(scenario)


def test_a_connection_that_lives_on_beside_its_successor_takes_nothing_away() -> None:
    async def scenario(node: Node, loop: ManualLoop) -> None:
        old, leased = await working(node)
        # Half open: the node does not know that the client has given it up.
        waiting = old.send("lease", GROUP, [TOPIC], "worker", 10, None, 20_000, 9)
        await let_others_run()
        new = await back(node)
        await let_others_run()
        assert old.answers()[waiting] == []
        old.connection.connection_lost(None)
        await pass_by(loop, 2 * GRACE_SECONDS)
        assert await new.ask("ack", GROUP, [leased.receipt]) == [None]

    on_a_node(scenario)


def test_without_a_grace_what_a_connection_held_comes_back_at_once() -> None:
    async def scenario(node: Node, loop: ManualLoop) -> None:
        node.service.lease_grace_ms = 0
        old, _ = await working(node)
        old.connection.connection_lost(None)
        [again] = await lease(await back(node, "other"), "other")
        assert again.attempt == 2

    on_a_node(scenario)


def test_a_queue_that_is_opened_too_late_for_its_connection_takes_nothing_from_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(node: Node, loop: ManualLoop) -> None:
        first, leased = await working(node)
        first.connection.connection_lost(None)
        held = asyncio.Event()

        async def hold(*_: Any) -> None:
            await held.wait()

        with monkeypatch.context() as slow:
            slow.setattr(session, "scan_ahead", hold)
            late = Client(node.door)
            late.send("open_queue", GROUP, [TOPIC], "worker", None)
            await let_others_run()
        late.connection.connection_lost(None)
        new = await back(node)
        held.set()
        await let_others_run()
        await pass_by(loop, 2 * GRACE_SECONDS)
        assert await new.ask("ack", GROUP, [leased.receipt]) == [None]

    on_a_node(scenario)


@pytest.mark.parametrize("breaks", ["before", "while it comes back"])
def test_a_client_that_comes_back_in_time_keeps_its_leases_however_long_its_queue_takes_to_open(
    monkeypatch: pytest.MonkeyPatch, breaks: str
) -> None:
    async def scenario(node: Node, loop: ManualLoop) -> None:
        old, leased = await working(node)
        if breaks == "before":
            old.connection.connection_lost(None)
            await pass_by(loop, GRACE_SECONDS - 0.1)
        held = asyncio.Event()

        async def hold(*_: Any) -> None:
            await held.wait()

        monkeypatch.setattr(session, "scan_ahead", hold)
        new = Client(node.door)
        opened = new.send("open_queue", GROUP, [TOPIC], "worker", None)
        await let_others_run()
        if breaks == "while it comes back":
            old.connection.connection_lost(None)
        await pass_by(loop, 3 * GRACE_SECONDS)
        held.set()
        await let_others_run()
        assert opened in new.answers()
        await pass_by(loop, 3 * GRACE_SECONDS)
        assert await new.ask("ack", GROUP, [leased.receipt]) == [None]

    on_a_node(scenario)


def test_a_client_that_comes_back_keeps_its_leases_although_one_of_its_topics_is_gone() -> None:
    async def scenario(node: Node, loop: ManualLoop) -> None:
        old, leased = await working(node)
        old.connection.connection_lost(None)
        await pass_by(loop, GRACE_SECONDS - 0.1)
        new = Client(node.door)
        with pytest.raises(UnknownTopic):
            await new.ask("open_queue", GROUP, [TOPIC, "gone"], "worker", None)
        await pass_by(loop, 3 * GRACE_SECONDS)
        assert await lease(await back(node, "other"), "other") == []
        # They are its own until its connection breaks.
        new.connection.connection_lost(None)
        await pass_by(loop, GRACE_SECONDS + 0.1)
        [again] = await lease(await back(node, "other"), "other")
        assert (again.offset, again.attempt) == (leased.offset, 2)

    on_a_node(scenario)
