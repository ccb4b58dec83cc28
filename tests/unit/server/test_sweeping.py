"""A sweep looks at everyone, a few at a time."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.server.sweeping import LOOKED_AT_MIN, STEP_SECONDS, Sweeper


class HandLoop:
    """Timers that the test lets pass."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timer: tuple[float, Any, tuple[Any, ...]] | None = None

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Any, *arguments: Any) -> Any:
        return self.call_at(self.now + seconds, call, *arguments)

    def call_at(self, at: float, call: Any, *arguments: Any) -> Any:
        assert self.timer is None
        self.timer = (at, call, arguments)
        return self

    def cancel(self) -> None:
        self.timer = None

    def step(self) -> None:
        assert self.timer is not None
        (self.now, call, arguments), self.timer = self.timer, None
        call(*arguments)


def test_a_sweep_takes_many_small_steps_and_begins_anew_in_its_time() -> None:
    loop: Any = HandLoop()
    seen: list[int] = []
    ends: list[tuple[float, int]] = []
    sweeper = Sweeper(
        1.0, lambda: range(10_000), seen.append, lambda: ends.append((loop.now, len(seen)))
    )
    sweeper.start(loop)
    steps = []
    while len(ends) < 2:
        before = len(seen)
        loop.step()
        steps.append(len(seen) - before)
    assert max(steps) == 10_000 * STEP_SECONDS
    assert sorted(seen) == sorted([*range(10_000)] * 2)
    (first, half), (second, whole) = ends
    assert (half, whole) == (10_000, 20_000)
    assert second - first == 1.0
    sweeper.stop()
    assert loop.timer is None


def test_few_are_looked_at_in_one_step_and_nobody_in_none() -> None:
    loop: Any = HandLoop()
    those: list[int] = []
    seen: list[int] = []
    ends: list[int] = []
    sweeper = Sweeper(1.0, lambda: those, seen.append, lambda: ends.append(1))
    sweeper.start(loop)
    loop.step()
    assert (loop.now, seen, ends) == (1.0, [], [1])
    those += range(LOOKED_AT_MIN)
    loop.step()
    assert (loop.now, len(seen), ends) == (2.0, LOOKED_AT_MIN, [1, 1])


def test_an_error_of_one_does_not_end_the_sweeps() -> None:
    told: list[Any] = []
    looked: list[int] = []

    def look(number: int) -> None:
        looked.append(number)
        if number == 1:
            raise ValueError("broken")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        sweeper = Sweeper(0.001, lambda: (1, 2), look)
        sweeper.start(loop)
        async with asyncio.timeout(30):
            while looked.count(1) < 3:
                await asyncio.sleep(0)
        sweeper.stop()

    asyncio.run(scenario())
    assert len(told) >= 3
