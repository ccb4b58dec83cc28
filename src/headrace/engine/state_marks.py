"""Marks: from where on a state log speaks of a message.

    state log    . . . . | . . . . | . . . . | . .
    mark                 ^ position, and an end: whatever is written before is about
                           offsets below it

A message is spoken of once it is there, so whoever looks for one begins at the last mark
whose end is not above it. There is one mark for so many bytes, and nothing is done for an
event in between.

Rejected: the times of messages, which are the clocks of those who publish.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

MARK_BYTES: Final = 64 * 1024


class Marks:
    def __init__(self) -> None:
        self._positions: list[int] = []
        self._ends: list[int] = []

    def add(self, position: int, end: int) -> None:
        """Positions come ascending. An end that goes back, with a log that was cut,
        changes nothing for what was said before."""
        if self._ends and end <= self._ends[-1]:
            self._positions[-1] = position
            return
        self._positions.append(position)
        self._ends.append(end)

    def floor(self, offset: int) -> int:
        """Nothing before this position is about the offset, or about one above it."""
        number = bisect_right(self._ends, offset)
        return self._positions[number - 1] if number else 0

    def forget_below(self, position: int) -> None:
        number = bisect_right(self._positions, position)
        del self._positions[:number], self._ends[:number]
