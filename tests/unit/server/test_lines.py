"""Of those who wait for messages of one group, one looks at a time."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from tests.unit.server.test_loop_calls import (
    GROUP,
    TOPIC,
    WAIT_MS,
    WORKER,
    Served,
    let_others_run,
    on_a_loop,
)

from headrace.calls import Face
from headrace.core.errors import UnknownTopic
from headrace.core.values import Delivery
from headrace.server.loop_calls import Watch

Waiting = asyncio.Task[list[Delivery]]


class Crowd:
    """Many who wait for one message each, and how often they have looked."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.looks = 0

    async def _look(self) -> list[Delivery]:
        self.looks += 1
        return await self._served.lease(1)

    async def gather(self, count: int, wait_ms: int = WAIT_MS) -> list[Waiting]:
        calls = self._served.calls
        waiting = [
            asyncio.ensure_future(calls.wait_for_some(self._look, GROUP, [TOPIC], wait_ms))
            for _ in range(count)
        ]
        await let_others_run()
        self.looks = 0
        return waiting


async def end(waiting: list[Waiting]) -> None:
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def test_a_message_costs_two_looks_however_many_wait_for_it() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        crowd = Crowd(served)
        waiting = await crowd.gather(50)
        for number in range(3):
            await served.publish(b"%d" % number)
            [delivery] = await waiting[number]
            assert delivery.value == b"%d" % number
            await let_others_run()
        assert crowd.looks == 6
        assert not any(each.done() for each in waiting[3:])
        await served.publish(b"a", b"b", b"c")
        found = await asyncio.gather(*waiting[3:6])
        assert [each.value for [each] in found] == [b"a", b"b", b"c"]
        await end(waiting)

    on_a_loop(scenario)


def test_who_goes_hands_on_its_turn() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        crowd = Crowd(served)
        # The first has little time, the second goes away, as does the fourth.
        waiting = await crowd.gather(1, wait_ms=50) + await crowd.gather(4)
        assert await waiting[0] == []
        await end([waiting[1], waiting[3]])
        await served.publish(b"value")
        [delivery] = await waiting[2]
        assert delivery.value == b"value"
        await served.run(Face.release, GROUP, [delivery.receipt])
        assert len(await waiting[4]) == 1

    on_a_loop(scenario)


def test_what_comes_due_is_seen_by_the_first_in_line() -> None:
    async def scenario(served: Served) -> None:
        await served.make(visibility_ms=50)
        await served.publish(b"value")
        assert len(await served.lease()) == 1
        waiting = await Crowd(served).gather(3)
        served.clock.skip(1)
        [delivery] = await waiting[0]
        assert delivery.attempt == 2
        await end(waiting)

    on_a_loop(scenario)


def test_who_is_told_that_it_is_over_looks_once_more() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        waiting = await Crowd(served).gather(2)
        is_over = False
        with Watch(served.service, [TOPIC]) as watch:
            wait = partial(
                served.calls.wait_watching, watch, partial(served.lease, 5), GROUP, [TOPIC]
            )
            last = asyncio.ensure_future(wait(WAIT_MS, lambda: is_over))
            await let_others_run()
            assert not last.done()
            is_over = True
            watch.rouse()
            assert await last == []
            # Over before it began: what is ready is taken along.
            await end(waiting)
            await served.publish(b"value")
            assert len(await wait(WAIT_MS, lambda: is_over)) == 1

    on_a_loop(scenario)


def test_all_of_them_hear_that_their_topic_is_gone() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        waiting = await Crowd(served).gather(5)
        await served.run(Face.delete_topic, TOPIC)
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(each) for each in outcomes} == {UnknownTopic}
        assert served.service.lines.length((GROUP, (TOPIC,))) == 0

    on_a_loop(scenario)


def test_other_topics_of_the_group_have_a_line_of_their_own() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        await served.run(Face.create_topic, "other", partitions=1)
        await served.run(Face.open_queue, GROUP, ["other"], WORKER)
        waiting = await Crowd(served).gather(3)
        lease = partial(served.run, Face.lease, GROUP, [TOPIC, "other"], WORKER, 1)
        both = asyncio.ensure_future(
            served.calls.wait_for_some(lease, GROUP, [TOPIC, "other"], WAIT_MS)
        )
        await let_others_run()
        await served.publish(b"one", b"two")
        assert len(await waiting[0]) + len(await both) == 2
        assert served.service.lines.length((GROUP, (TOPIC,))) == 2
        await end(waiting)

    on_a_loop(scenario)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_nothing_is_left_when_the_last_one_goes(count: int) -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        waiting = await Crowd(served).gather(count)
        assert served.service.lines.length((GROUP, (TOPIC,))) == count
        await end(waiting)
        assert served.service.lines.length((GROUP, (TOPIC,))) == 0

    on_a_loop(scenario)
