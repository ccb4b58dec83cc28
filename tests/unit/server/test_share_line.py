"""Share consumers beside others: who gets the next message, and what a dead one leaves."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.server.asking import run
from tests.unit.server.share_door import GROUP, TOPIC, Shared, ranges

from headrace.server.aftermath import Aftermath
from headrace.server.kafka.connection import Connection
from headrace.server.leasing import open_leasing
from headrace.server.loop_calls import Calls


def partitions_of(heartbeat: Any) -> set[int] | None:
    assert heartbeat.error_code == 0, heartbeat
    if heartbeat.assignment is None:
        return None
    return {part for topic in heartbeat.assignment.topic_partitions for part in topic.partitions}


def test_others_have_the_partitions_of_a_dead_member_with_their_next_heartbeat() -> None:
    async def scenario() -> None:
        shared = Shared(partitions=2)
        dying, living = shared.connection, Connection(shared.door)
        first = await shared.beat("m1")
        shared.connection = living
        second = await shared.beat("m2")
        assert partitions_of(second) == {1}
        shared.connection = dying
        epoch = (await shared.beat("m1", first.member_epoch, None)).member_epoch
        dying.connection_lost(None)
        shared.connection = living
        heard = await shared.beat("m2", second.member_epoch, None)
        assert partitions_of(heard) == {0, 1}
        # It is a member for its session: one that comes back has its part again.
        back = partitions_of(await shared.beat("m1", epoch, None)) or set()
        rest = partitions_of(await shared.beat("m2", heard.member_epoch, None)) or set()
        assert len(back) == len(rest) == 1 and back | rest == {0, 1}

    run(scenario)


def test_others_have_the_partitions_of_a_member_that_missed_three_heartbeats() -> None:
    async def scenario() -> None:
        shared = Shared(partitions=2)
        stopped, living = shared.connection, Connection(shared.door)
        first = await shared.beat("m1")
        shared.connection = living
        heard = await shared.beat("m2")
        assert partitions_of(heard) == {1}
        for _ in range(3):
            await shared.skip(shared.door.settings.share_heartbeat_interval_ms / 1000)
            heard = await shared.beat("m2", heard.member_epoch, None)
        assert partitions_of(heard) == {0, 1}
        # It goes on where it was when it is heard of.
        shared.connection = stopped
        back = partitions_of(await shared.beat("m1", first.member_epoch, None)) or set()
        shared.connection = living
        rest = partitions_of(await shared.beat("m2", heard.member_epoch, None)) or set()
        assert len(back) == len(rest) == 1 and back | rest == {0, 1}

    run(scenario)


def test_fetches_and_leases_stand_in_one_line_and_nobody_wins_for_ever() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat("m1")
        await shared.beat("m2")
        await shared.fetch(0, "m1")
        await shared.fetch(0, "m2")
        calls, aftermath = Calls(shared.service), Aftermath()
        epochs = {"m1": 1, "m2": 1}
        waiting: dict[str, asyncio.Future[Any]] = {}

        async def ask(name: str) -> None:
            """The greedy want all there is, and come back as soon as they have had some."""
            if name in epochs:
                waiting[name] = shared.fetching(epochs[name], name, wait_ms=60_000, count=1_000)
                epochs[name] += 1
            else:
                leasing = await open_leasing(calls, aftermath, GROUP, [TOPIC], name, {}, None)
                count = 1 if name == "slow" else 1_000
                waiting[name] = asyncio.ensure_future(leasing.find(count, 60_000))
            await shared.skip(0)

        names = ["m1", "http", "m2", "slow", "socket"]
        for name in names:
            await ask(name)
        served = []
        for number in range(20):
            await shared.publish(b"%d" % number)
            await shared.skip(0)
            [name] = [each for each, task in waiting.items() if task.done()]
            served.append(name)
            await ask(name)
        assert served == names * 4
        # As many as are ready are shared, not taken by the first.
        await shared.publish(*[b"x"] * 20)
        for _ in range(10):
            await shared.skip(0)
        assert all(task.done() for task in waiting.values())
        taken = [
            sum(last - first + 1 for first, last, _ in ranges(answer))
            if name in epochs
            else len(answer)
            for name, answer in ((name, task.result()) for name, task in waiting.items())
        ]
        assert taken == [4, 4, 4, 1, 7]
        await aftermath.close()

    run(scenario)
