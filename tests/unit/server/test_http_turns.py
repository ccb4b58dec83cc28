"""Answers that may be large are made a few at a time, and who waits for news does not count."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from headrace.core import limits
from headrace.server.http.arriving import Budget
from headrace.server.http.route import Call, Route, endpoint
from headrace.server.http.turns import Turns

MAX = limits.HTTP_ANSWERS_AT_ONCE_MAX
# It takes as long as a turn of the loop has for it also where nobody else is there.
LARGE = 4 * 1024 * 1024


class Made:
    """A route whose answers are under way until the test says otherwise."""

    def __init__(
        self, *, waits: bool = False, takes_turn: bool = False, reads_through: bool = False
    ) -> None:
        self._waits = waits
        self._takes_turn = takes_turn
        self.begun = self.shown = self.undone = 0
        self.found = asyncio.Event()
        self.may_end = asyncio.Event()
        self.gone = asyncio.Event()
        loop = asyncio.get_running_loop()
        service = SimpleNamespace(closing=loop.create_future(), loop=loop)
        calls: Any = SimpleNamespace(run=None, service=service)
        calls.asked_by = lambda _: calls
        nothing: Any = None
        route = Route(
            "GET", "/large", self._handle, "", "", has_messages=True, takes_turn=takes_turn,
            reads_through=reads_through,
        )  # fmt: skip
        self._serve = endpoint(route, calls, nothing, nothing, Budget(), nothing)

    async def _handle(self, call: Call) -> dict[str, str]:
        self.begun += 1
        if self._takes_turn:
            await self.found.wait()
            await call.take_turn(self._undo)
            self.shown += 1
        if self._waits:
            await call.unless_gone(self._wait())
        else:
            await self.may_end.wait()
        return {}

    async def _undo(self) -> None:
        self.undone += 1

    async def _wait(self) -> list[Any]:
        await self.may_end.wait()
        return []

    def ask(self) -> asyncio.Task[Any]:
        async def receive() -> Any:
            await self.gone.wait()
            return {"type": "http.disconnect"}

        scope = {"type": "http", "method": "GET", "headers": [], "query_string": b""}
        return asyncio.create_task(_serve(self._serve, Request(scope, receive)))


async def _serve(serve: Any, request: Request) -> Any:
    return await serve(request)


async def settle() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


def test_who_is_gone_does_not_stay_in_line() -> None:
    async def play() -> None:
        made = Made()
        served = [made.ask() for _ in range(MAX)]
        waiting = [made.ask() for _ in range(5)]
        await settle()
        assert made.begun == MAX
        made.gone.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in found] == [ClientDisconnect] * 5
        # Nor has any of them kept a place of the line's.
        made.gone.clear()
        later = [made.ask() for _ in range(2 * MAX)]
        made.may_end.set()
        await asyncio.gather(*served, *later)

    asyncio.run(play())


def test_what_was_found_for_somebody_who_is_gone_in_line_is_given_back() -> None:
    async def play() -> None:
        made = Made(takes_turn=True)
        made.found.set()
        served = [made.ask() for _ in range(MAX)]
        waiting = [made.ask() for _ in range(3)]
        await settle()
        assert (made.begun, made.shown) == (MAX + 3, MAX)
        made.gone.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in found] == [ClientDisconnect] * 3
        assert made.undone == 3
        made.may_end.set()
        await asyncio.gather(*served)
        assert made.undone == 3

    asyncio.run(play())


def test_only_some_large_answers_are_made_at_once_and_all_in_the_end() -> None:
    async def play() -> None:
        made = Made()
        asked = [made.ask() for _ in range(3 * MAX)]
        await settle()
        assert made.begun == MAX
        # One that is given up lets the next one.
        asked[0].cancel()
        await settle()
        assert made.begun == MAX + 1
        made.may_end.set()
        answers = await asyncio.gather(*asked[1:])
        assert {answer.status_code for answer in answers} == {200}
        assert made.begun == 3 * MAX

    asyncio.run(play())


def test_what_reads_for_long_ends_with_its_client_also_where_it_waits_for_its_turn() -> None:
    async def play() -> None:
        made = Made(reads_through=True)
        asked = [made.ask() for _ in range(3 * MAX)]
        await settle()
        assert made.begun == MAX
        made.gone.set()
        for each in asked:
            with pytest.raises(ClientDisconnect):
                await each
        # Nobody's turn was kept.
        made.gone.clear()
        made.may_end.set()
        answers = await asyncio.gather(*(made.ask() for _ in range(MAX)))
        assert {answer.status_code for answer in answers} == {200}

    asyncio.run(play())


def test_after_a_large_answer_others_have_their_turn_of_the_loop() -> None:
    async def play() -> None:
        turns = Turns(asyncio.get_running_loop())
        begun: list[int] = []

        async def answer(number: int) -> None:
            await turns.take()
            begun.append(number)
            turns.end(LARGE)

        asked = [asyncio.create_task(answer(number)) for number in range(4 * MAX)]
        counts = []
        while len(begun) < len(asked):
            counts.append(len(begun))
            await asyncio.sleep(0)
        # The first few at once, then one in a turn.
        assert max(after - before for before, after in pairwise(counts[2:])) <= 1
        await asyncio.gather(*asked)

    asyncio.run(play())


def test_a_handler_that_is_long_in_finding_messages_keeps_nobody_waiting() -> None:
    async def play() -> None:
        made = Made(takes_turn=True)
        asked = [made.ask() for _ in range(3 * MAX)]
        await settle()
        assert (made.begun, made.shown) == (3 * MAX, 0)
        made.found.set()
        await settle()
        assert made.shown == MAX
        made.may_end.set()
        assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}

    asyncio.run(play())


def test_requests_that_wait_for_messages_take_no_turns() -> None:
    async def play() -> None:
        made = Made(waits=True)
        asked = [made.ask() for _ in range(3 * MAX)]
        await settle()
        assert made.begun == 3 * MAX
        made.may_end.set()
        assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}

    asyncio.run(play())
