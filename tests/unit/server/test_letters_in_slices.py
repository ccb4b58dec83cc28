"""Looking through very many dead letters: others have their turn meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import ClientDisconnect
from tests.unit.server.test_loop_calls import GROUP, TOPIC, Served, on_a_loop

from headrace.calls import Face
from headrace.server import slices
from headrace.server.http import letters
from headrace.server.http.route import Call
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
        call = await make_call(served)
        asked = asyncio.ensure_future(ask(call))
        turns = 0
        while not asked.done():
            turns += 1
            await asyncio.sleep(0)
        await asked
        # Without slices it is one.
        assert turns >= MANY // 1_000

    on_a_loop(scenario)


async def make_call(served: Served) -> Any:
    """Of a client that stays until `gone` is set, about a topic with many dead letters."""
    await served.make()
    await served.publish(*[b"value"] * MANY)
    leased = await served.lease(MANY)
    await served.run(Face.reject, GROUP, [each.receipt for each in leased], reason="bad")
    gone = asyncio.Event()

    async def receive() -> dict[str, str]:
        await gone.wait()
        return {"type": "http.disconnect"}

    call: Any = SimpleNamespace(
        calls=served.calls, run=served.run, service=served.service, path={"topic": TOPIC},
        request=SimpleNamespace(receive=receive), gone=gone, letters=len(leased),
    )  # fmt: skip
    call.each_while_there = partial(Call.each_while_there, call)
    return call


def redrive_all(call: Any) -> Coroutine[Any, Any, Any]:
    call.body = bodies.Redrive(all=True)
    return letters.redrive(call)


def purge_all(call: Any) -> Coroutine[Any, Any, Any]:
    call.body = bodies.LetterChoice(all=True)
    return letters.purge(call)


@pytest.mark.parametrize(
    ("ask", "told", "rest"),
    [
        (redrive_all, f"redrive ended with its client topic={TOPIC} redriven=500", "redriven"),
        (purge_all, f"purge ended with its client topic={TOPIC} purged=500", "purged"),
    ],
)
def test_what_is_done_with_all_letters_ends_with_its_client_and_says_how_far_it_came(
    ask: Callable[[Any], Coroutine[Any, Any, Any]],
    told: str,
    rest: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(served: Served) -> None:
        call = await make_call(served)

        def leaving(run: Any) -> Any:
            async def leave(work: Any, *args: Any, **named: Any) -> Any:
                if work in (Face.redriving, Face.purge):
                    # In the middle of its first batch, which is done to its end.
                    call.gone.set()
                return await run(work, *args, **named)

            return leave

        call.run = leaving(served.run)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(ClientDisconnect):
            patch.setattr(served.calls, "run_in_slices", leaving(served.calls.run_in_slices))
            await ask(call)
        assert [each.getMessage() for each in caplog.records] == [told]
        # The rest is where it was, and whoever asks again goes on there.
        call.gone.clear()
        call.run = served.run
        assert getattr(await ask(call), rest) == call.letters - 500 > 0

    on_a_loop(scenario)
