"""Looking through very many dead letters: others have their turn meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.server.test_loop_calls import GROUP, TOPIC, Served, on_a_loop

from headrace.calls import Face
from headrace.server import slices
from headrace.server.http import letters
from headrace.wire.http import bodies

MANY = 3_000


@pytest.fixture(autouse=True)
def shortest_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)


def dry_run(call: Any) -> Coroutine[Any, Any, Any]:
    call.body = bodies.Redrive(all=True, dry_run=True)
    return letters.redrive(call)


def redrive_of_nothing(call: Any) -> Coroutine[Any, Any, Any]:
    call.body = bodies.Redrive(reason="no letter says this")
    return letters.redrive(call)


def purge_of_nothing(call: Any) -> Coroutine[Any, Any, Any]:
    call.body = bodies.LetterChoice(reason="no letter says this")
    return letters.purge(call)


def by_reason(call: Any) -> Coroutine[Any, Any, Any]:
    return letters.group_by_reason(call)


@pytest.mark.parametrize("ask", [dry_run, redrive_of_nothing, purge_of_nothing, by_reason])
def test_others_have_their_turn_while_letters_are_looked_through(
    ask: Callable[[Any], Coroutine[Any, Any, Any]],
) -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        await served.publish(*[b"value"] * MANY)
        leased = await served.lease(MANY)
        await served.run(Face.reject, GROUP, [each.receipt for each in leased], reason="bad")
        call = SimpleNamespace(
            calls=served.calls, run=served.run, service=served.service, path={"topic": TOPIC}
        )
        asked = asyncio.ensure_future(ask(call))
        turns = 0
        while not asked.done():
            turns += 1
            await asyncio.sleep(0)
        await asked
        # Without slices it is one.
        assert turns >= MANY // 1_000

    on_a_loop(scenario)
