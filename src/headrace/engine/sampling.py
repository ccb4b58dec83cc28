"""Sampling: which messages have their whole history kept.

The choice hangs on nothing but the message's place, so that all events of one message
are in or out, whoever asks and whenever. Offsets are divided into strata as wide as
the share asks for, and one offset of each is chosen by a hash of its number:

    share 0.25   | . x . . | x . . . | . . . x | ...

To list the chosen ones of a long run then takes as long as there are chosen ones, not
as long as the run.

Rejected: hashing every offset. A follower goes over millions of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator


class Sample:
    """Of one partition."""

    def __init__(self, topic_id: bytes, partition: int, share: float | None) -> None:
        self._seed = zlib.crc32(topic_id + partition.to_bytes(4, "big"))
        self._share = share or 0.0

    @property
    def is_everything(self) -> bool:
        return self._share >= 1

    def chosen_in(self, start: int, end: int) -> Iterator[int]:
        """The chosen offsets from `start` to `end`, ascending."""
        if self._share <= 0:
            return
        if self.is_everything:
            yield from range(start, end)
            return
        last = start - 1
        # One stratum to either side: rounding may put a choice just outside of its own.
        for stratum in range(max(0, int(start * self._share) - 1), int(end * self._share) + 2):
            offset = self._choice(stratum)
            if last < offset < end:
                yield offset
                last = offset

    def has(self, offset: int) -> bool:
        return any(True for _ in self.chosen_in(offset, offset + 1))

    def _choice(self, stratum: int) -> int:
        # A multiplicative hash: strata that follow each other get unlike numbers.
        mixed = (stratum * 0x9E3779B97F4A7C15 ^ self._seed * 0xC2B2AE3D27D4EB4F) & (1 << 64) - 1
        mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
        within = (mixed >> 32) / (1 << 32)
        return int((stratum + within) / self._share)
