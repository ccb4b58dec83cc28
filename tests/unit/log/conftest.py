"""A log on a disk with faults, and the few lines that tests of it share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from headrace.log import Log, LogSettings
from headrace.record.batch import split_batches
from headrace.record.builder import build_batch
from headrace.record.reader import read_records
from headrace.record.record import NewRecord, Record
from headrace.testing.fault_disk import FaultDisk


@dataclass
class Bench:
    """`log` is open at "t/0" of `disk`; every batch of one record is as long as
    the others when its value is."""

    disk: FaultDisk = field(default_factory=FaultDisk)
    settings: LogSettings = field(
        default_factory=lambda: LogSettings(segment_bytes=1000, index_interval_bytes=100)
    )
    log: Log = field(init=False)
    path: str = "t/0"

    def __post_init__(self) -> None:
        self.open()

    def open(self, *, read_only: bool = False) -> Log:
        self.log = Log.open(self.disk, self.path, self.settings, 1000, read_only=read_only)
        return self.log

    def reopen(self) -> Log:
        self.log.close()
        return self.open()

    def crash(self, choose: Callable[[int], int]) -> Log:
        self.disk = self.disk.crash(choose)
        return self.open()

    def append(
        self,
        *values: bytes | None,
        key: bytes | None = None,
        epoch: int = 1,
        timestamp_ms: int = 1000,
        now_ms: int = 1000,
    ) -> tuple[int, int]:
        records = [NewRecord(key, value, timestamp_ms=timestamp_ms) for value in values]
        return self.log.append(build_batch(records), epoch, now_ms)

    def sync(self) -> None:
        ticket = self.log.begin_sync()
        assert ticket is not None
        for folder in ticket.directories:
            self.disk.sync_directory(folder)
        for file in ticket.files:
            file.sync()
        self.log.on_synced(ticket)

    def records(self) -> list[Record]:
        found: list[Record] = []
        offset = self.log.start_offset
        while offset < self.log.end_offset and (data := self.log.read(offset, 500)):
            for position, header in split_batches(data):
                found += read_records(memoryview(data)[position:], header)
                offset = header.next_offset
        return [record for record in found if record.offset >= self.log.start_offset]

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]

    def bases(self) -> list[int]:
        return [info.base_offset for info in self.log.segments()]

    def name(self, base_offset: int, suffix: str = ".log") -> str:
        return f"{self.path}/{base_offset:020d}{suffix}"

    def damage(self, name: str, position: int) -> None:
        """Flip a byte where it is stored, as rot does."""
        file = self.disk.open(name)
        (byte,) = file.read(1, position)
        file.write(bytes([byte ^ 0xFF]), position)
        file.sync()
        file.close()


@pytest.fixture
def bench() -> Bench:
    return Bench()
