"""A disk that is full, or that fails: publishing stops, nothing breaks.

On a full disk publishing says DiskFull, while reading and acking go on; with room
it works again. A failed sync is different: nobody knows what is on disk, so the
handle says SyncFailed from then on, and opening the directory again tells.
"""

from __future__ import annotations

import copy
import errno
import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.crash.actor import GROUP, Actor
from tests.crash.invariants import check
from tests.crash.ledger import Ledger
from tests.crash.power import LONG, SEED, make_rare_things_common
from tests.crash.script import work

from headrace import Headrace
from headrace.core.errors import DiskFull, HeadraceError, SyncFailed
from headrace.core.ports import Buffer, Disk, File
from headrace.core.values import PlacedBatch
from headrace.log.recovery import SWAP_SUFFIX
from headrace.node import Node
from headrace.platform.directory import RESERVE_BYTES, RESERVE_FILE
from headrace.platform.disk import RealDisk
from headrace.record import NewRecord, build_batch
from headrace.testing import FaultDisk, ManualClock
from headrace.testing import open as open_in_memory
from headrace.testing.fault_disk import keep_everything

pytestmark = pytest.mark.power_loss

KIB = 1024


def _open(disk: Disk, *, free_bytes_min: int = 0) -> Headrace:
    clock = ManualClock(autoskip=False)
    return Headrace(Node.open("", disk=disk, clock=clock, free_bytes_min=free_bytes_min), "")


def _publish_until_full(actor: Actor, value: Callable[[int], str], count: int = 10_000) -> int:
    for number in range(count):
        try:
            actor.publish("jobs", [value(number)])
        except DiskFull:
            return number
    raise AssertionError("the disk never filled up")


def test_publishing_stops_at_the_floor_while_reading_and_acking_go_on() -> None:
    disk = FaultDisk()
    handle = _open(disk, free_bytes_min=256 * KIB)
    ledger = Ledger(grants_last=True)
    actor = Actor(handle, ledger.note)
    actor.create_topic("jobs", 1)
    actor.queue("jobs")
    disk.fail_writes_after(1024 * KIB)
    published = _publish_until_full(actor, lambda number: f"{number}." + "." * 10 * KIB)
    assert published > 10
    assert disk.free_bytes() >= 256 * KIB - 16 * KIB
    delivered = 0
    while messages := actor.lease("jobs", 7):
        actor.settle("ack", "jobs", messages)
        delivered += len(messages)
    assert delivered == published
    with pytest.raises(DiskFull):
        handle.publish("jobs", b"." * 10 * KIB)
    disk.fail_writes_after(None)
    actor.publish("jobs", ["there is room again"])
    check(handle, ledger)
    handle.close()
    check(_open(disk), ledger)


def test_a_disk_that_gets_full_or_has_room_again_is_told_once_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = FaultDisk()
    handle = _open(disk, free_bytes_min=256 * KIB)
    handle.create_topic("jobs", 1)
    assert not caplog.records
    disk.fail_writes_after(200 * KIB)
    for _ in range(3):
        with pytest.raises(DiskFull):
            handle.publish("jobs", b"." * 5_000_000)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "the disk is full" in caplog.text
    handle.close()
    # A start on a full disk says so too.
    handle = _open(disk, free_bytes_min=256 * KIB)
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2
    disk.fail_writes_after(None)
    handle.publish("jobs", b"there is room again")
    assert "room on the disk again" in caplog.text and len(caplog.records) == 3
    handle.close()


def test_a_publish_that_found_no_room_left_no_trace() -> None:
    for room in range(0, 400, 7 if not LONG else 1):
        disk = FaultDisk()
        handle = _open(disk)
        handle.create_topic("jobs", 1)
        first = handle.publish("jobs", b"before")
        disk.fail_writes_after(room)
        try:
            handle.publish("jobs", b"." * 200)
            refused = False
        except DiskFull:
            refused = True
        assert refused or room >= 200, f"room for {room} bytes took 200"
        disk.fail_writes_after(None)
        after = handle.publish("jobs", b"after")
        assert after.offset == first.offset + (1 if refused else 2)
        found = _open(disk.crash(keep_everything)).connection.reach().read("jobs", 0, 0)[0]
        wanted = [b"before", b"after"] if refused else [b"before", b"." * 200, b"after"]
        assert [record.value for record in found] == wanted
        handle.close()


