"""Turns: of the answers of a route that have messages in them, a few are made at once.

    take   made   end, small: the next one may begin
                  end, large: the next one may begin in another turn of the loop

Each may take many megabytes, and tens of milliseconds of the loop. Hundreds that were
asked for together would all be made before anybody else is heard, and before the sum of
what is held for clients is looked at again.
"""

from __future__ import annotations

import asyncio

from headrace.core import limits

LARGE_BYTES = 64 * 1024


class Turns:
    def __init__(self) -> None:
        self._free = asyncio.Semaphore(limits.HTTP_ANSWERS_AT_ONCE_MAX)
        # Large answers after which nobody has begun yet.
        self._due = 0

    async def take(self) -> None:
        await self._free.acquire()

    def end(self, answer_bytes: int) -> None:
        if answer_bytes < LARGE_BYTES:
            self._free.release()
            return
        self._due += 1
        if self._due == 1:
            asyncio.get_running_loop().call_soon(self._let_one)

    def _let_one(self) -> None:
        self._free.release()
        self._due -= 1
        if self._due:
            asyncio.get_running_loop().call_soon(self._let_one)
