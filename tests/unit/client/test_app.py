"""What an app's functions are given, and what their end means for a message."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

import headrace
from headrace import testing
from headrace.client.app import Next
from headrace.client.crew import Crew

Handle = headrace.Headrace


@dataclass
class Order:
    id: int


class OrderStruct(msgspec.Struct):
    id: int


class OrderModel(BaseModel):
    id: int


@pytest.fixture
def handle() -> Iterator[Handle]:
    with testing.open(auto_create=True) as opened:
        yield opened


@pytest.fixture
def app() -> headrace.App:
    return headrace.App()


@pytest.mark.parametrize("kind", [Order, OrderStruct, OrderModel])
def test_a_value_comes_as_its_annotation_says(
    app: headrace.App, handle: Handle, kind: type[Any]
) -> None:
    seen: list[Any] = []

    def bill(order: Any) -> None:
        seen.append(order)

    bill.__annotations__["order"] = kind
    app.worker("orders", group="billing")(bill)
    handle.publish("orders", {"id": 7})
    counts = testing.drain(app, handle)
    assert [type(order) for order in seen] == [kind]
    assert seen[0].id == 7
    assert counts[bill.__qualname__].done == 1
    assert handle.depth("orders", group="billing") == 0


def test_a_worker_may_take_the_message_beside_the_value(app: headrace.App, handle: Handle) -> None:
    seen = []

    @app.worker("orders")
    async def bill(order: Order, message: headrace.AsyncMessage[Order]) -> None:
        seen.append((order.id, message.attempt, message.key))

    @app.worker("orders", group="others")
    def look(message: headrace.Message[Any]) -> None:
        seen.append((message.value["id"], message.attempt, message.key))

    handle.publish("orders", {"id": 7}, key="k")
    testing.drain(app, handle)
    assert seen == [(7, 1, b"k"), (7, 1, b"k")]


def test_an_exception_is_retried_with_backoff_until_it_is_a_dead_letter(
    app: headrace.App, handle: Handle
) -> None:
    attempts = []

    @app.worker("orders", max_attempts=3, backoff_ms=20_000)
    def fail(message: headrace.Message[Any]) -> None:
        attempts.append((message.attempt, message.delivered_at))
        raise ValueError("no such customer")

    handle.publish("orders", b"x")
    counts = testing.drain(app, handle)
    assert [attempt for attempt, _ in attempts] == [1, 2, 3]
    times = [at for _, at in attempts]
    assert [(after - before).total_seconds() for before, after in pairwise(times)] == [20, 40]
    assert next(iter(counts.values())).failed == 3
    [letter] = handle.dead_letters("orders")
    assert letter.error == "ValueError: no such customer"


def test_retry_names_its_own_delay(app: headrace.App, handle: Handle) -> None:
    delivered = []

    @app.worker("orders")
    def later(message: headrace.Message[Any]) -> None:
        delivered.append(message.delivered_at)
        if message.attempt == 1:
            raise headrace.Retry("the bank is closed", delay=3_600)

    handle.publish("orders", b"x")
    testing.drain(app, handle)
    assert (delivered[1] - delivered[0]).total_seconds() == 3_600


def test_reject_goes_to_the_dead_letters_at_once(app: headrace.App, handle: Handle) -> None:
    @app.worker("orders")
    async def refuse(value: bytes) -> None:
        raise headrace.Reject("we do not sell these")

    handle.publish("orders", b"x")
    counts = testing.drain(app, handle)
    assert next(iter(counts.values())).rejected == 1
    [letter] = handle.dead_letters("orders")
    assert letter.error == "we do not sell these"


def test_a_value_that_does_not_decode_is_a_dead_letter_and_not_an_attempt(
    app: headrace.App, handle: Handle
) -> None:
    @app.worker("orders")
    def bill(order: Order) -> None:
        raise AssertionError("it is not called")

    handle.publish("orders", {"name": "nobody"})
    testing.drain(app, handle)
    [letter] = handle.dead_letters("orders")
    assert letter.error is not None
    assert "does not hold Order" in letter.error


def test_what_a_worker_settled_itself_is_left_alone(app: headrace.App, handle: Handle) -> None:
    @app.worker("orders")
    def choose(value: bytes, message: headrace.Message[bytes]) -> None:
        if value == b"bad":
            message.reject(error="by hand")
        else:
            message.ack()

    handle.publish_many("orders", [b"good", b"bad"])
    testing.drain(app, handle)
    assert [letter.raw for letter in handle.dead_letters("orders")] == [b"bad"]
    assert handle.depth("orders") == 0


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_worker_settled_itself_is_counted(
    app: headrace.App, handle: Handle, is_async: bool
) -> None:
    def words(message: Any) -> Any:
        if message.value == b"again" and message.attempt == 1:
            return message.nack()
        return message.reject() if message.value == b"bad" else message.ack()

    if is_async:

        @app.worker("orders")
        async def choose(message: headrace.AsyncMessage[bytes]) -> None:
            await words(message)
            if message.value == b"late":
                raise ValueError("after it was settled")
    else:

        @app.worker("orders")
        def choose_on_a_thread(message: headrace.Message[bytes]) -> None:
            words(message)
            if message.value == b"late":
                raise ValueError("after it was settled")

    handle.publish_many("orders", [b"good", b"bad", b"again", b"late"])
    [counts] = testing.drain(app, handle).values()
    assert (counts.done, counts.failed, counts.rejected, counts.lost) == (3, 1, 1, 0)


def test_middleware_wraps_every_message_from_the_outside_in(
    app: headrace.App, handle: Handle
) -> None:
    steps = []

    @app.middleware
    async def outer(message: headrace.AsyncMessage[Any], call_next: Next) -> None:
        steps.append("outer")
        await call_next(message)
        steps.append("outer again")

    @app.middleware
    async def inner(message: headrace.AsyncMessage[Any], call_next: Next) -> None:
        steps.append("inner")
        await call_next(message)

    @app.worker("orders")
    def bill(value: bytes) -> None:
        steps.append("bill")

    handle.publish("orders", b"x")
    testing.drain(app, handle)
    assert steps == ["outer", "inner", "bill", "outer again"]


def test_the_lifespan_surrounds_all_work(handle: Handle) -> None:
    steps = []

    @asynccontextmanager
    async def lifespan(app: headrace.App) -> AsyncIterator[None]:
        steps.append("opened")
        yield
        steps.append("closed")

    app = headrace.App(lifespan=lifespan)

    @app.worker("orders")
    def bill(value: bytes) -> None:
        steps.append("bill")

    handle.publish("orders", b"x")
    testing.drain(app, handle)
    assert steps == ["opened", "bill", "closed"]


def test_a_worker_stays_a_function(app: headrace.App) -> None:
    @app.worker("numbers")
    def double(number: int) -> int:
        return number * 2

    assert double(4) == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, "concurrency must be from 1"),
        ({"concurrency": "many"}, "concurrency must be a whole number"),
        ({"max_attemps": 3}, "unknown setting 'max_attemps'"),
        ({"timeout": 0}, "timeout must be at least"),
    ],
)
def test_a_wrong_option_is_refused_where_it_stands(
    app: headrace.App, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(headrace.InvalidArgument, match=message):
        app.worker("orders", **options)


def test_a_parameter_that_nobody_fills_is_refused(app: headrace.App) -> None:
    with pytest.raises(headrace.InvalidArgument, match="'database' has nobody to fill it"):

        @app.worker("orders")
        def bill(order: Order, database: str) -> None: ...


def test_an_app_without_workers_says_so(app: headrace.App, handle: Handle) -> None:
    with pytest.raises(headrace.InvalidArgument, match="has no workers"):
        testing.drain(app, handle)


def test_a_worker_that_feeds_itself_is_noticed(app: headrace.App, handle: Handle) -> None:
    @app.worker("orders")
    def again(value: bytes) -> None:
        handle.publish("orders", value)

    handle.publish("orders", b"x")
    with pytest.raises(headrace.InvalidArgument, match="may feed itself"):
        testing.drain(app, handle, messages_max=20)


# At work, on a real clock.


async def working(app: headrace.App, handle: Handle, until: asyncio.Event) -> Crew:
    """Run the app until the event, and stop it."""
    borrowed = headrace.AsyncHeadrace(handle)
    crew = Crew(app, borrowed)
    running = asyncio.create_task(crew.run(grace=20))
    await asyncio.wait_for(until.wait(), 20)
    crew.stop()
    await running
    borrowed.detach()
    return crew


@pytest.fixture
def timed() -> Iterator[Handle]:
    with headrace.open(":memory:", auto_create=True) as opened:
        yield opened


def test_as_many_run_at_once_as_the_concurrency_says(app: headrace.App, timed: Handle) -> None:
    async def work() -> tuple[int, Crew]:
        done = asyncio.Event()
        most = running = finished = 0

        @app.worker("orders", concurrency=4)
        async def bill(value: bytes) -> None:
            nonlocal most, running, finished
            running += 1
            most = max(most, running)
            for _ in range(50):
                await asyncio.sleep(0)
            running -= 1
            finished += 1
            if finished == 100:
                done.set()

        timed.publish_many("orders", [b"x"] * 100)
        return most, await working(app, timed, done)

    most, crew = asyncio.run(work())
    assert most <= 4
    assert next(iter(crew.counts.values())).done == 100
    assert timed.depth("orders") == 0


def test_functions_run_on_threads_and_side_by_side(app: headrace.App, timed: Handle) -> None:
    together = threading.Barrier(3)

    async def work() -> None:
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        @app.worker("orders", concurrency=3)
        def bill(value: bytes) -> None:
            # None of them gets past here before all three are here.
            together.wait(20)
            loop.call_soon_threadsafe(done.set)

        timed.publish_many("orders", [b"x"] * 3)
        await working(app, timed, done)

    asyncio.run(work())
    assert timed.depth("orders") == 0


def test_a_lease_is_extended_while_its_function_runs(app: headrace.App, timed: Handle) -> None:
    async def work() -> list[int]:
        done = asyncio.Event()
        attempts = []

        @app.worker("orders", visibility=0.2)
        async def slow(message: headrace.AsyncMessage[bytes]) -> None:
            attempts.append(message.attempt)
            # Several leases long, by the only clock that counts here.
            asyncio.get_running_loop().call_later(1, done.set)
            await done.wait()

        timed.publish("orders", b"x")
        await working(app, timed, done)
        return attempts

    assert asyncio.run(work()) == [1]
    assert timed.depth("orders") == 0


def test_a_function_that_takes_too_long_has_failed(app: headrace.App, timed: Handle) -> None:
    async def work() -> list[str | None]:
        done = asyncio.Event()
        errors = []

        @app.worker("orders", timeout=0.05, backoff_ms=0)
        async def hang(message: headrace.AsyncMessage[bytes]) -> None:
            errors.append(message.error)
            if message.attempt == 2:
                done.set()
                return
            await asyncio.Event().wait()

        timed.publish("orders", b"x")
        await working(app, timed, done)
        return errors

    assert asyncio.run(work()) == [None, "TimeoutError: not done after 0.05 s"]


def test_what_does_not_end_within_the_grace_is_given_back_at_no_cost(
    app: headrace.App, timed: Handle
) -> None:
    async def work() -> None:
        started = asyncio.Event()

        @app.worker("orders")
        async def hang(value: bytes) -> None:
            started.set()
            await asyncio.Event().wait()

        timed.publish("orders", b"x")
        borrowed = headrace.AsyncHeadrace(timed)
        crew = Crew(app, borrowed)
        running = asyncio.create_task(crew.run(grace=0))
        await started.wait()
        crew.stop()
        await running
        borrowed.detach()

    asyncio.run(work())
    [message] = timed.queue("orders").lease()
    assert message.attempt == 1