class Fails:
    """The k-th operation of these kinds fails with an errno, and those that
    follow until `stop`."""

    def __init__(self, disk: FaultDisk, code: int, kinds: Sequence[str], at: int) -> None:
        self.count = 0
        self.is_over = False
        self._code = code
        self._kinds = kinds
        self._at = at
        self.has_failed = False
        disk.on_operation = self._before

    def _before(self, count: int, name: str, path: str) -> None:
        # A full disk has room for a compacted segment's name, which is there already, and
        # behind which files were just removed.
        is_swap = name == "rename" and path.endswith(SWAP_SUFFIX) and self._code == errno.ENOSPC
        if name not in self._kinds or is_swap:
            return
        self.count += 1
        if self.count >= self._at and not self.is_over:
            self.has_failed = True
            raise OSError(self._code, os.strerror(self._code), path)


class Persistent(Actor):
    """Goes on when a call fails as it may, and lets anything else through."""

    def __init__(self, *given: Any, allowed: type[HeadraceError]) -> None:
        super().__init__(*given)
        self.failures: list[HeadraceError] = []
        self._allowed = allowed

    def _call(self, op: str, act: Callable[[], dict[str, Any]], **about: Any) -> dict[str, Any]:
        try:
            return super()._call(op, act, **about)
        except self._allowed as error:
            self.failures.append(error)
            return {"places": [(0, 0, False)]}


def _steps(total: int) -> list[int]:
    """Which of the operations fail: all of them, or a few."""
    if LONG:
        return list(range(1, total, 2))
    return sorted(random.Random(SEED).sample(range(1, total), min(25, total - 1)))


def _count(kinds: Sequence[str], run: Callable[[Actor, ManualClock, FaultDisk], None]) -> int:
    """How many operations of these kinds a run has when none of them fails."""
    clock = ManualClock(autoskip=False)
    disk = FaultDisk()
    fails = Fails(disk, 0, kinds, at=1 << 60)
    run(Actor(open_in_memory(clock, disk=disk), Ledger(grants_last=True).note), clock, disk)
    return fails.count


def _run_script(actor: Actor, clock: ManualClock, disk: FaultDisk) -> None:
    work(actor, clock, partial(open_in_memory, clock, disk=disk))


def test_a_failed_sync_poisons_the_handle_and_not_the_process() -> None:
    disk = FaultDisk()
    handle = _open(disk)
    ledger = Ledger(grants_last=False)
    actor = Actor(handle, ledger.note)
    actor.create_topic("jobs", 1)
    actor.publish("jobs", ["first", "second", "third"])
    leased = actor.lease("jobs", 2)
    actor.settle("ack", "jobs", leased[:1])
    disk.fail_syncs = True
    with pytest.raises(SyncFailed, match="open the directory again"):
        actor.publish("jobs", ["never answered"])
    # The disk is well again, and the handle does not believe it.
    disk.fail_syncs = False
    node = handle.connection.reach()
    for refused in (
        lambda: handle.publish("jobs", b"too late"),
        lambda: node.ack("workers", [leased[1].proof()]),
        lambda: node.lease("workers", ["jobs"], "me", 1),
        lambda: handle.create_topic("more"),
    ):
        with pytest.raises(SyncFailed):
            refused()
    # What was answered can still be read.
    assert [r.value for r in node.read("jobs", 0, 0)[0]] == [b"first", b"second", b"third"]
    node.close()
    for seed in range(20):
        found = _open(disk.crash(random.Random(seed)))
        check(found, copy.deepcopy(ledger))
        found.close()


