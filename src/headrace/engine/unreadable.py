"""Batches that hold no message though they are whole: their checksums are right and
what is inside cannot be read, or is more than is opened.

Their producers wrote them so. A stream of Kafka's protocol gets them as they are; for a
queue their offsets are empty, and the messages around them must not suffer. They are
noted here, so that a metric counts them and the node's log names them.
"""

from __future__ import annotations

# Places that are remembered for each partition; beyond them they are only counted.
PLACES_MAX = 1_000


class Unreadable:
    __slots__ = ("_known", "_untold", "count")

    def __init__(self) -> None:
        self.count = 0
        # Why, by offset.
        self._known: dict[int, str] = {}
        self._untold: list[tuple[int, str]] = []

    def note(self, offset: int, why: str) -> None:
        """The batch that begins at `offset` was skipped; once for each."""
        if offset in self._known:
            return
        self.count += 1
        if len(self._known) < PLACES_MAX:
            self._known[offset] = why
            self._untold.append((offset, why))

    def why(self, offset: int) -> str | None:
        """Why the batch that begins at `offset` was skipped; None: it was not, or there
        were too many to remember."""
        return self._known.get(offset)

    def take_untold(self) -> list[tuple[int, str]]:
        """What was noted since the last time."""
        untold, self._untold = self._untold, []
        return untold
