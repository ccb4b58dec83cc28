"""Batches that hold no message though they are whole: their checksums are right and
what is inside cannot be read, or is more than is opened.

Their producers wrote them so. A stream of Kafka's protocol gets them as they are; for a
queue their offsets are empty, and the messages around them must not suffer. They are
noted here, so that a metric counts them, and the node's log and `headrace doctor` name them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

# Places that are remembered for each partition; beyond them they are only counted.
PLACES_MAX = 1_000


class Noted(NamedTuple):
    # The offsets of the batch, the second exclusive.
    start: int
    end: int
    why: str


class Unreadable:
    __slots__ = ("_known", "_on_noted", "_untold", "count")

    def __init__(self, on_noted: Callable[[], None] = lambda: None) -> None:
        self._on_noted = on_noted
        self.count = 0
        # By where they start.
        self._known: dict[int, Noted] = {}
        self._untold: list[Noted] = []

    def note(self, start: int, end: int, why: str) -> None:
        """The batch with these offsets was skipped; once for each."""
        if start in self._known:
            return
        self.count += 1
        self._on_noted()
        if len(self._known) < PLACES_MAX:
            noted = self._known[start] = Noted(start, end, why)
            self._untold.append(noted)

    def why(self, start: int) -> str | None:
        """Why the batch that begins at `start` was skipped; None: it was not, or there
        were too many to remember."""
        noted = self._known.get(start)
        return None if noted is None else noted.why

    def known(self) -> list[Noted]:
        return sorted(self._known.values())

    def take_untold(self) -> list[Noted]:
        """What was noted since the last time."""
        untold, self._untold = self._untold, []
        return untold
