"""Functions of 20 seconds and more: each job runs once, on a lease of 30 seconds.

Time is skipped where it is honest: whatever happens at a time, such as the extension of a
lease, happens on the way, at that time. The same for real is in
tests/contract/cli/test_work_for_long.py. Loops without a worker: test_long_loops.py.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

import headrace
from headrace import testing
from headrace.client.crew import Crew
from headrace.client.station import Counts
from headrace.testing import ManualClock

Handle = headrace.Headrace
WAIT = 20


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(autoskip=False)


@pytest.fixture
def handle(clock: ManualClock) -> Iterator[Handle]:
    with testing.open(clock, auto_create=True) as opened:
        yield opened


@pytest.fixture
def app() -> headrace.App:
    return headrace.App()


class Sleeper:
    """`await sleep(20)` on a clock that is skipped whenever everybody sleeps."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._numbers = count()
        self._asleep: list[tuple[int, int, asyncio.Event]] = []
        self._changed = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        at_ms = self._clock.now_ms() + round(seconds * 1000)
        heapq.heappush(self._asleep, (at_ms, next(self._numbers), woken))
        self._changed.set()
        await woken.wait()

    async def run(self, handle: headrace.AsyncHeadrace) -> None:
        while True:
            await self._changed.wait()
            await handle._calls.wait_idle()
            at_ms, _, woken = heapq.heappop(self._asleep)
            if not self._asleep:
                self._changed.clear()
            self._clock.skip_to(at_ms)
            woken.set()


