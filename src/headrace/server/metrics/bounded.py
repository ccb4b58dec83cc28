"""Series that are bounded: who has one of their own, and who shares one.

A series that comes and goes is worse than none, so whoever has a place keeps it until
it is gone, and others get what is free, in the order in which they come.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Key = TypeVar("Key")


class Places(Generic[Key]):
    """Which of many keys have a place of their own, from one look to the next."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Key, None] = {}
        self._seen: set[Key] = set()

    def begin(self) -> None:
        self._seen = set()

    def has(self, key: Key) -> bool:
        if key not in self._kept:
            if len(self._kept) >= self._most:
                return False
            self._kept[key] = None
        self._seen.add(key)
        return True

    def end(self) -> None:
        """Those that were not asked for since `begin` are gone."""
        self._kept = {key: None for key in self._kept if key in self._seen}