def test_a_sync_that_fails_while_a_batch_is_appended_poisons_the_handle() -> None:
    """A new segment syncs the names of those before, whatever the topic's durability."""
    disk = FaultDisk()
    node = Node.open("", disk=disk)
    node.create_topic("jobs", partitions=1, settings={"durability": "os", "segment_bytes": 1024})
    batch = build_batch([NewRecord(None, bytes(1000))])
    node.publish_batch("jobs", 0, batch[:])
    disk.fail_syncs = True
    with pytest.raises(SyncFailed, match="open the directory again"):
        node.publish_batches([PlacedBatch("jobs", 0, batch[:])])
    disk.fail_syncs = False
    with pytest.raises(SyncFailed):
        node.publish_values("jobs", [b"too late"])
    node.close()


def test_a_sync_that_fails_at_any_moment_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_rare_things_common(monkeypatch)
    kinds = ("sync", "sync_directory")
    for at in _steps(_count(kinds, _run_script)):
        clock = ManualClock(autoskip=False)
        ledger = Ledger(grants_last=False)
        disk = FaultDisk()
        fails = Fails(disk, errno.EIO, kinds, at)
        try:
            actor = Actor(open_in_memory(clock, disk=disk), ledger.note)
            _run_script(actor, clock, disk)
        except SyncFailed as error:
            assert "check the disk" in str(error)
        assert fails.has_failed
        fails.is_over = True
        after = disk.crash(random.Random(at))
        check(open_in_memory(clock, disk=after), ledger)


def test_a_disk_that_is_full_at_any_moment_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_rare_things_common(monkeypatch)
    kinds = ("write", "create", "make_directory")
    for at in _steps(_count(kinds, lambda actor, clock, disk: _try_to_work(actor))):
        clock = ManualClock(autoskip=False)
        ledger = Ledger(grants_last=True)
        disk = FaultDisk()
        actor = Persistent(open_in_memory(clock, disk=disk), ledger.note, allowed=DiskFull)
        actor.create_topic("jobs", 1)
        actor.queue("jobs")
        # From here on; the same two calls in the script change nothing.
        fails = Fails(disk, errno.ENOSPC, kinds, at)
        try:
            _try_to_work(actor)
        except BaseException as error:
            error.add_note(f"the disk was full from operation {at} on")
            raise
        fails.is_over = True
        # What had to wait for room goes on with the next call.
        actor.publish("jobs", ["there is room again"])
        check(actor.handle, ledger)
        messages = actor.lease("jobs", 100)
        actor.settle("ack", "jobs", messages)
        assert messages
        check(open_in_memory(clock, disk=disk.crash(keep_everything)), ledger)
        actor.handle.close()


def _try_to_work(actor: Actor) -> None:
    actor.create_topic("jobs", 1)
    actor.queue("jobs")
    for step in range(4):
        actor.publish("jobs", [f"{step}-{n}" for n in range(5)])
        messages = actor.lease("jobs", 5)
        actor.settle("ack", "jobs", messages[:2])
        actor.settle("reject", "jobs", messages[2:3], error="no")
        actor.settle("nack", "jobs", messages[3:], error="no")
        actor.create_topic(f"more-{step}", 2)
        actor.commit("readers", "jobs", 0, 0)


OPENING = ("write", "create", "make_directory", "rename")


