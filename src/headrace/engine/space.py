"""Space: publishing stops at a floor of free bytes, so that acks and what makes room go on.

    free bytes   0 ........... floor ....... floor + margin ..........
    published    nothing       what leaves the floor free
    told         is full       as before     there is room again

Free space is asked for once in so many bytes that are published, and with the rest of the
housekeeping. A publish that is too large for what is left is refused, which says nothing
about the disk: others have room. What changes there is told when the disk gets full, and
when there is room again, which takes more than one message that was deleted.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.core.errors import DiskFull
from headrace.core.ports import Disk

# Free space is asked for again after this much was written.
ASK_BYTES = 4 * 1024 * 1024
# A part of the floor has to be free beside it before there is room again.
MARGIN_PART = 16


class Space:
    def __init__(
        self, disk: Disk, floor_bytes: int, keep_reserve: Callable[[], object] = lambda: None
    ) -> None:
        """`keep_reserve` holds back what acks need on a full disk, if there is room."""
        self._disk = disk
        # 0 for no floor.
        self.floor_bytes = floor_bytes
        self._keep_reserve = keep_reserve
        self._left = 0
        self.is_full = False
        # Called with whether the disk is full, and the free bytes, when that changes.
        self.on_change: Callable[[bool, int], None] = lambda is_full, free: None

    def check(self, size: int) -> None:
        """DiskFull when so much may not be published now."""
        self._left -= size
        if self._left > 0 or not self.floor_bytes:
            return
        free = self.look()
        room = free - size - self.floor_bytes
        if room < 0:
            self._left = 0
            raise DiskFull(
                f"the disk has {free} bytes free and publishing stops at {self.floor_bytes}; "
                f"this takes about {size}. Delete or move something, then publish again. Reading "
                "and acking go on"
            )
        self._left = min(ASK_BYTES, room)

    def look(self) -> int:
        """Ask for the free space anew."""
        free = self._disk.free_bytes()
        margin = self.floor_bytes // MARGIN_PART if self.is_full else 0
        is_full = free < self.floor_bytes + margin
        if is_full != self.is_full:
            self.is_full = is_full
            self.on_change(is_full, free)
        return free

    def keep(self) -> None:
        """To be called with the housekeeping: look, and have the reserve again if it was
        given up."""
        self.look()
        self._keep_reserve()
