"""Ages of what comes next, looked up in the log at most so often.

    known     offset and time of the last look-up    the offset is the same: no look-up
    starved   who got none, the longest first        comes first the next time

A look-up may open a file, so ten thousand groups that all move on would make a scrape
long. Who gets no look-up is told since when what came next the last time had waited,
which is too long by as much as the group has moved on.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from headrace.core import limits
from headrace.core.errors import HeadraceError
from headrace.core.ports import WouldWait
from headrace.engine.partition import Partition
from headrace.server.service import Service

# A partition, and what is asked of it: a lane of a group, or a stream group.
Asked = tuple[Partition, str, int]
STREAM = -1

Find = Callable[[Partition, int], int | None]

# How often a thread is sent to bring in what an age is read from.
WARMINGS_MAX = 4


class Ages:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._now_ms = 0
        # Since when what comes next has waited: its offset, and the time. As it was at
        # the last look, and as it is found now.
        self._known: dict[Asked, tuple[int, int]] = {}
        self._found: dict[Asked, tuple[int, int]] = {}
        self._starved: dict[Asked, None] = {}
        self._still_starved: dict[Asked, None] = {}
        self._first: set[Asked] = set()
        self._left = 0

    def begin(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._first = set(islice(self._starved, limits.METRIC_AGES_MAX))
        self._left = limits.METRIC_AGES_MAX - len(self._first)
        # In the order in which they came, and without those that nobody asks for.
        self._still_starved = {}

    def end(self) -> None:
        self._known, self._found = self._found, {}
        kept = {each: None for each in self._starved if each in self._still_starved}
        self._starved = kept | self._still_starved

    async def waited_ms(self, asked: Asked, offset: int, find: Find) -> int:
        """For how long what is at this offset has waited; 0 when that cannot be told."""
        known = self._known.get(asked)
        if known is None or known[0] != offset:
            if self._may_look(asked):
                since_ms = await self._find(asked[0], offset, find)
                known = None if since_ms is None else (offset, since_ms)
            else:
                self._still_starved[asked] = None
        if known is None:
            return 0
        self._found[asked] = known
        return max(0, self._now_ms - known[1])

    def _may_look(self, asked: Asked) -> bool:
        if asked in self._first:
            return True
        self._left -= 1
        return self._left >= 0

    async def _find(self, partition: Partition, offset: int, find: Find) -> int | None:
        if partition.stopped is not None:
            return None
        for _ in range(WARMINGS_MAX):
            try:
                with self._service.disk.without_waiting():
                    return find(partition, offset)
            except WouldWait as cold:
                await self._service.read_in_thread((cold,))
            except (HeadraceError, OSError, ValueError):
                # It was deleted meanwhile, or has rotted; that is said elsewhere.
                return None
        return None
