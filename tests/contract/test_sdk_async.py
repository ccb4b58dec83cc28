"""The SDK for asyncio: the same words, awaited."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.contract.conftest import SdkBackend

import headrace
from headrace.platform.clock import SystemClock

Test = Callable[[headrace.AsyncHeadrace], Awaitable[None]]


@dataclass
class Order:
    id: int


def run(sdk_backend: SdkBackend, test: Test, *, real_time: bool = False) -> None:
    async def with_handle() -> None:
        handle = sdk_backend.open_async(clock=SystemClock() if real_time else None)
        async with handle:
            await test(handle)

    asyncio.run(with_handle())


def test_a_message_is_published_received_and_acked(sdk_backend: SdkBackend) -> None:
    async def test(handle: headrace.AsyncHeadrace) -> None:
        await handle.create_topic("orders")
        published = await handle.publish("orders", {"id": 7}, key="k")
        async with handle.queue("orders", type=Order) as queue:
            [message] = await queue.receive()
            assert (message.id, message.value, message.key) == (published.id, Order(7), b"k")
            await message.ack()
            assert await queue.depth() == 0
            assert await queue.receive(wait=60) == []
            with pytest.raises(headrace.StaleReceipt):
                await message.ack()

    run(sdk_backend, test)


def test_a_reject_takes_its_text_as_error_and_by_its_former_name(sdk_backend: SdkBackend) -> None:
    async def test(handle: headrace.AsyncHeadrace) -> None:
        await handle.create_topic("orders")
        await handle.publish_many("orders", [b"x", b"y", b"z"])
        async with handle.queue("orders") as queue:
            one, two, three = await queue.receive(3)
            await one.reject(error="by its name")
            with pytest.warns(DeprecationWarning, match="next release") as warned:
                await two.reject(reason="by the message")
                await queue.reject(three, reason="by the queue")
            assert {each.filename for each in warned} == {__file__}
        errors = {letter.error async for letter in handle.dead_letters("orders")}
        assert errors == {"by its name", "by the message", "by the queue"}

    run(sdk_backend, test)


def test_a_message_as_a_context_is_acked_or_nacked(sdk_backend: SdkBackend) -> None:
    async def test(handle: headrace.AsyncHeadrace) -> None:
        await handle.create_topic("orders")
        await handle.publish("orders", b"x")
        async with handle.queue("orders") as queue:
            with pytest.raises(ValueError, match="on purpose"):
                async with (await queue.receive())[0]:
                    raise ValueError("on purpose")
            [message] = await queue.receive()
            assert (message.attempt, message.error) == (2, "ValueError: on purpose")
            async with message:
                pass
            assert message.settled
            assert await queue.depth() == 0

    run(sdk_backend, test)


def test_every_way_to_settle_works(sdk_backend: SdkBackend) -> None:
    async def test(handle: headrace.AsyncHeadrace) -> None:
        await handle.create_topic("orders", 1)
        await handle.publish_many("orders", [b"a", b"b", b"c", b"d", b"e"])
        async with handle.queue("orders") as queue:
            nacked, rejected, released, extended, acked = await queue.lease(5)
            await nacked.nack(delay=3600, error="later")
            await rejected.reject("nonsense")
            await released.release()
            await extended.extend(600)
            done, again = await queue.ack([acked]), await queue.ack([acked.receipt])
            assert done == [None]
            assert isinstance(again[0], headrace.StaleReceipt)
            statistics = await queue.stats()
            assert (statistics.retrying, statistics.ready, statistics.leased) == (1, 1, 1)
            assert statistics.acked == 1
            assert await handle.dead_letters("orders").count() == 1

    run(sdk_backend, test)


def test_a_loop_leases_ahead_and_gives_back_the_rest(sdk_backend: SdkBackend) -> None:
    async def test(handle: headrace.AsyncHeadrace) -> None:
        await handle.create_topic("orders")
        await handle.publish_many("orders", [b"%d" % n for n in range(50)])
        async with handle.queue("orders") as queue:
            count = 0
            async for message in queue:
                await message.ack()
                count += 1
                if count == 20:
                    break
            # The loop is over at once; what it had leased ahead follows.
            async with asyncio.timeout(60):
                while (await queue.stats()).leased:
                    pass
            assert (await queue.stats()).ready == 30
            [message] = await queue.lease(1)
            assert message.attempt == 1

    run(sdk_backend, test)


def test_waiting_for_a_delayed_message_moves_a_manual_clock(sdk_backend: SdkBackend) -> None:
    async def test(handle: headrace.AsyncHeadrace) -> None:
        await handle.create_topic("orders")
        begun_ms = sdk_backend.clock.now_ms()
        await handle.publish("orders", b"x", delay=3600)
        async with handle.queue("orders") as queue:
            assert [message.value for message in await queue.receive()] == [b"x"]
        assert sdk_backend.clock.now_ms() - begun_ms == 3_600_000

    run(sdk_backend, test)


def test_ten_producers_and_five_consumers_handle_every_message_once(
    sdk_backend: SdkBackend,
) -> None:
    async def test(handle: headrace.AsyncHeadrace) -> None:
        await handle.create_topic("orders", durability="os")
        seen: Counter[bytes] = Counter()
        everything = asyncio.Event()

        async def produce(producer: int) -> None:
            for number in range(100):
                await handle.publish("orders", b"%d/%d" % (producer, number))

        async def consume(queue: headrace.AsyncQueue[Any]) -> None:
            async for message in queue:
                async with message:
                    seen[message.value] += 1
                if len(seen) == 1_000:
                    everything.set()

        queues = [await handle.queue("orders", "workers", visibility=300) for _ in range(5)]
        async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
            for queue in queues:
                tasks.create_task(consume(queue))
            for number in range(10):
                tasks.create_task(produce(number))
            await everything.wait()
            for queue in queues:
                await queue.close()
        assert set(seen.values()) == {1}
        assert await handle.depth("orders", group="workers") == 0

    run(sdk_backend, test, real_time=True)


def test_no_thread_is_held_while_tasks_wait(sdk_backend: SdkBackend) -> None:
    async def test(handle: headrace.AsyncHeadrace) -> None:
        await handle.create_topic("orders", durability="os")
        async with handle.queue("orders") as queue:
            # Many more waits than the handle has threads, and still it answers.
            waits = [asyncio.create_task(queue.receive(max=1, wait=600)) for _ in range(100)]
            await handle.topics()
            await handle.publish_many("orders", [b"x"] * 100)
            async with asyncio.timeout(120):
                received = await asyncio.gather(*waits)
        assert sum(map(len, received)) == 100
        threads = [t for t in threading.enumerate() if t.name.startswith("headrace-call")]
        assert 0 < len(threads) <= 16

    run(sdk_backend, test, real_time=True)


def test_a_cancelled_wait_loses_no_message(sdk_backend: SdkBackend) -> None:
    async def test(handle: headrace.AsyncHeadrace) -> None:
        await handle.create_topic("orders", 1, durability="os")
        async with handle.queue("orders") as queue:
            for number in range(20):
                wait = asyncio.create_task(queue.receive(max=1))
                publish = asyncio.create_task(handle.publish("orders", number))
                # Cancelled at another point of its way in every round.
                for _ in range(number):
                    await asyncio.sleep(0)
                wait.cancel()
                await publish
                await asyncio.wait([wait])
                if not wait.cancelled():
                    received = wait.result()
                    assert [message.value for message in received] == [number]
                    await queue.ack(received)
                    continue
                async with asyncio.timeout(60):
                    [message] = await queue.receive(max=1)
                assert (message.value, message.attempt) == (number, 1)
                await message.ack()

    run(sdk_backend, test, real_time=True)


def test_closing_the_queue_ends_its_loops_and_waits(sdk_backend: SdkBackend) -> None:
    async def test(handle: headrace.AsyncHeadrace) -> None:
        await handle.create_topic("orders")
        queue = await handle.queue("orders")

        async def loop() -> list[Any]:
            return [message async for message in queue]

        looping = asyncio.create_task(loop())
        waiting = asyncio.create_task(queue.receive())
        await handle.topics()
        await queue.close()
        async with asyncio.timeout(60):
            assert await looping == []
            assert await waiting == []
        with pytest.raises(headrace.Closed):
            await queue.receive()

    run(sdk_backend, test, real_time=True)


def test_a_stream_reads_commits_and_seeks(sdk_backend: SdkBackend) -> None:
    async def test(handle: headrace.AsyncHeadrace) -> None:
        await handle.create_topic("orders", 1)
        await handle.publish_many("orders", [b"%d" % n for n in range(5)])
        async with handle.stream("orders", "readers") as stream:
            assert [record.offset for record in await stream.poll(2)] == [0, 1]
            await stream.commit()
            async for record in stream:
                if record.offset == 3:
                    break
            assert await stream.position() == {("orders", 0): 4}
            assert await stream.assignment() == [("orders", 0)]
        async with handle.stream("orders", "readers") as stream:
            assert [record.offset for record in await stream.poll(wait=0)] == [4]
            await stream.seek("earliest")
            assert len(await stream.poll(wait=60)) == 5

    run(sdk_backend, test)


def test_a_record_whose_handling_failed_is_read_again(sdk_backend: SdkBackend) -> None:
    async def test(handle: headrace.AsyncHeadrace) -> None:
        await handle.create_topic("orders", 1)
        await handle.publish_many("orders", [b"%d" % n for n in range(5)])
        with pytest.raises(ValueError, match="on purpose"):
            async with handle.stream("orders", "readers") as stream:
                async for record in stream:
                    if record.offset == 2:
                        raise ValueError("on purpose")
        async with handle.stream("orders", "readers") as stream:
            assert [record.offset for record in await stream.poll()] == [2, 3, 4]

    run(sdk_backend, test)


def test_topics_and_groups_are_managed(sdk_backend: SdkBackend) -> None:
    async def test(handle: headrace.AsyncHeadrace) -> None:
        await handle.create_topic("orders", 1)
        await handle.create_topic("payments")
        await handle.alter_topic("orders", retention_ms=60_000)
        await handle.grow_topic("orders", 2)
        assert len((await handle.topic("orders")).partitions) == 2
        assert [topic.name for topic in await handle.topics()] == ["orders", "payments"]
        async with handle.queue("orders", "workers") as queue:
            await queue.add_topics("payments")
            assert queue.topics == ("orders", "payments")
            await queue.remove_topics("payments")
        await handle.alter_group("workers", max_attempts=9)
        assert (await handle.group("workers")).settings["max_attempts"] == 9
        assert [group.name for group in await handle.groups()] == ["workers"]
        assert (await handle.stats("workers")).depth == 0
        assert len(await handle.stats()) == 1
        await handle.delete_group("workers")
        await handle.delete_topic("payments")
        await handle.publish_many("orders", [b"x", b"y"], partition=0)
        assert await handle.delete_records("orders", 0, 1) == 1
        with pytest.raises(headrace.UnknownTopic):
            await handle.publish("payments", b"x")

    run(sdk_backend, test)


def test_dead_letters_and_delayed_messages_are_handled(
    sdk_backend: SdkBackend, tmp_path: Path
) -> None:
    async def test(handle: headrace.AsyncHeadrace) -> None:
        await handle.create_topic("orders", 1)
        await handle.publish_many("orders", ["a", "b", "c"])
        async with handle.queue("orders") as queue:
            await queue.reject(await queue.receive(max=3), "nonsense")
        letters = handle.dead_letters("orders")
        assert [letter.value async for letter in letters] == ["a", "b", "c"]
        chosen = [letter async for letter in letters.choose(limit=1)]
        assert (await letters.show(chosen[0].id)).value == "a"
        assert await letters.export(tmp_path / "letters.jsonl") == 3
        assert (await letters.redrive(limit=1)).redriven == 1
        assert await letters.purge() == 2
        assert await letters.count() == 0

        published = await handle.publish("orders", b"x", delay=60)
        await handle.publish("orders", b"y", delay=70)
        delayed = handle.delayed("orders")
        assert [message.value async for message in delayed] == [b"x", b"y"]
        assert await delayed.cancel(published)
        assert not await handle.cancel(published)
        assert (await handle.status(published)).state == "cancelled"
        assert await delayed.count() == 1
        assert await delayed.totals() == ("orders", 0, 1, 0)

    run(sdk_backend, test)


def test_a_handle_can_be_awaited_or_entered_and_then_closed(tmp_path: Path) -> None:
    async def test() -> None:
        async with headrace.open_async(tmp_path / "data") as handle:
            await handle.create_topic("orders")
        handle = await headrace.open_async(str(tmp_path / "data"))
        assert [topic.name for topic in await handle.topics()] == ["orders"]
        queue = await handle.queue("orders")
        await handle.close()
        await handle.close()
        assert handle.closed and queue.closed
        await queue.close()
        with pytest.raises(headrace.Closed):
            await handle.publish("orders", b"x")
        with pytest.raises(headrace.InvalidArgument):
            await headrace.open_async("")

    asyncio.run(test())


def test_a_handle_does_not_cross_a_fork(sdk_backend: SdkBackend) -> None:
    handle = sdk_backend.open_async(auto_create=True)
    # Its threads exist from here on, and a fork leaves them behind.
    asyncio.run(run_one(handle))
    pid = os.fork()
    if pid == 0:
        forked = 1
        try:
            asyncio.run(run_one(handle))
        except headrace.Forked:
            forked = 0
        handle.close_now()
        os._exit(forked)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    handle.close_now()


async def run_one(handle: headrace.AsyncHeadrace) -> None:
    await handle.publish("orders", b"x")


def test_a_misspelt_choice_of_dead_letters_is_refused(sdk_backend: SdkBackend) -> None:
    async def test(handle: headrace.AsyncHeadrace) -> None:
        await handle.create_topic("orders")
        await handle.publish("orders", b"x")
        async with handle.queue("orders") as queue:
            await queue.reject(await queue.receive())
        letters = handle.dead_letters("orders")
        misspelt: Any = {"older_then": 60}
        for call in (letters.count, letters.purge, letters.redrive):
            with pytest.raises(TypeError, match="older_then"):
                await call(**misspelt)
        with pytest.raises(TypeError, match="older_then"):
            letters.choose(**misspelt)
        assert await letters.count() == 1

    run(sdk_backend, test)
