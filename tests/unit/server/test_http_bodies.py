"""Bodies of HTTP requests that are arriving are bounded in sum."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from tests.unit.server.asking import ManualLoop

from headrace.core import limits
from headrace.core.errors import LimitExceeded
from headrace.server import stalls
from headrace.server.http.arriving import Budget


def test_a_body_that_is_too_much_beside_others_is_refused_and_room_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HTTP_BODIES_BYTES_MAX", 100)

    async def play() -> None:
        budget, may_end = Budget(), asyncio.Event()

        def request(*chunks: bytes, is_whole: bool = True) -> Request:
            left = list(chunks)

            async def receive() -> Any:
                if not left and not is_whole:
                    await may_end.wait()
                body = left.pop(0) if left else b""
                return {"type": "http.request", "body": body, "more_body": bool(left)}

            async def receive_slowly() -> Any:
                found = await receive()
                return {**found, "more_body": not is_whole and not may_end.is_set()}

            return Request({"type": "http", "headers": []}, receive if is_whole else receive_slowly)

        slow = asyncio.create_task(budget.read_body(request(bytes(60), is_whole=False), 100))
        while not budget.size_bytes:
            await asyncio.sleep(0)
        assert await budget.read_body(request(bytes(20), bytes(20)), 100) == bytes(40)
        with pytest.raises(LimitExceeded, match="try again later"):
            await budget.read_body(request(bytes(20), bytes(21)), 100)
        may_end.set()
        assert await slow == bytes(60)
        assert budget.size_bytes == 0

    asyncio.run(play())


def test_a_body_that_comes_slowly_makes_room_when_others_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HTTP_BODIES_BYTES_MAX", 100)

    async def play() -> None:
        budget = Budget()

        def request(*chunks: bytes) -> Request:
            """One that never ends, when there are no chunks left."""
            left = list(chunks)

            async def receive() -> Any:
                if not left:
                    await asyncio.Event().wait()
                await asyncio.sleep(0)
                body = left.pop(0)
                return {"type": "http.request", "body": body, "more_body": body != b"end"}

            return Request({"type": "http", "headers": []}, receive)

        slow = asyncio.create_task(budget.read_body(request(bytes(50)), 100))
        slower = asyncio.create_task(budget.read_body(request(bytes(20)), 100))
        while budget.size_bytes < 70:
            await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ManualLoop)
        loop.skipped_seconds += 2 * stalls.STEADY_SECONDS
        # It is not itself that it is cut for.
        quick = await budget.read_body(request(bytes(10), bytes(10), b"end"), 100)
        assert quick == bytes(20) + b"end"
        with pytest.raises(LimitExceeded, match="came slowly"):
            await slower
        assert not slow.done()
        assert budget.size_bytes == 50
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert budget.size_bytes == 0

    # On a busy machine time would decide which of the two was slower.
    with asyncio.Runner(loop_factory=ManualLoop) as runner:
        runner.run(play())
