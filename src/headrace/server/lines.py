"""Lines: of those who wait for messages of one group, one looks at a time.

    news --> first        looks; what it finds it takes, and goes
             second       is first now: looks, finds nothing, waits for news
             third ...    wait for their turn

What the first does not find, nobody of the same group and topics would find. So a message
that is published costs two looks, however many wait for it: one that finds it, and one
that finds that there is no more.

Rejected: telling all of them. Three hundred idle consumers made every message a hundred
times as dear as one did.
"""

from __future__ import annotations

import asyncio
from collections import deque

# Group and topics.
Key = tuple[str, tuple[str, ...]]
# True when it is the turn of whoever waits with it, False when that is told to go.
Place = asyncio.Future[bool]


class Lines:
    def __init__(self) -> None:
        self._lines: dict[Key, deque[Place]] = {}

    async def wait_for_turn(self, key: Key, place: Place, seconds: float) -> bool:
        """At the end of the line, until it is our turn; False when the time is over
        before, or the place was called off. Whoever gets a turn has to `leave`."""
        line = self._lines.setdefault(key, deque())
        line.append(place)
        if line[0] is place and not place.done():
            place.set_result(True)
        is_first = False
        try:
            async with asyncio.timeout(seconds):
                is_first = await place
        except TimeoutError:
            pass
        finally:
            if not is_first:
                self.leave(key, place)
        return is_first

    def leave(self, key: Key, place: Place) -> None:
        line = self._lines[key]
        was_first = line[0] is place
        line.remove(place)
        if not line:
            del self._lines[key]
        elif was_first and not line[0].done():
            # One that is done is about to leave, and hands on the turn itself.
            line[0].set_result(True)

    def length(self, key: Key) -> int:
        """How many stand there, the first included."""
        return len(self._lines.get(key, ()))
