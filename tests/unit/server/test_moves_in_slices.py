"""Very many messages on their way to the dead letters or back: others are served meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.server.test_loop_calls import GROUP, TOPIC, Served, let_others_run, on_a_loop

from headrace.calls import Face
from headrace.core import limits
from headrace.core.errors import CorruptLog
from headrace.core.values import MessageId, Outgoing
from headrace.engine.broker import Broker
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import attribute_headers

MANY = 400
LETTERS = f"{TOPIC}.dlq"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOVE_MESSAGES_MAX", 10)


async def make_expired(served: Served) -> None:
    """Many messages whose life is over, of which nobody has heard, and one behind them."""
    settings = {"dead_letter_expired": True}
    await served.run(Face.create_topic, TOPIC, partitions=1, settings=settings)
    await served.run(Face.open_queue, GROUP, [TOPIC], "ann")
    outgoing = [Outgoing(b"old", None, attribute_headers(ttl_ms=1_000))] * MANY
    await served.run(Face.publish, TOPIC, [*outgoing, Outgoing(b"new")])
    served.clock.skip(2)


def count_of_letters(served: Served) -> int:
    topics = served.broker.topics
    if LETTERS not in topics.catalog.topics:
        return 0
    return topics.partition(topics.named(LETTERS), 0).high_watermark


async def until_done(served: Served) -> None:
    while served.broker.moves:
        await asyncio.sleep(0)


def test_a_lease_does_not_wait_for_the_letters_of_all_that_expired_before_it() -> None:
    async def scenario(served: Served) -> None:
        await make_expired(served)
        (delivery,) = await served.lease()
        assert delivery.value == b"new"
        assert count_of_letters(served) < MANY
        # What somebody asks for is done when it is answered, and takes its turn.
        await served.run(Face.reject, GROUP, [delivery.receipt])
        assert 0 < count_of_letters(served) < MANY
        letters = served.broker.topics.partition(served.broker.topics.named(LETTERS), 0)
        written = letters.read([0, letters.high_watermark])
        assert b"new" in [record.value for record in written]
        # Nobody asks, and the rest comes all the same.
        await until_done(served)
        assert count_of_letters(served) == MANY + 1
        numbers = await served.run(Face.queue_statistics, GROUP)
        assert (numbers.dead_lettered, numbers.depth) == (MANY + 1, 0)

    on_a_loop(scenario)


def test_little_that_expired_is_waited_for() -> None:
    async def scenario(served: Served) -> None:
        await served.make(max_attempts=1, visibility_ms=1_000)
        await served.publish(*[b"value"] * 5)
        await served.lease(5)
        served.clock.skip(2)
        assert await served.lease() == []
        assert count_of_letters(served) == 5

    on_a_loop(scenario)


def test_a_node_that_stops_meanwhile_leaves_the_rest_for_its_next_start() -> None:
    disk: list[MemoryDisk] = []

    async def scenario(served: Served) -> None:
        disk.append(served.broker._disk)  # type: ignore[arg-type]
        await make_expired(served)
        await served.lease()

    on_a_loop(scenario)
    broker = Broker(disk[0], SystemEntropy(), 10_000_000)
    try:
        assert broker.moves.is_much
        written = broker.topics.partition(broker.topics.named(LETTERS), 0).high_watermark
        assert written < MANY
    finally:
        broker.close()


def test_letters_that_cannot_be_written_keep_the_node_at_rest() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        await served.publish(b"one", b"two")
        first, second = await served.lease()
        await served.run(Face.reject, GROUP, [first.receipt])
        letters = served.broker.topics.partition(served.broker.topics.named(LETTERS), 0)
        letters.stop(CorruptLog("rot"))
        await served.run(Face.reject, GROUP, [second.receipt])
        begin, rounds = served.broker.begin_sync, 0

        def counted(dirty: Any) -> Any:
            nonlocal rounds
            rounds += 1
            return begin(dirty)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(served.broker, "begin_sync", counted)
            await let_others_run()
        assert len(served.broker.moves) == 1
        assert rounds <= 1

    on_a_loop(scenario)


def test_a_large_redrive_lets_others_have_their_turn_and_reads_on_when_it_is_done() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        await served.publish(*[b"value"] * MANY)
        leased = await served.lease(MANY)
        await served.run(Face.reject, GROUP, [each.receipt for each in leased])
        ids = [MessageId(LETTERS, 0, offset) for offset in range(len(leased))]
        asked: asyncio.Task[Any] = asyncio.ensure_future(
            served.calls.run_in_slices(Face.redriving, TOPIC, ids)
        )
        seen = set()
        while not asked.done():
            await asyncio.sleep(0)
            seen.add(len(served.broker.moves.pending()))
        assert asked.result().in_place == len(ids)
        # Never more than a piece is on its way.
        assert max(seen) == 1
        assert len(await served.lease(MANY)) == len(ids)

    on_a_loop(scenario)


def test_a_redrive_that_is_cancelled_has_done_whole_pieces() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        await served.publish(*[b"value"] * 100)
        leased = await served.lease(100)
        await served.run(Face.reject, GROUP, [each.receipt for each in leased])
        ids = [MessageId(LETTERS, 0, offset) for offset in range(100)]
        asked = asyncio.ensure_future(served.calls.run_in_slices(Face.redriving, TOPIC, ids))
        await let_others_run()
        asked.cancel()
        await asyncio.wait([asked])
        await until_done(served)
        left = await served.run(Face.dead_letters, TOPIC, limit=1_000)
        came = await served.lease(100)
        assert len(came) + len(left) == 100 and len(came) % 10 == 0
        again = await served.calls.run_in_slices(Face.redriving, TOPIC, ids)
        assert again.redriven == len(left)

    on_a_loop(scenario)