async def work(
    app: headrace.App, handle: Handle, until: asyncio.Event, sleeper: Sleeper | None = None
) -> Counts:
    """Run the app until the event, and stop it; what its first worker has done."""
    borrowed = headrace.AsyncHeadrace(handle)
    crew = Crew(app, borrowed)
    running = asyncio.create_task(crew.run(grace=WAIT))
    skipping = asyncio.create_task(sleeper.run(borrowed)) if sleeper is not None else None
    waiting = asyncio.create_task(until.wait())
    await asyncio.wait([running, waiting], timeout=WAIT, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    assert running.done() or until.is_set()
    crew.stop()
    try:
        await running
    finally:
        if skipping is not None:
            skipping.cancel()
        borrowed.detach()
    return next(iter(crew.counts.values()))


def acked(handle: Handle, topic: str = "jobs") -> tuple[int, int]:
    """How many are left, and how many dead letters there are."""
    return handle.depth(topic), len(list(handle.dead_letters(topic)))


@pytest.mark.parametrize("seconds", [20, 100])
def test_a_worker_with_all_defaults_runs_each_job_once(
    app: headrace.App, handle: Handle, clock: ManualClock, seconds: int
) -> None:
    begun: list[int] = []

    async def main() -> Counts:
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        @app.worker("jobs")
        def job(message: headrace.Message[Any]) -> None:
            begun.append(message.offset)
            assert message.attempt == 1
            clock.skip(seconds)
            if len(begun) == 4:
                loop.call_soon_threadsafe(done.set)

        handle.create_topic("jobs", 1)
        handle.publish_many("jobs", [b"x"] * 4)
        return await work(app, handle, done)

    assert asyncio.run(main()) == Counts(done=4)
    assert begun == [0, 1, 2, 3]
    assert acked(handle) == (0, 0)


@pytest.mark.parametrize("options", [{"prefetch": 1}, {}], ids=["prefetch of one", "defaults"])
@pytest.mark.parametrize("seconds", [20, 100])
def test_coroutines_side_by_side_run_each_job_once(
    app: headrace.App,
    handle: Handle,
    clock: ManualClock,
    seconds: int,
    options: dict[str, Any],
) -> None:
    async def main() -> tuple[Counts, Counter[int]]:
        sleeper = Sleeper(clock)
        done = asyncio.Event()
        begun: Counter[int] = Counter()

        @app.worker("jobs", concurrency=4, **options)
        async def job(message: headrace.AsyncMessage[Any]) -> None:
            begun[message.offset] += 1
            await sleeper.sleep(seconds + message.offset)
            if message.offset == 9:
                done.set()

        handle.create_topic("jobs", 1)
        handle.publish_many("jobs", [b"x"] * 10)
        return await work(app, handle, done, sleeper), begun

    counts, begun = asyncio.run(main())
    assert begun == Counter(range(10))
    assert counts == Counts(done=10)
    assert acked(handle) == (0, 0)


def test_what_waits_behind_a_slow_job_goes_to_another_worker_and_it_does_not_count(
    app: headrace.App, handle: Handle, clock: ManualClock
) -> None:
    async def main() -> list[tuple[bytes | None, int]]:
        slow, done = asyncio.Event(), asyncio.Event()

        @app.worker("jobs")
        async def job(value: bytes) -> None:
            if value == b"slow":
                slow.set()
                await done.wait()

        handle.create_topic("jobs", 1)
        # The quick ones make the worker lease a few ahead.
        handle.publish_many("jobs", [b"quick"] * 40 + [b"slow"] + [b"behind"] * 3)

        async def look() -> list[tuple[bytes | None, int]]:
            await slow.wait()
            borrowed = headrace.AsyncHeadrace(handle)
            async with borrowed.queue("jobs") as other:
                found: list[headrace.AsyncMessage[Any]] = []
                looks = 0
                while len(found) < 3:
                    # In steps, since the worker may lease ahead behind one of them; all
                    # of them together are shorter than a lease.
                    if looks % 50 == 0 and looks < 500:
                        clock.skip(2)
                    looks += 1
                    found += await other.receive(10, wait=0)
                await other.ack(found)
            borrowed.detach()
            done.set()
            return [(each.raw, each.attempt) for each in found]

        looking = asyncio.create_task(look())
        await work(app, handle, done)
        return await looking

    assert asyncio.run(main()) == [(b"behind", 1)] * 3
    assert acked(handle) == (0, 0)


def test_a_test_may_let_functions_take_their_time(
    app: headrace.App, handle: Handle, clock: ManualClock
) -> None:
    @app.worker("jobs", concurrency=4)
    def job(value: bytes) -> None:
        clock.skip(45)

    handle.publish_many("jobs", [b"x"] * 8)
    counts = testing.drain(app, handle)
    assert next(iter(counts.values())) == Counts(done=8)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_timeout_ends_the_function_and_its_lease(
    app: headrace.App, handle: Handle, clock: ManualClock, is_async: bool
) -> None:
    let_go = threading.Event()

    def hang(message: headrace.Message[Any]) -> None:
        clock.skip(3_000)
        let_go.wait(WAIT)

    async def hang_on_the_loop(message: headrace.AsyncMessage[Any]) -> None:
        clock.skip(3_000)
        await asyncio.Event().wait()

    worker = app.worker("jobs", timeout=100, max_attempts=1, concurrency=4)
    worker(hang_on_the_loop if is_async else hang)
    handle.publish("jobs", b"x")
    counts = testing.drain(app, handle)
    let_go.set()
    assert next(iter(counts.values())).failed == 1
    [letter] = handle.dead_letters("jobs")
    assert letter.error is not None
    assert letter.error.startswith("TimeoutError: not done after 100 s")


# When the lease is lost all the same.


def test_a_coroutine_whose_lease_is_lost_is_cancelled_and_its_message_comes_again(
    app: headrace.App, handle: Handle, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> tuple[Counts, list[str]]:
        steps: list[str] = []
        done = asyncio.Event()

        @app.worker("jobs")
        async def job(message: headrace.AsyncMessage[Any]) -> None:
            steps.append(f"attempt {message.attempt}")
            if message.attempt == 2:
                done.set()
                return
            # As if the node had ended it.
            handle.queue("jobs").nack(message.receipt, delay=0)
            clock.skip(20)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                steps.append(f"lost: {message.lost}")
                raise

        handle.publish("jobs", b"x")
        return await work(app, handle, done), steps

    counts, steps = asyncio.run(main())
    assert steps == ["attempt 1", "lost: True", "attempt 2"]
    assert counts == Counts(done=1, lost=1)
    assert "jobs:" in caplog.text and "the function is cancelled" in caplog.text


def test_a_function_on_a_thread_can_look_whether_its_lease_is_lost(
    app: headrace.App, handle: Handle, clock: ManualClock
) -> None:
    seen = []

    @app.worker("jobs")
    def job(message: headrace.Message[Any]) -> None:
        seen.append(message.lost)
        if message.attempt == 1:
            handle.queue("jobs").nack(message.receipt, delay=0)
            clock.skip(20)
            seen.append(message.lost)

    handle.publish("jobs", b"x")
    counts = testing.drain(app, handle)
    assert seen == [False, True, False]
    assert next(iter(counts.values())) == Counts(done=1, lost=1)


# What counts as a failure.


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "ends",
    # Of the last two none is about the function's own task, which nobody has ended.
    [SystemExit(3), BaseException("odd"), asyncio.CancelledError("inner"), GeneratorExit("odd")],
)
def test_a_function_that_exits_has_failed_and_the_worker_goes_on(
    app: headrace.App, handle: Handle, is_async: bool, ends: BaseException
) -> None:
    def leave(value: bytes) -> None:
        if value == b"bad":
            raise ends

    async def leave_on_the_loop(value: bytes) -> None:
        leave(value)

    app.worker("jobs", max_attempts=3, backoff_ms=0)(leave_on_the_loop if is_async else leave)
    handle.publish_many("jobs", [b"bad", b"good"])
    counts = testing.drain(app, handle)
    assert next(iter(counts.values())) == Counts(done=1, failed=3)
    [letter] = handle.dead_letters("jobs")
    assert (letter.raw, letter.attempts) == (b"bad", 3)
    assert letter.error == f"{type(ends).__name__}: {ends}"


@pytest.mark.parametrize(
    ("ends", "attempt"),
    [
        (SystemExit(1), 2),
        (BaseExceptionGroup("several", [KeyboardInterrupt(), SystemExit()]), 2),
        (KeyboardInterrupt(), 1),
        (BaseExceptionGroup("several", [KeyboardInterrupt()]), 1),
    ],
    ids=["exit", "a group with an exit", "interrupt", "a group of interrupts"],
)
def test_leaving_a_block_by_an_exit_counts_and_by_an_interrupt_does_not(
    handle: Handle, ends: BaseException, attempt: int
) -> None:
    handle.publish("jobs", b"x")
    with handle.queue("jobs", backoff_ms=0) as queue:
        with pytest.raises(type(ends)), queue.receive()[0]:
            raise ends
        [again] = queue.receive()
        assert again.attempt == attempt


# Functions that hang.


def test_a_thread_that_hangs_is_replaced_and_too_many_end_the_crew(
    app: headrace.App, handle: Handle, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    let_go = threading.Event()
    done: list[bytes] = []

    async def main() -> Counts:
        counts: dict[str, Counts] = {}

        @app.worker("jobs", concurrency=2, timeout=10, max_attempts=1)
        def job(value: bytes) -> None:
            if value.startswith(b"hang"):
                clock.skip(11)
                let_go.wait(WAIT)
            else:
                done.append(value)

        handle.create_topic("jobs", 1)
        handle.publish_many("jobs", [b"hang", b"1", b"2", b"3"])
        borrowed = headrace.AsyncHeadrace(handle)
        crew = Crew(app, borrowed)
        running = asyncio.create_task(crew.run(grace=WAIT))
        while crew.counts[next(iter(crew.counts))].done < 3:
            await asyncio.sleep(0)
        # One of two hangs, and both slots work.
        handle.publish_many("jobs", [b"hang again", b"4"])
        with pytest.raises(headrace.WorkersHung, match="2 functions did not end"):
            await running
        borrowed.detach()
        counts = crew.counts
        return next(iter(counts.values()))

    try:
        counts = asyncio.run(main())
    finally:
        let_go.set()
    assert sorted(done)[:3] == [b"1", b"2", b"3"]
    assert (counts.failed, counts.hung) == (2, 2)
    assert "its thread goes on and is replaced" in caplog.text


# What is logged.


def test_a_failure_is_one_record_with_everything_in_its_text_and_a_traceback(
    app: headrace.App, handle: Handle, caplog: pytest.LogCaptureFixture
) -> None:
    @app.worker("jobs", max_attempts=1)
    def job(value: bytes) -> None:
        raise ValueError("no such customer")

    handle.create_topic("jobs", 1)
    handle.publish("jobs", b"x")
    with caplog.at_level(logging.WARNING):
        testing.drain(app, handle)
    [record] = caplog.records
    assert record.getMessage().endswith(
        "job: jobs:0:0 (attempt 1 of 1) failed: ValueError: no such customer"
    )
    assert "in job" in caplog.text and "raise ValueError" in caplog.text
    assert (record.topic, record.id, record.attempt) == ("jobs", "jobs:0:0", 1)  # type: ignore[attr-defined]
