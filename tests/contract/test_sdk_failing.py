"""When the user's code or the ground under it fails: errors that cannot be told,
closings that fail, topics and groups that go while they are read.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.contract.conftest import SdkBackend

import headrace
from headrace.client.message import error_text
from headrace.platform.clock import SystemClock


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("this error cannot say what it is")


class Broken:
    """Something opened that cannot be closed."""

    def __init__(self, text: str) -> None:
        self.text = text

    def close(self) -> None:
        raise OSError(self.text)


@pytest.fixture
def orders(handle: headrace.Headrace) -> headrace.Headrace:
    handle.create_topic("orders", 1)
    return handle


# Errors that cannot be told.


@pytest.mark.parametrize(
    ("error", "told"),
    [(ValueError("bad \udcff byte"), "ValueError: bad ? byte"), (Speechless(), "Speechless")],
)
def test_a_message_is_nacked_whatever_its_error_says(
    orders: headrace.Headrace, error: Exception, told: str
) -> None:
    orders.publish("orders", b"x")
    with orders.queue("orders") as queue:
        [message] = queue.receive()
        with pytest.raises(type(error)) as raised, message:
            raise error
        assert raised.value is error
        assert message.settled
        [again] = queue.receive()
        assert (again.attempt, again.error) == (2, told)


def test_a_message_is_nacked_whatever_its_error_says_in_asyncio(sdk_backend: SdkBackend) -> None:
    async def main() -> None:
        async with sdk_backend.open_async() as handle:
            await handle.create_topic("orders")
            await handle.publish("orders", b"x")
            async with handle.queue("orders") as queue:
                [message] = await queue.receive()
                with pytest.raises(Speechless):
                    async with message:
                        raise Speechless
                [again] = await queue.receive()
                assert again.error == "Speechless"

    asyncio.run(main())


def test_texts_that_utf8_cannot_hold_are_kept_as_far_as_it_can(orders: headrace.Headrace) -> None:
    orders.publish_many("orders", [b"1", b"2"])
    with orders.queue("orders") as queue:
        first, second = queue.receive()
        first.nack(error="lone \ud800", delay=0)
        second.reject(error="lone \ud800")
        assert [message.error for message in queue.receive()] == ["lone ?"]
    [letter] = orders.dead_letters("orders")
    assert letter.error == "lone ?"


# Loops whose body raises, without `with message:`.


@pytest.mark.parametrize(
    ("ends", "attempt"),
    [(ValueError("bad"), 2), (SystemExit(1), 2), (KeyboardInterrupt(), 1)],
    ids=["error", "exit", "interrupt"],
)
def test_a_queues_block_that_raises_fails_what_its_loop_was_at_and_nothing_else(
    orders: headrace.Headrace, ends: BaseException, attempt: int
) -> None:
    orders.publish_many("orders", [b"%d" % number for number in range(8)])
    with pytest.raises(type(ends)), orders.queue("orders", backoff_ms=0, prefetch=4) as queue:
        for message in queue:
            if message.value == b"5":
                raise ends
            message.ack()
    with orders.queue("orders") as queue:
        left = {each.value: (each.attempt, each.error) for each in queue.receive()}
    assert left.pop(b"5") == (attempt, error_text(ends) if attempt > 1 else None)
    assert left == {b"6": (1, None), b"7": (1, None)}


def test_a_message_that_ends_its_program_each_time_ends_in_the_dead_letters(
    orders: headrace.Headrace,
) -> None:
    orders.publish("orders", b"bad")
    for _attempt in range(3):
        with (
            pytest.raises(SystemExit),
            orders.queue("orders", max_attempts=3, backoff_ms=0) as queue,
        ):
            for _ in queue:
                raise SystemExit(1)
    [letter] = orders.dead_letters("orders")
    assert (letter.raw, letter.attempts) == (b"bad", 3)


def test_what_a_loop_collected_and_nobody_settled_fails_together(
    orders: headrace.Headrace,
) -> None:
    orders.publish_many("orders", [b"%d" % number for number in range(5)])
    collected = []
    with pytest.raises(ValueError, match="bad"), orders.queue("orders", backoff_ms=0) as queue:
        for message in queue:
            collected.append(message)
            if len(collected) == 4:
                queue.ack(collected[0].receipt)
                collected[1].release()
                raise ValueError("bad")
    with orders.queue("orders") as queue:
        attempts = {each.value: each.attempt for each in queue.receive()}
    assert attempts == {b"1": 1, b"2": 2, b"3": 2, b"4": 1}


def test_a_handles_block_that_raises_fails_what_its_loops_were_at(sdk_backend: SdkBackend) -> None:
    with pytest.raises(ValueError, match="bad"), sdk_backend.open() as handle:
        handle.create_topic("orders", 1)
        handle.publish("orders", b"x")
        for _ in handle.queue("orders", backoff_ms=0):
            raise ValueError("bad")
    with sdk_backend.open() as handle, handle.queue("orders") as queue:
        [again] = queue.receive()
        assert (again.attempt, again.error) == (2, "ValueError: bad")


def test_a_list_that_was_received_goes_back_uncounted(orders: headrace.Headrace) -> None:
    """Nobody knows which of them was being handled."""
    orders.publish_many("orders", [b"1", b"2"])
    with pytest.raises(ValueError, match="bad"), orders.queue("orders") as queue:
        for _ in queue.receive(max=2):
            raise ValueError("bad")
    with orders.queue("orders") as queue:
        assert [each.attempt for each in queue.receive()] == [1, 1]


@pytest.mark.parametrize("by", ["the queue's block", "a task of a group", "the handle's block"])
def test_an_async_block_that_raises_fails_what_its_loop_was_at(
    sdk_backend: SdkBackend, by: str
) -> None:
    async def consume(queue: headrace.AsyncQueue[Any]) -> None:
        async for message in queue:
            if message.value == b"5":
                raise ValueError("bad")
            await message.ack()

    async def fail(handle: headrace.AsyncHeadrace) -> None:
        if by == "the handle's block":
            await consume(await handle.queue("orders", backoff_ms=0, prefetch=4))
        async with handle.queue("orders", backoff_ms=0, prefetch=4) as queue:
            if by == "the queue's block":
                await consume(queue)
            async with asyncio.TaskGroup() as group:
                group.create_task(consume(queue))

    async def main() -> None:
        with pytest.raises((ValueError, ExceptionGroup)):
            async with sdk_backend.open_async() as handle:
                await handle.create_topic("orders", 1)
                await handle.publish_many("orders", [b"%d" % number for number in range(8)])
                await fail(handle)
        async with sdk_backend.open_async() as handle, handle.queue("orders") as queue:
            left = {each.value: each.attempt for each in await queue.receive()}
            assert left == {b"5": 2, b"6": 1, b"7": 1}

    asyncio.run(main())


def test_an_async_loop_that_is_cancelled_fails_nothing(sdk_backend: SdkBackend) -> None:
    async def main() -> None:
        async with sdk_backend.open_async() as handle:
            await handle.create_topic("orders", 1)
            await handle.publish("orders", b"x")
            with pytest.raises(asyncio.CancelledError):
                async with handle.queue("orders") as queue:
                    async for _ in queue:
                        raise asyncio.CancelledError
            async with handle.queue("orders") as queue:
                [again] = await queue.receive()
                assert again.attempt == 1

    asyncio.run(main())


# Closing.


def test_closing_closes_everything_and_raises_the_first_error(sdk_backend: SdkBackend) -> None:
    handle = sdk_backend.open()
    handle.create_topic("orders")
    opened = [handle.queue("orders") for _ in range(5)]
    broken = [Broken("one"), Broken("two")]
    for each in broken:
        handle.connection.on_opened(each)
    with pytest.raises(OSError, match="one|two"):
        handle.close()
    assert all(queue.closed for queue in opened) and handle.closed
    # The directory is free.
    assert [topic.name for topic in sdk_backend.open().topics()] == ["orders"]


def test_an_error_in_closing_leaves_no_thread_of_an_async_handle(sdk_backend: SdkBackend) -> None:
    broken = Broken("stuck")
    # Wider fixtures of other modules have handles too.
    before = set(threading.enumerate())

    async def main() -> None:
        handle = sdk_backend.open_async()
        await handle.create_topic("orders")
        handle._handle.connection.on_opened(broken)
        with pytest.raises(OSError, match="stuck"):
            await handle.close()
        assert handle.closed

    asyncio.run(main())
    # A node that is elsewhere has threads of its own.
    ours = ("headrace-call", "headrace-link")
    made = set(threading.enumerate()) - before
    assert not [each for each in made if each.name.startswith(ours)]


def test_a_queue_whose_group_or_topic_is_gone_closes_quietly(orders: headrace.Headrace) -> None:
    orders.publish("orders", b"x")
    orphan = orders.queue("orders", "deleted")
    assert len(orphan.receive()) == 1
    orders.delete_group("deleted")
    orphan.close()
    with orders.queue("orders") as queue:
        assert len(queue.receive()) == 1
        orders.delete_topic("orders")
    assert orphan.closed and queue.closed


# Topics that go and come back.


def test_a_queue_goes_on_with_a_topic_that_is_made_again(orders: headrace.Headrace) -> None:
    queue = orders.queue("orders")
    orders.delete_topic("orders")
    with pytest.raises(headrace.UnknownTopic):
        queue.receive(wait=0)
    orders.create_topic("orders", 2)
    orders.publish("orders", b"new")
    [message] = queue.receive(wait=0)
    message.ack()
    assert (message.value, queue.depth()) == (b"new", 0)


def test_a_queue_that_did_not_look_meanwhile_goes_on_too(orders: headrace.Headrace) -> None:
    queue = orders.queue("orders")
    assert queue.lease() == []
    orders.delete_topic("orders")
    orders.create_topic("orders")
    orders.publish("orders", b"new")
    assert [message.value for message in queue.lease()] == [b"new"]


def test_a_topic_that_comes_back_is_not_hidden_by_a_busy_one(orders: headrace.Headrace) -> None:
    orders.create_topic("busy", 1)
    queue = orders.queue(["orders", "busy"])
    orders.delete_topic("orders")
    with pytest.raises(headrace.UnknownTopic):
        queue.lease()
    orders.create_topic("orders", 1)
    orders.publish("orders", b"new")
    orders.publish_many("busy", [b"busy"] * 3)
    values = [message.value for _ in range(4) for message in queue.lease(1)]
    assert sorted(values) == [b"busy", b"busy", b"busy", b"new"]


def test_a_deleted_topic_is_not_made_again_by_the_queue_itself(sdk_backend: SdkBackend) -> None:
    handle = sdk_backend.open(auto_create=True)
    handle.create_topic("orders")
    queue = handle.queue("orders")
    handle.delete_topic("orders")
    for _ in range(2):
        with pytest.raises(headrace.UnknownTopic):
            queue.lease()
    assert handle.topics() == []


def test_a_waiting_queue_wakes_for_a_topic_that_is_made_again(sdk_backend: SdkBackend) -> None:
    handle = sdk_backend.open(clock=SystemClock())
    handle.create_topic("orders")
    queue = handle.queue("orders")
    handle.delete_topic("orders")
    handle.create_topic("orders")
    values: list[object] = []
    waiting = threading.Thread(
        target=lambda: values.extend(message.value for message in queue.receive(wait=60))
    )
    waiting.start()
    handle.publish("orders", b"new")
    waiting.join(60)
    assert values == [b"new"]


def test_a_stream_group_goes_on_with_a_topic_that_is_made_again(orders: headrace.Headrace) -> None:
    orders.create_topic("other", 1)
    orders.publish_many("orders", [b"1", b"2", b"3"])
    first = orders.stream(["orders", "other"], "audit")
    second = orders.stream(["orders", "other"], "audit")
    orders.delete_topic("orders")
    assert first.poll(wait=0) + second.poll(wait=0) == []
    orders.create_topic("orders", 2)
    orders.publish("orders", b"new", partition=0)
    orders.publish("orders", b"new", partition=1)
    orders.publish("other", b"other")
    streams = [first, second] * 2
    values = [record.value for stream in streams for record in stream.poll(wait=0)]
    assert sorted(values) == [b"new", b"new", b"other"]
    first.commit()
    second.commit()
    assert orders.stream(["orders", "other"], "audit").poll(wait=0) == []


def replace_topic(handle: headrace.Headrace, partitions: int = 1) -> None:
    """Another topic with the name, longer than how far anybody read in the old one."""
    handle.delete_topic("orders")
    handle.create_topic("orders", partitions)
    for number in range(5):
        handle.publish("orders", b"new %d" % number, partition=0)


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 5), ("latest", 0)])
def test_a_stream_without_a_group_notices_a_topic_that_was_made_again(
    sdk_backend: SdkBackend, reset: str, expected: int
) -> None:
    handle = sdk_backend.open()
    handle.create_topic("orders", 1)
    handle.publish_many("orders", [b"1", b"2", b"3"])
    stream = handle.stream("orders", reset=reset)
    assert len(stream.poll(wait=0)) == 3
    replace_topic(handle, partitions=2)
    found = [record.value for _ in range(3) for record in stream.poll(wait=0)]
    assert found == [b"new %d" % number for number in range(expected)]
    handle.publish("orders", b"last", partition=0)
    handle.publish("orders", b"grown", partition=1)
    found = [record.value for _ in range(3) for record in stream.poll(wait=0)]
    assert sorted(found) == [b"grown", b"last"]


def test_a_stream_that_must_not_skip_says_that_its_topic_was_made_again(
    sdk_backend: SdkBackend,
) -> None:
    handle = sdk_backend.open()
    handle.create_topic("orders", 2)
    handle.publish("orders", b"1", partition=0)
    stream = handle.stream("orders", reset="error")
    assert len(stream.poll(wait=0)) == 1
    replace_topic(handle, partitions=2)
    for _ in range(2):
        with pytest.raises(headrace.TopicReplaced, match="begin anew"):
            stream.poll(wait=0)
    stream.seek(3, partition=0)
    stream.seek("earliest", partition=1)
    assert [record.value for record in stream.poll(wait=0)] == [b"new 3", b"new 4"]


def test_a_stream_goes_on_with_a_topic_that_was_made_again_with_fewer_partitions(
    sdk_backend: SdkBackend,
) -> None:
    handle = sdk_backend.open()
    handle.create_topic("orders", 3)
    handle.publish("orders", b"1", partition=2)
    stream = handle.stream("orders")
    some = handle.stream("orders", partitions=[2])
    assert len(stream.poll(wait=0)) == len(some.poll(wait=0)) == 1
    replace_topic(handle)
    assert len([record for _ in range(3) for record in stream.poll(wait=0)]) == 5
    assert stream.assignment() == [("orders", 0)]
    with pytest.raises(headrace.UnknownPartition):
        some.poll(wait=0)


def test_a_stream_group_lives_on_without_one_of_its_topics(orders: headrace.Headrace) -> None:
    orders.create_topic("other", 1)
    with orders.stream(["orders", "other"], "audit") as stream:
        orders.delete_topic("orders")
        orders.publish("other", b"1")
        assert [record.value for record in stream.poll(wait=0)] == [b"1"]
        assert stream.poll(wait=0) == []
        assert [topic.name for topic in orders.topics()] == ["other"]
