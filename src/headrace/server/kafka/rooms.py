"""Rooms: where frames are received that do not fit into the scratch.

    spare       a few of one size, used again and again: making a new one for each
                frame costs as much as receiving it
    grown       for what is larger, or when no spare is left: at most so many times
                what has arrived, so that a length alone costs nothing

All of them together are bounded, and with them what connections keep of smaller frames,
or of requests that wait for their turn; who gets none is cut off.

Rejected: room for the whole frame as soon as its length is known. A thousand peers
that send four bytes each would take all there is.
"""

from __future__ import annotations

from headrace.core import limits

# Kafka's clients send batches of a megabyte at most, unless told otherwise.
SPARE_BYTES = 1024 * 1024 + 64 * 1024
SPARES_MAX = 8
# Room is at least this much, and at most so many times what has arrived.
ROOM_BYTES_MIN = 256 * 1024
GROWTH = 4


class Rooms:
    def __init__(self) -> None:
        self._spare: list[bytearray] = []
        # Of those that are in use, and of what is kept elsewhere.
        self.bytes = 0

    def take(self, size: int, arrived: int) -> bytearray | None:
        """Room for a frame of `size` bytes, `arrived` of which are here, or for the
        next part of it; None when too much is being received already."""
        if size <= SPARE_BYTES and self._spare:
            return self._use(self._spare.pop())
        enough = max(ROOM_BYTES_MIN, arrived * GROWTH)
        if size <= enough and size <= SPARE_BYTES:
            # It may become a spare.
            enough = size = SPARE_BYTES
        wanted = min(size, enough)
        if self.bytes + wanted > limits.RECEIVING_BYTES_MAX:
            return None
        return self._use(bytearray(wanted))

    def keep(self, size: int) -> bool:
        """Whether a connection may keep so much itself; `bytes` is less by it when it
        does no more."""
        if self.bytes + size > limits.RECEIVING_BYTES_MAX:
            return False
        self.bytes += size
        return True

    def _use(self, room: bytearray) -> bytearray:
        self.bytes += len(room)
        return room

    def give_back(self, room: bytearray) -> None:
        self.bytes -= len(room)
        if len(room) == SPARE_BYTES and len(self._spare) < SPARES_MAX:
            self._spare.append(room)
