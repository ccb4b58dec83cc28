"""Loops over a queue whose body takes longer than a lease, without a worker: each message
is handled once. Time is skipped as in test_long_functions.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import headrace
from headrace import testing
from headrace.testing import ManualClock

Handle = headrace.Headrace


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(autoskip=False)


@pytest.fixture
def handle(clock: ManualClock) -> Iterator[Handle]:
    with testing.open(clock, auto_create=True) as opened:
        yield opened


def acked(handle: Handle, topic: str = "jobs") -> tuple[int, int]:
    """How many are left, and how many dead letters there are."""
    return handle.depth(topic), len(list(handle.dead_letters(topic)))


def test_a_slow_loop_over_what_one_call_gave_handles_each_once(
    handle: Handle, clock: ManualClock
) -> None:
    handle.create_topic("jobs", 1)
    handle.publish_many("jobs", [b"x"] * 10)
    with handle.queue("jobs") as queue, handle.queue("jobs") as other:
        for message in queue.receive(max=10):
            with message:
                assert message.attempt == 1
                clock.skip(20)
                assert other.lease(10) == []
    assert acked(handle) == (0, 0)


@pytest.mark.parametrize("seconds", [20, 100])
def test_a_slow_loop_over_a_queue_handles_each_once(
    handle: Handle, clock: ManualClock, seconds: int
) -> None:
    handle.create_topic("jobs", 1)
    handle.publish_many("jobs", [b"x"] * 40)
    with handle.queue("jobs") as queue:
        for message in queue:
            assert message.attempt == 1
            # Quick at first, so that some are leased ahead.
            clock.skip(0 if message.offset < 20 else seconds)
            message.ack()
            if message.offset == 39:
                break
    assert acked(handle) == (0, 0)


def test_a_slow_async_loop_handles_each_once(handle: Handle, clock: ManualClock) -> None:
    async def main() -> None:
        borrowed = headrace.AsyncHeadrace(handle)
        async with borrowed.queue("jobs") as queue:
            async for message in queue:
                async with message:
                    assert message.attempt == 1
                    clock.skip(0 if message.offset < 20 else 100)
                if message.offset == 39:
                    break
        borrowed.detach()

    handle.create_topic("jobs", 1)
    handle.publish_many("jobs", [b"x"] * 40)
    asyncio.run(main())
    assert acked(handle) == (0, 0)


def test_a_message_keeps_the_lease_of_its_own_length(handle: Handle, clock: ManualClock) -> None:
    handle.publish("jobs", b"x", visibility=120)
    with handle.queue("jobs") as queue, queue.receive()[0]:
        clock.skip(600)
    assert acked(handle) == (0, 0)


def test_a_lease_that_came_with_a_shorter_one_is_not_shortened(
    handle: Handle, clock: ManualClock
) -> None:
    handle.create_topic("jobs", 1)
    handle.publish("jobs", b"short", visibility=1)
    handle.publish("jobs", b"long", visibility=3600)
    with handle.queue("jobs") as queue:
        short, long = queue.receive(max=2)
        with short:
            clock.skip(10)
        # Nobody keeps it, and it has most of its hour left.
        clock.skip(1800)
        with long:
            assert long.attempt == 1
            clock.skip(7200)
    assert acked(handle) == (0, 0)


def test_a_block_that_is_entered_late_does_not_shorten_its_lease(
    handle: Handle, clock: ManualClock
) -> None:
    handle.create_topic("jobs", 1)
    handle.publish("jobs", b"long", visibility=3600)
    handle.publish("jobs", b"short", visibility=1)
    with handle.queue("jobs") as queue:
        long, _ = queue.receive(max=2)
        clock.skip(2)
        # It is early for this one, and what its block would extend it by is its own.
        assert not long.needs_extension()
        assert long.lease_seconds() == 3600


def test_nothing_is_begun_on_a_lease_that_is_over(handle: Handle, clock: ManualClock) -> None:
    handle.publish("jobs", b"x")
    with handle.queue("jobs") as queue:
        [message] = queue.receive()
        clock.skip(31)
        begun = False
        with pytest.raises(headrace.StaleReceipt), message:
            begun = True
        assert not begun


def test_a_lease_that_is_nearly_over_is_extended_before_the_block(
    handle: Handle, clock: ManualClock
) -> None:
    handle.publish("jobs", b"x")
    with handle.queue("jobs") as queue:
        [message] = queue.receive()
        clock.skip(29)
        with message:
            clock.skip(29)
    assert acked(handle) == (0, 0)


def test_who_does_not_want_it_extends_leases_by_hand(handle: Handle, clock: ManualClock) -> None:
    handle.publish("jobs", b"x")
    with handle.queue("jobs", auto_extend=False) as queue:
        with pytest.raises(headrace.StaleReceipt), queue.receive()[0]:
            clock.skip(31)
