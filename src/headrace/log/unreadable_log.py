"""The log that cannot be opened: it knows its place and its bounds, and gives nothing.

It stands where a damaged log would stand, so that positions in it can still be told from
those that never were. Its files are not written to, nor is their content believed.
"""

from __future__ import annotations

from headrace.core.errors import CorruptLog
from headrace.core.ports import Buffer, Disk
from headrace.log.checkpoint import Mark, read_start
from headrace.log.log import Log
from headrace.log.segment import parse_base_offset
from headrace.log.settings import LogSettings


class UnreadableLog(Log):
    def __init__(self, disk: Disk, path: str, settings: LogSettings, damage: CorruptLog) -> None:
        super().__init__(disk, path, settings, read_only=True)
        self._damage = damage
        names = disk.list(path)
        bases = [base for name in names if (base := parse_base_offset(name)) is not None]
        mark = self.durability.read_mark(exists="synced" in names)
        start = self._known_start(bases)
        self.end_offset = max(start, 0 if mark is None else mark.offset, *bases, 0)
        self.start_offset = start
        self.segment_list.adopt([self.end_offset], self.end_offset, 0)
        self.durability.adopt(Mark(self.end_offset, self.end_offset, 0), [], self.end_offset)

    def _known_start(self, bases: list[int]) -> int:
        try:
            return read_start(self.disk, self.path)
        except (CorruptLog, OSError):
            return min(bases, default=0)

    def _check_writable(self) -> None:
        raise self._damage.without_frames()

    def read_to(self, offset: int, max_bytes: int, end: int | None = None) -> tuple[Buffer, int]:
        raise self._damage.without_frames()
