"""Who has used little of the loop is served at once, and who has used much stands in line."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from itertools import pairwise
from time import perf_counter
from typing import Any

import pytest

from headrace.server import shares
from headrace.server.shares import LINE_SECONDS, Account, Line, Metered, shares_of
from headrace.server.slices import Slices


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test sets."""
    time = [100.0]
    monkeypatch.setattr(shares, "perf_counter", lambda: time[0])
    return time


def line() -> Line:
    """Beside which there are others."""
    made = Line(LINE_SECONDS, shares.ALONE_SECONDS)
    made.others_at = float("inf")
    return made


async def counted_turns(done: list[Any], count: int) -> list[int]:
    """How many were done by the end of each turn of the loop, until all were."""
    counts = []
    while len(done) < count:
        await asyncio.sleep(0)
        counts.append(len(done))
    return counts


def test_a_turn_of_the_loop_serves_as_many_of_the_line_as_fit_into_it(now: list[float]) -> None:
    async def scenario() -> None:
        waiting, done = line(), list[int]()
        for number in range(40):
            waiting.join(lambda number=number: done.append(number), LINE_SECONDS / 3.5)  # type: ignore[misc]
        counts = await counted_turns(done, 40)
        assert max(after - before for before, after in pairwise([0, *counts])) == 4
        assert done == list(range(40))

    play(scenario)


def test_a_turn_is_longer_where_there_is_nobody_else(now: list[float]) -> None:
    async def scenario() -> None:
        shared = shares_of(asyncio.get_running_loop())
        modest = shared.open_account()
        waiting = shared.line
        assert [waiting.admits(shares.ALONE_SECONDS / 4, is_new=False) for _ in range(2)] == [
            True,
            False,
        ]
        # From the next turn on it is known that nobody is there.
        for is_alone in (True, False, True):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            admitted = [waiting.admits(shares.ALONE_SECONDS / 4, is_new=False) for _ in range(4)]
            assert admitted.count(True) == (4 if is_alone else 1), admitted
            now[0] += 1
            if is_alone:
                # One that has used little is served.
                modest.charge(now[0])
                for _ in range(20):
                    await asyncio.sleep(0)
            else:
                now[0] += shares.ALONE_AFTER_SECONDS
                for _ in range(20):
                    await asyncio.sleep(0)

    play(scenario)


def test_one_that_takes_long_lets_turns_pass_for_it(now: list[float]) -> None:
    async def scenario() -> None:
        waiting, done = line(), list[str]()
        waiting.join(lambda: done.append("long"), 9.5 * LINE_SECONDS)
        waiting.join(lambda: done.append("next"), 0)
        counts = await counted_turns(done, 2)
        assert counts.count(1) == 9

    play(scenario)


def test_what_begins_is_measured_too(now: list[float]) -> None:
    async def scenario() -> None:
        waiting, done = line(), list[int]()

        def work() -> None:
            now[0] += 2 * LINE_SECONDS
            done.append(1)

        for _ in range(5):
            waiting.join(work)
        counts = await counted_turns(done, 5)
        assert max(after - before for before, after in pairwise([0, *counts])) == 1

    play(scenario)


def test_without_a_line_nobody_waits_until_the_turn_is_used_up(now: list[float]) -> None:
    async def scenario() -> None:
        waiting = line()
        assert [waiting.admits(LINE_SECONDS / 2, is_new=False) for _ in range(3)] == [
            True,
            True,
            False,
        ]
        await asyncio.sleep(0)
        assert waiting.admits(LINE_SECONDS, is_new=False)

    play(scenario)


def test_somebody_who_gives_up_does_not_stop_the_line() -> None:
    async def scenario() -> None:
        waiting = line()
        given_up, other = waiting.turn(1), waiting.turn(0)
        given_up.cancel()
        async with asyncio.timeout(60):
            await other

    play(scenario)


def test_newcomers_keep_nobody_waiting_who_was_there_before(now: list[float]) -> None:
    async def scenario() -> None:
        waiting, done = line(), list[str]()
        for _ in range(100):
            waiting.join_new(lambda: done.append("new"), LINE_SECONDS, is_served=False)
        for _ in range(3):
            waiting.join(lambda: done.append("known"), LINE_SECONDS)
        assert waiting.unserved == 100
        assert not waiting.admits(0, is_new=True)
        await counted_turns(done, 6)
        # Nor do they wait for those.
        assert sorted(done[:6]) == ["known"] * 3 + ["new"] * 3
        await asyncio.sleep(0)
        assert waiting.admits(0, is_new=False)
        await counted_turns(done, 103)
        assert waiting.unserved == 0

    play(scenario)