@pytest.mark.parametrize("how", ["closed", "killed", "without power"])
def test_a_directory_opens_on_a_disk_that_is_full_from_any_operation_on(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no reserve left either. Nothing is lost, and with room all goes on."""
    make_rare_things_common(monkeypatch)
    clock = ManualClock(autoskip=False)
    ledger = Ledger(grants_last=how != "without power")
    disk = FaultDisk()
    actor = Actor(open_in_memory(clock, disk=disk), ledger.note)
    _run_script(actor, clock, disk)
    if how == "closed":
        actor.reopen(partial(open_in_memory, clock, disk=disk))
        actor.handle.close()
    lost = random.Random(SEED) if how == "without power" else keep_everything
    before = disk.crash(lost)
    counted = Fails(found := before.crash(keep_everything), 0, OPENING, at=1 << 60)
    open_in_memory(clock, disk=found).close()
    for at in range(1, counted.count + 1, 1 if LONG else 6):
        found = before.crash(keep_everything)
        found.remove(RESERVE_FILE)
        fails = Fails(found, errno.ENOSPC, OPENING, at)
        handle = open_in_memory(clock, disk=found)
        start = handle.topic("jobs").partitions[0].start_offset
        assert handle.connection.reach().read("jobs", 0, start)[0]
        # Killed while it is full, it opens again.
        fails.is_over = True
        after = Fails(again := found.crash(keep_everything), errno.ENOSPC, OPENING, at=1)
        handle = open_in_memory(clock, disk=again)
        with pytest.raises(DiskFull):
            handle.publish("jobs", b"no room for this")
        after.is_over = True
        check(handle, copy.deepcopy(ledger))
        handle.close()
        handle = open_in_memory(clock, disk=again)
        check(handle, copy.deepcopy(ledger))
        handle.publish("jobs", b"there is room again")
        handle.close()


# A real directory that may only grow so much: no mount, and no root, is needed.


class QuotaDisk(RealDisk):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.bytes_left: int | None = None

    def open(
        self, path: str, *, create: bool = False, read_only: bool = False, note: bool = False
    ) -> File:
        return QuotaFile(super().open(path, create=create, read_only=read_only, note=note), self)

    def free_bytes(self) -> int:
        return super().free_bytes() if self.bytes_left is None else self.bytes_left

    def remove(self, path: str) -> None:
        super().remove(path)
        if path == RESERVE_FILE and self.bytes_left is not None:
            self.bytes_left += RESERVE_BYTES


class QuotaFile:
    def __init__(self, file: File, disk: QuotaDisk) -> None:
        self._file = file
        self._disk = disk

    def write(self, data: Buffer, position: int) -> None:
        growth = max(0, position + len(data) - self._file.size())
        left = self._disk.bytes_left
        if left is not None:
            if growth > left:
                self._file.write(memoryview(data)[: len(data) - growth + left], position)
                self._disk.bytes_left = 0
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._disk.bytes_left = left - growth
        self._file.write(data, position)

    def write_parts(self, parts: Sequence[Buffer], position: int) -> None:
        self.write(b"".join(parts), position)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_a_real_directory_survives_a_full_disk(tmp_path: Path) -> None:
    disk = QuotaDisk(tmp_path)
    handle = _open(disk)
    ledger = Ledger(grants_last=True)
    actor = Actor(handle, ledger.note)
    actor.create_topic("jobs", 1)
    actor.queue("jobs")
    disk.bytes_left = 50_000
    published = _publish_until_full(actor, lambda number: f"{number}." + "." * 1_000)
    # There is no room even for an ack: the reserve makes some.
    disk.bytes_left = 0
    actor.settle("ack", "jobs", actor.lease("jobs", published // 2))
    assert not (tmp_path / RESERVE_FILE).exists()
    disk.bytes_left = None
    actor.publish("jobs", ["there is room again"])
    check(handle, ledger)
    handle.close()
    handle = _open(RealDisk(tmp_path))
    check(handle, ledger)
    handle.close()


def test_a_full_directory_opens_and_can_be_acked_empty(tmp_path: Path) -> None:
    ledger = Ledger(grants_last=True)
    handle = _open(RealDisk(tmp_path))
    actor = Actor(handle, ledger.note)
    actor.create_topic("jobs", 1)
    actor.queue("jobs")
    actor.publish("jobs", [f"{number}" for number in range(20)])
    handle.close()
    disk = QuotaDisk(tmp_path)
    disk.bytes_left = 0
    handle = _open(disk, free_bytes_min=8 * RESERVE_BYTES)
    actor = Actor(handle, ledger.note, 1_000)
    with pytest.raises(DiskFull):
        actor.publish("jobs", ["no room for this"])
    actor.settle("ack", "jobs", actor.lease("jobs", 100))
    check(handle, ledger)
    assert handle.depth("jobs", group=GROUP) == 0
    handle.close()
    handle = _open(RealDisk(tmp_path))
    check(handle, ledger)
    handle.close()
