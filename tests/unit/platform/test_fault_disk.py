"""The disk with faults: what a crash may keep and what it must."""

from __future__ import annotations

import errno
from random import Random

import pytest

from headrace.testing.fault_disk import (
    PAGE_BYTES,
    FaultDisk,
    PowerLoss,
    keep_everything,
    keep_nothing,
)


def content(disk: FaultDisk, path: str) -> bytes:
    file = disk.open(path)
    return file.read(file.size(), 0)


def durable_file(disk: FaultDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.write(data, 0)
    file.sync()
    disk.sync_directory("")


def test_synced_bytes_survive_and_others_may_not() -> None:
    disk = FaultDisk()
    durable_file(disk, "a", b"synced")
    disk.open("a").write(b" and not", 6)
    assert content(disk.crash(keep_nothing), "a") == b"synced"
    assert content(disk.crash(keep_everything), "a") == b"synced and not"


def test_any_page_of_one_write_may_be_lost() -> None:
    disk = FaultDisk()
    durable_file(disk, "a", b"")
    disk.open("a").write(b"x" * 3 * PAGE_BYTES, 0)
    outcomes = set()
    for seed in range(200):
        after = content(disk.crash(Random(seed)), "a")
        pages = [after[start : start + PAGE_BYTES] for start in range(0, len(after), PAGE_BYTES)]
        assert all(page in (b"x" * PAGE_BYTES, bytes(PAGE_BYTES)) for page in pages)
        outcomes.add(tuple(page[0] for page in pages))
    # No file at all, and each of three pages there or not.
    assert outcomes == {()} | {(a, b, c) for a in (0, 120) for b in (0, 120) for c in (0, 120)}


def test_an_earlier_version_of_a_page_may_be_what_survived() -> None:
    disk = FaultDisk()
    durable_file(disk, "a", b"0")
    file = disk.open("a")
    file.write(b"1", 0)
    file.write(b"2", 0)
    found = {content(disk.crash(Random(seed)), "a") for seed in range(50)}
    assert found == {b"0", b"1", b"2"}


def test_truncation_is_lost_or_kept() -> None:
    disk = FaultDisk()
    durable_file(disk, "a", b"0123456789")
    disk.open("a").truncate(4)
    assert content(disk.crash(keep_nothing), "a") == b"0123456789"
    assert content(disk.crash(keep_everything), "a") == b"0123"


def test_a_synced_file_is_lost_when_its_folder_was_not_synced() -> None:
    disk = FaultDisk()
    disk.make_directory("x")
    file = disk.open("x/a", create=True)
    file.write(b"a", 0)
    file.sync()
    assert disk.crash(keep_nothing).list("") == []
    disk.sync_directory("x")
    # The folder has its file, but nobody has the folder.
    assert disk.crash(keep_nothing).list("") == []
    disk.sync_directory("")
    assert content(disk.crash(keep_nothing), "x/a") == b"a"


def test_a_rename_is_lost_or_kept_as_a_whole() -> None:
    disk = FaultDisk()
    durable_file(disk, "a", b"old")
    durable_file(disk, "b", b"new")
    disk.rename("b", "a")
    lost, kept = disk.crash(keep_nothing), disk.crash(keep_everything)
    assert (content(lost, "a"), content(lost, "b")) == (b"old", b"new")
    assert (content(kept, "a"), kept.exists("b")) == (b"new", False)
    disk.sync_directory("")
    assert content(disk.crash(keep_nothing), "a") == b"new"


def test_a_removal_is_lost_until_the_folder_is_synced() -> None:
    disk = FaultDisk()
    durable_file(disk, "a", b"a")
    disk.remove("a")
    assert disk.crash(keep_nothing).exists("a")
    disk.sync_directory("")
    assert not disk.crash(keep_nothing).exists("a")


def test_the_power_goes_before_the_chosen_operation_and_stays_off() -> None:
    disk = FaultDisk()
    seen: list[tuple[int, str, str]] = []
    disk.on_operation = lambda count, name, path: seen.append((count, name, path))
    disk.stop_at = 3
    file = disk.open("a", create=True)
    file.write(b"x", 0)
    with pytest.raises(PowerLoss):
        file.sync()
    with pytest.raises(PowerLoss):
        file.read(1, 0)
    with pytest.raises(PowerLoss):
        disk.open("b", create=True)
    assert seen == [(1, "create", "a"), (2, "write", "a")]
    after = disk.crash(keep_everything)
    assert content(after, "a") == b"x" and after.operations == 0


def test_a_full_disk_takes_what_fits() -> None:
    disk = FaultDisk()
    file = disk.open("a", create=True)
    disk.fail_writes_after(4)
    with pytest.raises(OSError) as caught:
        file.write(b"0123456789", 0)
    assert caught.value.errno == errno.ENOSPC
    assert (content(disk, "a"), disk.free_bytes()) == (b"0123", 0)
    file.write(b"over", 0)
    disk.fail_writes_after(None)
    file.write(b"0123456789", 0)
    assert content(disk, "a") == b"0123456789"


def test_a_failed_sync_makes_nothing_durable() -> None:
    disk = FaultDisk()
    durable_file(disk, "a", b"old")
    disk.fail_syncs = True
    file = disk.open("a")
    file.write(b"new", 0)
    with pytest.raises(OSError):
        file.sync()
    with pytest.raises(OSError):
        disk.sync_directory("")
    assert content(disk.crash(keep_nothing), "a") == b"old"


def test_a_seed_replays_its_crash() -> None:
    disk = FaultDisk()
    for name in "abcdef":
        disk.open(name, create=True).write(name.encode() * 9000, 0)
    first, second = disk.crash(Random(5)), disk.crash(Random(5))
    assert first.list("") == second.list("")
    assert all(content(first, name) == content(second, name) for name in first.list(""))