def test_a_connection_is_a_newcomer_until_it_has_used_little(now: list[float]) -> None:
    async def scenario() -> None:
        waiting, done = line(), list[int]()
        account = Account(waiting)

        async def serve() -> None:
            now[0] += LINE_SECONDS

        def line_up() -> tuple[int, int]:
            """How many wait among newcomers, and of them unserved, while it does."""
            account.line_up(lambda: done.append(1))
            return len(waiting._new), waiting.unserved

        assert line_up() == (1, 1)
        await counted_turns(done, 1)
        await Metered(serve(), account)
        assert line_up() == (1, 0)
        await counted_turns(done, 2)
        # In the meantime it has used nothing.
        now[0] += 1
        await Metered(serve(), account)
        assert line_up() == (0, 0)
        await counted_turns(done, 3)

    play(scenario)


def test_an_error_does_not_stop_the_line() -> None:
    async def scenario() -> None:
        waiting, told = line(), list[Any]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

        def fail() -> None:
            raise ValueError("broken")

        waiting.join(fail)
        async with asyncio.timeout(60):
            await waiting.turn(0)
        assert [str(each["exception"]) for each in told] == ["broken"]

    play(scenario)


def test_a_new_account_is_spent_and_fills_with_time(now: list[float]) -> None:
    async def scenario() -> None:
        account = Account(line())
        assert account.is_spent
        now[0] += 1
        assert not account.is_spent
        # It holds no more than a little, however long it waits.
        now[0] += 3_600
        began = now[0]
        now[0] += 2 * shares.SAVED_SECONDS_MAX
        account.charge(began)
        assert account.is_spent

    play(scenario)


def test_who_used_little_goes_at_once_while_others_stand_in_line(now: list[float]) -> None:
    async def scenario() -> None:
        shared = shares_of(asyncio.get_running_loop())
        modest = shared.open_account()
        now[0] += 1
        greedy = [shared.open_account() for _ in range(100)]
        order: list[str] = []

        async def ask(name: str, account: Account) -> None:
            await account.turn()
            order.append(name)

        asking = [asyncio.create_task(ask("greedy", each)) for each in greedy]
        for _ in range(3):
            await asyncio.sleep(0)
        assert 0 < len(order) < len(greedy)
        asking.append(asyncio.create_task(ask("modest", modest)))
        before = len(order)
        await asyncio.sleep(0)
        assert "modest" in order[before:]
        await asyncio.gather(*asking)

    play(scenario)


def test_everybody_is_served_in_the_end(now: list[float]) -> None:
    """Also those who never have anything left."""

    async def scenario() -> None:
        accounts = [shares_of(asyncio.get_running_loop()).open_account() for _ in range(20)]
        served = dict.fromkeys(range(20), 0)

        async def ask(number: int) -> None:
            for _ in range(5):
                await accounts[number].turn()
                served[number] += 1
                accounts[number].charge(now[0] - 1)

        await asyncio.gather(*map(ask, range(20)))
        assert set(served.values()) == {5}

    play(scenario)


def test_the_shares_of_a_loop_are_forgotten_with_it() -> None:
    async def scenario() -> None:
        shares_of(asyncio.get_running_loop()).open_account()
        await Slices().rest()
        await shares_of(asyncio.get_running_loop()).line.turn(0)

    gc.collect()
    before = len(shares.SHARES_OF_LOOPS)
    play(scenario)
    gc.collect()
    assert len(shares.SHARES_OF_LOOPS) == before


def test_slices_of_many_share_the_turns_of_the_loop() -> None:
    async def scenario() -> None:
        done: list[int] = []

        async def work() -> None:
            slices = Slices()
            for _ in range(5):
                end = perf_counter() + LINE_SECONDS
                while perf_counter() < end:
                    pass
                await slices.rest()
                done.append(1)

        working = [asyncio.create_task(work()) for _ in range(10)]
        await asyncio.sleep(0)
        counts = await counted_turns(done, 50)
        assert max(after - before for before, after in pairwise([0, *counts])) == 1
        await asyncio.gather(*working)

    play(scenario)


def test_a_metered_coroutine_pays_for_its_steps_and_not_for_its_waiting(now: list[float]) -> None:
    async def scenario() -> None:
        account = Account(line())

        async def work() -> str:
            now[0] += 0.01
            await asyncio.sleep(0)
            now[0] += 0.02
            return "done"

        assert await Metered(work(), account) == "done"
        assert account.request_seconds == pytest.approx(0.03)

    play(scenario)


def test_a_metered_coroutine_is_told_of_errors_and_cancelled_like_any_other() -> None:
    async def scenario() -> None:
        account, seen = Account(line()), list[str]()

        async def fail() -> None:
            raise KeyError("lost")

        with pytest.raises(KeyError, match="lost"):
            await Metered(fail(), account)

        async def wait() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise
            finally:
                seen.append("cleared away")

        async def metered() -> None:
            await Metered(wait(), account)

        task = asyncio.create_task(metered())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["cancelled", "cleared away"]

        async def forgive() -> str:
            try:
                await asyncio.get_running_loop().run_in_executor(None, _fail)
            except OSError:
                return "forgiven"
            return ""

        assert await Metered(forgive(), account) == "forgiven"

    play(scenario)


def _fail() -> None:
    raise OSError("disk")
