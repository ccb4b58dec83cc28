"""Space: publishing stops at a floor of free bytes, so that acks and what makes room go on.

Free space is asked for once in so many bytes that are published, and with the rest of the
housekeeping. Whoever wants to know hears of it when the disk gets full, and when there is
room again.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.core.errors import DiskFull
from headrace.core.ports import Disk

# Free space is asked for again after this much was written.
ASK_BYTES = 4 * 1024 * 1024


class Space:
    def __init__(self, disk: Disk, floor_bytes: int) -> None:
        self._disk = disk
        # 0 for no floor.
        self.floor_bytes = floor_bytes
        self._left = 0
        self.is_full = False
        # Called with whether the disk is full, and the free bytes, when that changes.
        self.on_change: Callable[[bool, int], None] = lambda is_full, free: None

    def check(self, size: int) -> None:
        """DiskFull when so much may not be published now."""
        self._left -= size
        if self._left > 0 or not self.floor_bytes:
            return
        free = self.look(size)
        if self.is_full:
            self._left = 0
            raise DiskFull(
                f"the disk has {free} bytes free and publishing stops at {self.floor_bytes}; "
                "delete or move something, then publish again. Reading and acking go on"
            )
        self._left = min(ASK_BYTES, free - self.floor_bytes)

    def look(self, size: int = 0) -> int:
        """Ask for the free space anew."""
        free = self._disk.free_bytes()
        is_full = free - size < self.floor_bytes
        if is_full != self.is_full:
            self.is_full = is_full
            self.on_change(is_full, free)
        return free
