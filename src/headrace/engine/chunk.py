"""A chunk of a window: its columns, or, while nothing in it can move soon, those packed.

How many offsets it has, and what their bytes mean, is the window's (`engine/window.py`).
"""

from __future__ import annotations

import zlib
from array import array


class Chunk:
    __slots__ = ("attempts", "grants", "packed", "state")

    def __init__(self) -> None:
        self.state = bytearray()
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

    def read_state(self) -> bytes | bytearray:
        """The state column, packed or not; a packed one stays so."""
        return self.state if self.packed is None else zlib.decompress(self.packed[0])

    def columns(self) -> tuple[bytearray, array[int]]:
        """Attempts and grants, as long as the state column."""
        if self.attempts is None:
            self.attempts = bytearray()
        if self.grants is None:
            self.grants = array("I")
        size = len(self.state)
        if len(self.attempts) < size:
            self.attempts.extend(bytes(size - len(self.attempts)))
        if len(self.grants) < size:
            self.grants.frombytes(bytes((size - len(self.grants)) * self.grants.itemsize))
        return self.attempts, self.grants
