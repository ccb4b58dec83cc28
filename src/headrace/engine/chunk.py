"""A chunk of a window: its columns, or, while nothing in it can move soon, those packed.

    state      one byte for each offset so far; where all bytes of a whole chunk are equal,
               as in a backlog that nobody has come to yet, one copy serves all chunks of
               all groups until somebody changes it
    attempts   as long as they have to be for what was leased
    grants     likewise

How many offsets it has, and what their bytes mean, is the window's (`engine/window.py`).
"""

from __future__ import annotations

import zlib
from array import array
from functools import lru_cache
from typing import Final

# Columns grow by so many offsets more than are needed, since the next lease needs the next.
COLUMN_STEP: Final = 1024


def is_uniform(column: array[int]) -> bool:
    """Whether all numbers are the same: one comparison of bytes, since looking at
    each of them as a number would take longer than everything else together."""
    data = column.tobytes()
    return data == data[: column.itemsize] * len(column)


@lru_cache(256)
def _all_equal(value: int, size: int) -> bytes:
    return bytes((value,)) * size


class Chunk:
    __slots__ = ("attempts", "grants", "packed", "state")

    def __init__(self) -> None:
        self.state: bytearray | bytes = bytearray()
        self.attempts: bytearray | None = None
        self.grants: array[int] | None = None
        self.packed: tuple[bytes, bytes | None] | None = None

    def pack(self) -> None:
        attempts = None if self.attempts is None else zlib.compress(self.attempts, 1)
        self.packed = (zlib.compress(self.state, 1), attempts)
        self.state = bytearray()
        self.attempts = self.grants = None

    def unpack(self) -> None:
        if self.packed is not None:
            state, attempts = self.packed
            self.state = bytearray(zlib.decompress(state))
            if attempts is not None:
                self.attempts = bytearray(zlib.decompress(attempts))
            self.packed = None

    def share_state(self) -> None:
        """Of a chunk that is full: one whose bytes are all equal shares them with others."""
        state = self.state
        if state.count(state[0]) == len(state):
            self.state = _all_equal(state[0], len(state))

    def own_state(self) -> bytearray:
        """The state column, to be changed."""
        if not isinstance(self.state, bytearray):
            self.state = bytearray(self.state)
        return self.state

    def read_state(self) -> bytes | bytearray:
        """The state column, packed or not; a packed one stays so."""
        return self.state if self.packed is None else zlib.decompress(self.packed[0])

    def columns(self, size: int) -> tuple[bytearray, array[int]]:
        """Attempts and grants of at least the first `size` offsets, and of no more than there
        are."""
        if self.attempts is None:
            self.attempts = bytearray()
        if self.grants is None:
            self.grants = array("I")
        attempts, grants = self.attempts, self.grants
        if len(attempts) < size or len(grants) < size:
            size = min(len(self.state), size + COLUMN_STEP)
            attempts.extend(bytes(max(size - len(attempts), 0)))
            grants.frombytes(bytes(max(size - len(grants), 0) * grants.itemsize))
        return attempts, grants

    def take_grants(self, first: int, last: int, taken: dict[int, int]) -> None:
        """Add up how many lie under which grant; none does any more."""
        if self.grants is None or len(self.grants) <= first:
            return
        if last - first == 1:
            # Messages of several lanes lie between one another.
            if grant := self.grants[first]:
                taken[grant] = taken.get(grant, 0) + 1
                self.grants[first] = 0
            return
        column = self.grants[first:last]
        if is_uniform(column):
            counted = {column[0]: len(column)}
        else:
            counted = {grant: column.count(grant) for grant in set(column)}
        for grant, count in counted.items():
            if grant:
                taken[grant] = taken.get(grant, 0) + count
        self.grants[first : first + len(column)] = array("I", (0,)) * len(column)
