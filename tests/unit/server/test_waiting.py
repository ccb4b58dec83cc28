"""Those who wait for messages of one group stand in one line, and one looks at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from tests.unit.server.http_lines import Loop
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
from headrace.core.values import Delivery, Outgoing
from headrace.server.waiting import UNABLE_SECONDS, Look, Sought, Stop

Waiting = asyncio.Task[list[Delivery]]


def stand(
    served: Served,
    look: Look[Delivery],
    wait_ms: int = WAIT_MS,
    stop: Stop | None = None,
    topics: Sequence[str] = (TOPIC,),
) -> Coroutine[Any, Any, list[Delivery]]:
    sought = Sought(served.service, topics)
    return served.service.waiting.find(GROUP, sought, look, wait_ms / 1000, stop)


class Crowd:
    """Many who wait for one message each, and how often they have looked."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.looks = 0

    async def _look(self, among: int) -> list[Delivery]:
        self.looks += 1
        return await self._served.lease(1)

    async def gather(self, count: int, wait_ms: int = WAIT_MS) -> list[Waiting]:
        waiting = [
            asyncio.ensure_future(stand(self._served, self._look, wait_ms)) for _ in range(count)
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


def test_partitions_that_come_while_one_looks_before_it_waits_are_waited_for() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        looks = 0

        async def look(among: int) -> list[Delivery]:
            nonlocal looks
            looks += 1
            found = await served.lease(1)
            if looks == 1:
                await served.run(Face.grow_topic, TOPIC, 3)
            return found

        waiting = asyncio.ensure_future(stand(served, look))
        while not looks or not served.service.waiting.length(GROUP):
            await asyncio.sleep(0)
        await let_others_run()
        await served.run(Face.publish, TOPIC, [Outgoing(b"late", partition=2)])
        [delivery] = await waiting
        assert delivery.value == b"late"

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
        stop = Stop()
        last = asyncio.ensure_future(stand(served, lambda _: served.lease(5), stop=stop))
        await let_others_run()
        assert not last.done()
        stop.set()
        assert await last == []
        # Over before it began: what is ready is taken along.
        await end(waiting)
        await served.publish(b"value")
        assert len(await stand(served, lambda _: served.lease(5), stop=stop)) == 1

    on_a_loop(scenario)


def test_all_of_them_hear_that_their_topic_is_gone() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        waiting = await Crowd(served).gather(5)
        await served.run(Face.delete_topic, TOPIC)
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(each) for each in outcomes} == {UnknownTopic}
        assert served.service.waiting.length(GROUP) == 0

    on_a_loop(scenario)


def test_who_wants_other_topics_too_stands_in_the_same_line() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        await served.run(Face.create_topic, "other", partitions=1)
        await served.run(Face.open_queue, GROUP, ["other"], WORKER)
        waiting = await Crowd(served).gather(3)
        topics = [TOPIC, "other"]
        both = asyncio.ensure_future(
            stand(
                served,
                lambda _: served.run(Face.lease, GROUP, topics, WORKER, 1),
                topics=topics,
            )
        )
        await let_others_run()
        await served.publish(b"one", b"two")
        assert [len(await each) for each in waiting[:2]] == [1, 1]
        # What only the last one wants does not wait for those before it.
        await served.run(Face.publish, "other", [Outgoing(b"three")])
        assert [each.value for each in await both] == [b"three"]
        assert served.service.waiting.length(GROUP) == 1
        await end(waiting)

    on_a_loop(scenario)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_nothing_is_left_when_the_last_one_goes(count: int) -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        waiting = await Crowd(served).gather(count)
        assert served.service.waiting.length(GROUP) == count
        await end(waiting)
        assert served.service.waiting.length(GROUP) == 0

    on_a_loop(scenario)


def test_what_is_ready_is_shared_by_those_who_wait_and_a_greedy_one_has_its_part() -> None:
    async def scenario(served: Served) -> None:
        await served.make()

        async def greedy(among: int) -> list[Delivery]:
            return await served.run(Face.lease, GROUP, [TOPIC], "greedy", 1_000, among=among)

        waiting = [asyncio.ensure_future(stand(served, greedy))]
        await let_others_run()
        waiting += await Crowd(served).gather(2)
        await served.publish(*[b"value"] * 9)
        assert [len(await each) for each in waiting] == [3, 1, 1]
        # Nobody else waits now: the rest may be had at once.
        assert len(await stand(served, greedy, 0)) == 4

    on_a_loop(scenario)


def test_who_asks_without_waiting_does_not_pass_those_who_wait() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        crowd = Crowd(served)
        waiting = await crowd.gather(2)
        assert await stand(served, lambda _: served.lease(1), 0) == []
        publishing = asyncio.ensure_future(served.publish(b"one"))
        hasty: list[Delivery] = []
        while not publishing.done() or not waiting[0].done():
            hasty += await stand(served, lambda _: served.lease(1), 0)
            await asyncio.sleep(0)
        assert hasty == []
        assert [each.value for each in await waiting[0]] == [b"one"]
        await end(waiting)

    on_a_loop(scenario)


def test_one_that_cannot_take_anything_keeps_nobody_from_looking() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        is_able = False

        async def look(among: int) -> list[Delivery] | None:
            return await served.lease(1) if is_able else None

        unable = asyncio.ensure_future(stand(served, look))
        await let_others_run()
        waiting = await Crowd(served).gather(2)
        await served.publish(b"one")
        assert [each.value for each in await waiting[0]] == [b"one"]
        # It has kept its place.
        is_able = True
        await served.publish(b"two")
        assert [each.value for each in await unable] == [b"two"]
        await end(waiting)

    on_a_loop(scenario)


def test_one_that_cannot_take_what_is_overdue_looks_now_and_then_and_not_all_the_time() -> None:
    async def scenario(served: Served) -> None:
        await served.make(visibility_ms=50)
        await served.publish(b"value")
        assert len(await served.lease()) == 1
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        looks = 0
        is_able = False

        async def look(among: int) -> list[Delivery] | None:
            nonlocal looks
            looks += 1
            return await served.lease(1) if is_able else None

        # The lease is over, and nobody has seen to that.
        served.clock.skip(1)
        unable = asyncio.ensure_future(stand(served, look))
        await let_others_run()
        looks = 0
        for _ in range(40):
            loop.passed_seconds += 0.002
            await let_others_run()
        assert looks <= 1
        is_able = True
        loop.passed_seconds += UNABLE_SECONDS
        [delivery] = await unable
        assert delivery.attempt == 2

    on_a_loop(scenario, Loop)
