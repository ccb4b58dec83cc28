"""Power loss before every single operation of the disk, in a life that has it all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest

from headrace.log import Log, LogSettings, Problem
from headrace.record.batch import split_batches
from headrace.record.builder import build_batch
from headrace.record.reader import read_records
from headrace.record.record import NewRecord
from headrace.testing.fault_disk import (
    FaultDisk,
    PowerLoss,
    keep_everything,
    keep_nothing,
)

SETTINGS = LogSettings(
    segment_bytes=600, index_interval_bytes=100, retention_ms=10_000, tombstone_ms=0
)


@dataclass
class Life:
    """What the caller of the log knows at the moment the power goes."""

    written: dict[int, set[tuple[bytes | None, bytes | None]]] = field(default_factory=dict)
    # Offsets below were synced and must survive, unless they were given up.
    synced_end: int = 0
    given_up_below: int = 0
    superseded: set[int] = field(default_factory=set)
    end: int = 0


def live(disk: FaultDisk, life: Life) -> None:
    log = Log.open(disk, "t/0", SETTINGS, 0)
    number = 0

    def append(count: int, epoch: int, key: bytes | None = None, value_bytes: int = 90) -> None:
        nonlocal number
        records = []
        for index in range(count):
            number += 1
            value = b"%d" % number * (value_bytes // 3)
            records.append(NewRecord(key, value, timestamp_ms=number))
            offset = log.end_offset + index
            life.written.setdefault(offset, set()).add((key, value))
        log.append(build_batch(records), epoch, number)
        life.end = log.end_offset

    def sync() -> None:
        ticket = log.begin_sync()
        if ticket is None:
            return
        for folder in ticket.directories:
            disk.sync_directory(folder)
        for file in ticket.files:
            file.sync()
        log.on_synced(ticket)
        life.synced_end = ticket.end

    for _ in range(5):
        append(2, 1)
    sync()
    append(1, 2)
    append(3, 2, value_bytes=4500)
    log.roll(number)
    append(1, 2)
    sync()
    append(2, 2)
    # Before the call, since a crash in it may leave either state.
    life.synced_end = min(life.synced_end, 9)
    log.truncate_to(10)
    append(2, 3)
    append(1, 3, key=b"k")
    append(1, 3, key=b"k")
    append(1, 3, key=b"k")
    log.roll(number)
    append(1, 3, key=b"k")
    append(1, 3)
    log.roll(number)
    sync()
    append(1, 4)
    for record_offset in range(log.end_offset):
        if any(key for key, _ in life.written[record_offset]):
            life.superseded.add(record_offset)
    for _ in log.compact(number, log.end_offset):
        pass
    sync()
    life.given_up_below = 3
    log.delete_before(3)
    life.given_up_below = 8
    log.release(8)
    append(1, 4)
    log.close()
    log = Log.open(disk, "t/0", SETTINGS, number)
    sync()
    life.given_up_below = log.end_offset
    log.expire(number + 20_000, log.end_offset)
    append(1, 5)
    sync()
    log.close()


def check(disk: FaultDisk, life: Life) -> None:
    log = Log.open(disk, "t/0", SETTINGS, 0)
    assert [found for found in log.verify() if isinstance(found, Problem) and found.is_data] == []
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    offset = log.start_offset
    while offset < log.end_offset and (data := log.read(offset, 10_000)):
        for position, header in split_batches(data):
            for record in read_records(memoryview(data)[position:], header):
                found[record.offset] = (record.key, record.value)
            offset = header.next_offset
    for offset, row in found.items():
        assert row in life.written[offset]
    assert log.end_offset >= life.synced_end
    for offset in range(life.given_up_below, log.end_offset):
        assert offset in found or offset in life.superseded, offset
    # The log is as good as new.
    first, following = log.append(build_batch([NewRecord(None, b"after", timestamp_ms=1)]), 9, 0)
    assert (first, following) == (log.end_offset - 1, log.end_offset)
    assert bytes(log.read(first, 1)).endswith(b"after\0")
    log.close()
    again = Log.open(disk, "t/0", SETTINGS, 0)
    assert again.end_offset == following
    again.close()


def operations_of_a_life() -> int:
    disk = FaultDisk()
    live(disk, Life())
    return disk.operations


def outcomes(disk: FaultDisk, seed: int) -> Iterator[FaultDisk]:
    yield disk.crash(keep_nothing)
    yield disk.crash(keep_everything)
    for more in range(4):
        yield disk.crash(Random(seed * 10 + more))


@pytest.mark.parametrize("part", range(8))
def test_synced_records_survive_power_loss_before_any_operation(part: int) -> None:
    total = operations_of_a_life()
    for stop_at in range(1 + part, total + 2, 8):
        disk = FaultDisk()
        disk.stop_at = stop_at
        life = Life()
        try:
            live(disk, life)
        except PowerLoss:
            pass
        else:
            assert stop_at > total
        for number, after in enumerate(outcomes(disk, stop_at)):
            try:
                check(after, life)
            except Exception as error:
                error.add_note(f"stopped before operation {stop_at}, outcome {number}")
                raise
