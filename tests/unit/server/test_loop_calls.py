"""The calls on an event loop: what they answer, and when whoever waits is woken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.calls import Face
from headrace.core.errors import UnknownTopic
from headrace.core.values import Delivery, MessageId, Outgoing
from headrace.engine.broker import Broker
from headrace.platform.entropy import SystemEntropy
from headrace.server.loop_calls import Calls, Watch
from headrace.server.service import Service
from headrace.server.waiting import Sought
from headrace.testing import ManualClock, MemoryDisk

GROUP, TOPIC, WORKER = "billing", "orders", "worker-1"
WAIT_MS = 30_000


class Served:
    """A broker in memory on this loop, with one topic and one queue group."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        disk, entropy = MemoryDisk(), SystemEntropy()
        self.broker = Broker(disk, entropy, self.clock.now_ms())
        self.service = Service(
            self.broker, disk, self.clock, entropy, node_id=1, cluster_id="cluster"
        )
        self.calls = Calls(self.service)
        self.run = self.calls.run

    async def make(self, **settings: Any) -> None:
        await self.run(Face.create_topic, TOPIC, partitions=1)
        await self.run(Face.open_queue, GROUP, [TOPIC], WORKER, {"backoff_ms": 0, **settings})

    async def publish(self, *values: bytes) -> None:
        await self.run(Face.publish, TOPIC, [Outgoing(value) for value in values])

    async def lease(self, count: int = 10) -> list[Delivery]:
        return await self.run(Face.lease, GROUP, [TOPIC], WORKER, count)

    async def wait_for_lease(self) -> list[Delivery]:
        sought = Sought(self.service, [TOPIC])
        return await self.service.waiting.find(
            GROUP, sought, lambda among: self.lease(), WAIT_MS / 1000
        )


def on_a_loop(
    scenario: Callable[[Served], Coroutine[Any, Any, None]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    async def play() -> None:
        served = Served()
        try:
            async with asyncio.timeout(60):
                await scenario(served)
        finally:
            await served.service.close()
            served.broker.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(play())


async def let_others_run() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_what_is_published_is_leased_and_acked() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        await served.publish(b"one", b"two")
        leased = await served.lease()
        assert [each.value for each in leased] == [b"one", b"two"]
        outcomes = await served.run(Face.ack, GROUP, [each.receipt for each in leased])
        assert outcomes == [None, None]
        status = await served.run(Face.status, MessageId(TOPIC, 0, 0), GROUP)
        assert status.state == "acked"

    on_a_loop(scenario)


def test_an_error_of_a_call_is_raised_where_it_is_awaited() -> None:
    async def scenario(served: Served) -> None:
        with pytest.raises(UnknownTopic, match="orders"):
            await served.publish(b"one")

    on_a_loop(scenario)


def test_a_topic_is_made_by_the_first_publish_where_that_is_wanted() -> None:
    async def scenario(served: Served) -> None:
        with pytest.raises(UnknownTopic):
            await served.run(Face.publish, TOPIC, [Outgoing(b"one")])
        served.service.broker.topics.auto_create_partitions = 2
        declining = Calls(served.service, auto_create=False)
        with pytest.raises(UnknownTopic):
            await declining.run(Face.publish, TOPIC, [Outgoing(b"one")])
        await served.run(Face.publish, TOPIC, [Outgoing(b"one")])
        assert [each.name for each in await served.run(Face.topics)] == [TOPIC]

    on_a_loop(scenario)


def test_what_was_given_up_by_time_is_among_the_dead_letters_when_one_looks() -> None:
    async def scenario(served: Served) -> None:
        await served.make(max_attempts=1, visibility_ms=1_000)
        await served.publish(b"one")
        await served.lease()
        served.clock.skip(2)
        letters = await served.run(Face.dead_letters, TOPIC)
        assert [each.value for each in letters] == [b"one"]

    on_a_loop(scenario)


def test_a_lease_sees_what_the_end_of_another_message_sets_free() -> None:
    async def scenario(served: Served) -> None:
        await served.run(Face.create_topic, TOPIC, partitions=1, settings={"ordering": "partition"})
        settings = {"max_attempts": 1, "visibility_ms": 1_000}
        await served.run(Face.open_queue, GROUP, [TOPIC], WORKER, settings)
        await served.publish(b"one", b"two")
        assert [each.value for each in await served.lease(1)] == [b"one"]
        served.clock.skip(2)
        assert [each.value for each in await served.lease(1)] == [b"two"]

    on_a_loop(scenario)


def test_a_waiting_lease_is_woken_by_a_publish_and_by_a_release() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        waiting = asyncio.ensure_future(served.wait_for_lease())
        await let_others_run()
        assert not waiting.done()
        await served.publish(b"one")
        [leased] = await waiting
        waiting = asyncio.ensure_future(served.wait_for_lease())
        await let_others_run()
        assert not waiting.done()
        await served.run(Face.release, GROUP, [leased.receipt])
        assert [each.value for each in await waiting] == [b"one"]

    on_a_loop(scenario)


def test_a_watch_hears_of_publishes_and_of_changes_and_of_nothing_after_its_end() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        with Watch(served.service, [TOPIC, "missing"]) as watch:
            assert not await watch.wait(0)
            await served.publish(b"one")
            assert await watch.wait(60)
            watch.news.clear()
            await served.run(Face.create_topic, "missing")
            assert await watch.wait(60)
            watch.news.clear()
        await served.publish(b"two")
        await served.run(Face.delete_topic, "missing")
        assert not watch.news.is_set()

    on_a_loop(scenario)


def test_a_deleted_topic_is_gone_with_its_files() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        await served.publish(b"one")
        with Watch(served.service, [TOPIC]) as watch:
            await served.run(Face.delete_topic, TOPIC)
            assert watch.news.is_set()
        assert await served.run(Face.topics) == []
        await served.make()
        assert await served.lease() == []

    on_a_loop(scenario)
