"""Arrivals: about when the node took the messages of a partition, kept in memory.

    offsets    0        40   41        90       from this one on
    times      10:00    10:01:07  ...           they came then, and before the next time
               |<---->|
               what is told to be of a time far outside is not believed

A timestamp is whatever a producer says. One whose clock is wrong, or who publishes what
happened long ago, would make a message look as if it had waited for years: its wait counts
from when it was taken. A little off is believed, since a message that a producer kept for a
while has waited as well.

An append is noted once in so many milliseconds, and at once where its times are off. There
is room for some hundred notes: when they are full every second one is dropped, so that what
came long ago is known the more roughly. Of messages from before this process nothing is
known but that; what cannot be right there counts from when it was started.

Rejected: storing the time with each batch. Kafka's layout has no field for it where the time
is the producer's, and a number for people to look at is not worth another file.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from headrace.record import Record

# How far a time may lie from when its message came: more than what producers wait and retry.
OFF_MS_MAX: Final = 300_000
# How often an append is noted.
STEP_MS: Final = 1_000
NOTES_MAX: Final = 256


class Arrivals:
    __slots__ = ("_opened_ms", "_starts", "_times")

    def __init__(self, end: int, now_ms: int) -> None:
        """`end` is the offset of the next message."""
        self._opened_ms = now_ms
        self._starts = array("q", (end,))
        self._times = array("q", (now_ms,))

    @property
    def count(self) -> int:
        return len(self._starts)

    def note(self, offset: int, timestamp_ms: int, now_ms: int) -> None:
        """What begins at this offset, of which the first says this time, came now."""
        passed_ms = now_ms - self._times[-1]
        if 0 <= passed_ms < STEP_MS and (
            -OFF_MS_MAX <= now_ms - timestamp_ms <= OFF_MS_MAX or not passed_ms
        ):
            return
        starts, times = self._starts, self._times
        while len(starts) > 1 and starts[-1] >= offset:
            # The log was truncated.
            starts.pop()
            times.pop()
        starts[0] = min(starts[0], offset)
        if len(starts) >= NOTES_MAX:
            del starts[1::2], times[1::2]
        starts.append(offset)
        times.append(now_ms)

    def believed(self, offset: int, timestamp_ms: int) -> int:
        """Since when the message at this offset is there: its own time, if that can be."""
        earliest_ms, latest_ms = self._between(offset, offset)
        if earliest_ms <= timestamp_ms <= latest_ms:
            return timestamp_ms
        return self._taken_ms(offset)

    def all_believed(self, records: Sequence[Record]) -> list[int]:
        """As `believed`, for each of these, which ascend."""
        # By position, at half the cost: it is done for every message that anybody receives.
        times = [record[1] for record in records]
        earliest_ms, latest_ms = self._between(records[0].offset, records[-1].offset)
        if earliest_ms <= min(times) and max(times) <= latest_ms:
            return times
        return [self.believed(record.offset, record.timestamp_ms) for record in records]

    def _between(self, first: int, last: int) -> tuple[int, int]:
        """Between which times those of these messages have to lie."""
        starts, times = self._starts, self._times
        number = bisect_right(starts, first) - 1
        earliest_ms = times[number] - OFF_MS_MAX if number >= 0 else 0
        if last != first:
            number = bisect_right(starts, last) - 1
        following = number + 1
        latest_ms = times[following] if following < len(times) else times[number] + STEP_MS
        return earliest_ms, latest_ms + OFF_MS_MAX

    def _taken_ms(self, offset: int) -> int:
        number = bisect_right(self._starts, offset) - 1
        return self._times[number] if number >= 0 else self._opened_ms
