"""Dead letters and delayed messages for asyncio: the same words, awaited."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import IO, Unpack

from headrace.client.async_waiting import Calls
from headrace.client.dead_letters import Choice, DeadLetters, Progress
from headrace.client.delayed import Delayed
from headrace.client.views import DeadLetterView, DelayedView
from headrace.core.values import DelayedTotals, RedriveResult


class AsyncDeadLetters:
    def __init__(self, letters: DeadLetters, calls: Calls) -> None:
        self.topic = letters.topic
        self._letters = letters
        self._calls = calls

    def __aiter__(self) -> AsyncIterator[DeadLetterView]:
        return self._calls.in_chunks(iter(self._letters))

    def choose(self, **choice: Unpack[Choice]) -> AsyncIterator[DeadLetterView]:
        return self._calls.in_chunks(self._letters.choose(**choice))

    async def count(self, **choice: Unpack[Choice]) -> int:
        return await self._calls.run(self._letters.count, **choice)

    async def show(self, id: object) -> DeadLetterView:
        return await self._calls.run(self._letters.show, id)

    async def redrive(
        self,
        *,
        rate: float | None = None,
        dry_run: bool = False,
        force: bool = False,
        progress: Progress | None = None,
        **choice: Unpack[Choice],
    ) -> RedriveResult:
        """As `DeadLetters.redrive`; `progress` is called from another thread."""
        return await self._calls.run(
            self._letters.redrive,
            rate=rate,
            dry_run=dry_run,
            force=force,
            progress=progress,
            **choice,
        )

    async def purge(self, **choice: Unpack[Choice]) -> int:
        return await self._calls.run(self._letters.purge, **choice)

    async def export(
        self, target: str | os.PathLike[str] | IO[str], **choice: Unpack[Choice]
    ) -> int:
        return await self._calls.run(self._letters.export, target, **choice)


class AsyncDelayed:
    def __init__(self, delayed: Delayed, calls: Calls) -> None:
        self.topic = delayed.topic
        self._delayed = delayed
        self._calls = calls

    def __aiter__(self) -> AsyncIterator[DelayedView]:
        return self._calls.in_chunks(iter(self._delayed))

    async def count(self) -> int:
        return await self._calls.run(self._delayed.count)

    async def totals(self) -> DelayedTotals:
        return await self._calls.run(self._delayed.totals)

    async def cancel(self, id: object) -> bool:
        return await self._calls.run(self._delayed.cancel, id)
