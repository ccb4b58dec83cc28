"""Bytes that somebody fills before they are bytes: what is decompressed, as a rule.

    filled(capacity, fill)      fill(room) writes into it and says how much it wrote

The plain way zeroes the room first and copies what was written. With tens of megabytes each
of the two takes tens of milliseconds in which nothing else of the process runs Python. The
compiled twin has neither: the bytes are made first, and their memory is touched by nobody
but by whoever fills it, which C does while others run.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.compiled import compiled
from headrace.core.ports import Buffer


@compiled
def filled(capacity: int, fill: Callable[[Buffer], int]) -> bytes:
    """The first bytes of a room of this capacity, as many as `fill` says. It must not keep
    the room: BufferError."""
    memory = bytearray(capacity)
    with memoryview(memory) as room:
        size = fill(room)
        if not 0 <= size <= capacity:
            raise ValueError(f"{size} of {capacity} bytes")
        made = bytes(room[:size])
    # It cannot be cleared while there is a view of it.
    memory.clear()
    return made
