"""Turns: of the answers of a route that have messages in them, a few are made at once.

    take   made   end, small: the next one may begin
                  end, large: the next one may begin when the line has had its worth

Each may take many megabytes, and tens of milliseconds of the loop. Hundreds that were
asked for together would all be made before anybody else is heard, and before the sum of
what is held for clients is looked at again.
"""

from __future__ import annotations

import asyncio

from headrace.core import limits
from headrace.server.shares import shares_of

LARGE_BYTES = 64 * 1024
# About what it takes to find, encode and send one.
SECONDS_PER_BYTE = 3e-9


class Turns:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._line = shares_of(loop).line
        self._free = asyncio.Semaphore(limits.HTTP_ANSWERS_AT_ONCE_MAX)

    @property
    def is_free(self) -> bool:
        return not self._free.locked()

    async def take(self) -> None:
        await self._free.acquire()

    def end(self, answer_bytes: int) -> None:
        if answer_bytes < LARGE_BYTES:
            self._free.release()
        else:
            # The next one is taken to be as large.
            self._line.join(self._free.release, SECONDS_PER_BYTE * answer_bytes)
