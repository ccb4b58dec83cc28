"""Calls about very many partitions: others have their turn meanwhile, and what they do
to the same topic or group is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.server.test_loop_calls import GROUP, TOPIC, WORKER, Served, on_a_loop

from headrace.calls import Face
from headrace.core.errors import (
    HeadraceError,
    InvalidArgument,
    TopicExists,
    UnknownGroup,
    UnknownTopic,
)
from headrace.core.values import Outgoing, TopicInfo
from headrace.server import slices
from headrace.server.topics import change_topic

MANY = 60
WIDE = "wide"


@pytest.fixture(autouse=True)
def shortest_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)


def create(served: Served, **named: Any) -> asyncio.Task[TopicInfo]:
    return asyncio.ensure_future(
        served.calls.run_in_slices(Face.topic_creation, WIDE, partitions=MANY, **named)
    )


def grow(served: Served) -> asyncio.Task[TopicInfo]:
    return asyncio.ensure_future(served.calls.run_in_slices(Face.topic_growth, TOPIC, MANY))


def open_queue(served: Served, group: str = "wide-group") -> asyncio.Task[None]:
    return asyncio.ensure_future(
        served.calls.run_in_slices(Face.queue_opening, group, [WIDE], WORKER)
    )


async def publish_lease_and_ack(served: Served) -> list[HeadraceError | None]:
    await served.publish(b"value")
    [leased] = await served.lease()
    return await served.run(Face.ack, GROUP, [leased.receipt])


async def some_turns() -> None:
    for _ in range(MANY // 4):
        await asyncio.sleep(0)


@pytest.mark.parametrize("begin", [create, grow, open_queue])
def test_others_have_their_turn_meanwhile(begin: Callable[[Served], Any]) -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        if begin is open_queue:
            await create(served)
        long = begin(served)
        other = asyncio.ensure_future(publish_lease_and_ack(served))
        turns = 0
        while not long.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > MANY // 2
        await long
        assert await other == [None]
        topic = await served.run(Face.topic, TOPIC if begin is grow else WIDE)
        assert len(topic.partitions) == MANY

    on_a_loop(scenario)


def test_two_who_make_a_topic_at_once_get_the_same_if_that_is_fine() -> None:
    async def scenario(served: Served) -> None:
        made = create(served, exist_ok=True)
        await some_turns()
        assert not made.done()
        with pytest.raises(TopicExists):
            await create(served)
        again = await create(served, exist_ok=True)
        assert again.id == (await made).id

    on_a_loop(scenario)


def test_a_topic_whose_maker_goes_away_leaves_nothing() -> None:
    async def scenario(served: Served) -> None:
        made = create(served)
        await some_turns()
        made.cancel()
        with pytest.raises(asyncio.CancelledError):
            await made
        assert await served.run(Face.topic_names) == []
        assert len((await create(served)).partitions) == MANY

    on_a_loop(scenario)


def test_a_group_that_is_opened_while_its_topic_grows_reads_all_of_it() -> None:
    async def scenario(served: Served) -> None:
        await create(served)
        opened = open_queue(served)
        await some_turns()
        await served.calls.run_in_slices(Face.topic_growth, WIDE, 2 * MANY)
        await opened
        messages = [Outgoing(b"%d" % index, partition=index) for index in range(2 * MANY)]
        await served.run(Face.publish, WIDE, messages)
        leased = await served.run(Face.lease, "wide-group", [WIDE], WORKER, 2 * MANY)
        assert {each.partition for each in leased} == set(range(2 * MANY))

    on_a_loop(scenario)


@pytest.mark.parametrize("what", ["topic", "group"])
def test_a_queue_whose_topic_or_group_is_deleted_while_it_opens_says_so(what: str) -> None:
    async def scenario(served: Served) -> None:
        await create(served)
        opened = open_queue(served)
        await some_turns()
        expected: type[HeadraceError]
        if what == "topic":
            await served.run(Face.delete_topic, WIDE)
            expected = UnknownTopic
        else:
            await served.run(Face.delete_group, "wide-group")
            expected = UnknownGroup
        with pytest.raises(expected, match="while it was opened"):
            await opened
        if what == "group":
            # No view is left that would keep messages for nobody.
            topics = served.broker.topics
            partitions = topics.partitions(topics.named(WIDE))
            assert not any(partition.views for partition in partitions)

    on_a_loop(scenario)


@pytest.mark.parametrize(
    ("settings", "partitions"),
    [({"retention_ms": 5}, 0), ({"ordering": "key"}, 3), ({"retention_ms": -1}, 3)],
)
def test_a_change_that_is_wrong_in_part_changes_nothing(
    settings: dict[str, Any], partitions: int
) -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        before = await served.run(Face.topic, TOPIC)
        with pytest.raises(InvalidArgument):
            await change_topic(served.calls, TOPIC, settings, partitions, False)
        assert await served.run(Face.topic, TOPIC) == before
        changed = await change_topic(served.calls, TOPIC, {"retention_ms": 5}, 3, False)
        assert (len(changed.partitions), changed.settings["retention_ms"]) == (3, 5)

    on_a_loop(scenario)
