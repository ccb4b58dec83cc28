"""Torn or rot: what opening a log believes, checks, cuts and refuses."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from headrace.core.errors import CorruptLog, SyncFailed
from headrace.testing.fault_disk import FaultFile, keep_nothing

if TYPE_CHECKING:
    from tests.unit.log.conftest import Bench

# The size of a batch with one record of one byte.
BATCH_BYTES = 61 + 8


def test_what_was_never_synced_is_gone_and_the_rest_is_there(bench: Bench) -> None:
    bench.append(b"a")
    bench.sync()
    bench.append(b"b")
    bench.crash(keep_nothing)
    assert bench.values() == [b"a"]
    assert bench.append(b"c") == (1, 2)


def test_what_a_dead_process_left_is_synced_before_the_log_is_open(bench: Bench) -> None:
    bench.append(b"a")
    bench.sync()
    bench.append(b"b")
    bench.log.roll(1000)
    bench.append(b"c", epoch=2)
    # Killed: the files are as written, but only the first batch was synced.
    bench.open()
    assert bench.log.synced_end == 3
    bench.crash(keep_nothing)
    assert bench.log.epoch_end(2) == (2, 3)
    assert bench.values() == [b"a", b"b", b"c"]


def test_good_batches_behind_a_torn_one_are_cut(bench: Bench) -> None:
    bench.append(b"a")
    bench.sync()
    for value in (b"b", b"c", b"d"):
        bench.append(value)
    bench.damage(bench.name(0), BATCH_BYTES + 65)
    bench.open()
    assert bench.values() == [b"a"]
    assert bench.disk.open(bench.name(0)).size() == BATCH_BYTES


def test_a_cut_is_durable_before_anything_is_appended(bench: Bench) -> None:
    bench.append(b"a")
    bench.sync()
    for value in (b"b", b"c", b"d"):
        bench.append(value)
    # Everything reached the disk, and then one batch was damaged.
    bench.damage(bench.name(0), BATCH_BYTES + 65)
    bench.open()
    bench.append(b"X")
    # "c" would fit behind "X", but whatever survives, it must not come back.
    check_outcomes(bench, [[b"a"], [b"a", b"X"]])


def test_truncation_is_durable_before_anything_is_appended(bench: Bench) -> None:
    for value in (b"a", b"b", b"c"):
        bench.append(value)
    bench.sync()
    bench.log.truncate_to(1)
    bench.append(b"X")
    check_outcomes(bench, [[b"a"], [b"a", b"X"]])


def check_outcomes(bench: Bench, allowed: list[list[bytes]]) -> None:
    disk = bench.disk
    for seed in range(200):
        bench.disk = disk.crash(Random(seed))
        bench.open()
        assert bench.values() in allowed, seed


def test_a_torn_segment_takes_the_later_ones_along(bench: Bench) -> None:
    bench.append(b"a")
    bench.sync()
    bench.append(b"b")
    bench.log.roll(1000)
    bench.append(b"c")
    bench.log.roll(1000)
    bench.append(b"d")
    bench.damage(bench.name(0), BATCH_BYTES + 65)
    bench.open()
    assert bench.values() == [b"a"]
    assert [name for name in bench.disk.list("t/0") if name.endswith(".log")] == [
        "00000000000000000000.log"
    ]


def test_a_segment_that_lost_its_end_takes_the_later_ones_along(bench: Bench) -> None:
    bench.append(b"a")
    bench.sync()
    bench.append(b"b")
    bench.append(b"c")
    bench.log.roll(1000)
    bench.append(b"d")
    bench.disk.open(bench.name(0)).truncate(2 * BATCH_BYTES)
    bench.open()
    assert bench.values() == [b"a", b"b"]


def test_rot_below_the_synced_end_is_found_when_read_and_never_cut(bench: Bench) -> None:
    for value in (b"a", b"b", b"c"):
        bench.append(value)
    bench.sync()
    bench.damage(bench.name(0), BATCH_BYTES + 65)
    bench.reopen()
    assert bench.log.end_offset == 3
    with pytest.raises(CorruptLog, match=rf"{bench.name(0)} at byte {BATCH_BYTES}: .*checksum"):
        bench.log.read(1, 1)
    with pytest.raises(CorruptLog, match=f"at byte {BATCH_BYTES}:"):
        bench.log.read(0, 1000)
    assert len(bench.log.read(2, 1)) == BATCH_BYTES


def test_a_file_shorter_than_it_was_synced_does_not_open(bench: Bench) -> None:
    bench.append(b"a")
    bench.append(b"b")
    bench.sync()
    bench.disk.open(bench.name(0)).truncate(BATCH_BYTES)
    with pytest.raises(CorruptLog, match=f"{bench.name(0)} at byte {BATCH_BYTES}.*synced up to"):
        bench.open()


def test_a_missing_file_with_synced_data_does_not_open(bench: Bench) -> None:
    bench.append(b"a")
    bench.sync()
    bench.disk.remove(bench.name(0))
    with pytest.raises(CorruptLog, match="missing"):
        bench.open()


def test_only_what_lies_above_the_synced_end_is_read_at_open(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(10):
        bench.append(b"x")
    bench.log.roll(1000)
    for _ in range(10):
        bench.append(b"x")
    bench.sync()
    bench.append(b"y")
    bench.log.close()
    read: list[tuple[str, int]] = []
    original = FaultFile.read

    def spy(file: FaultFile, length: int, position: int) -> bytes:
        read.append((file.path, position))
        return original(file, length, position)

    monkeypatch.setattr(FaultFile, "read", spy)
    bench.open()
    segments = [(path, position) for path, position in read if "000000" in path]
    assert segments == [(bench.name(10), 10 * BATCH_BYTES)]


@pytest.mark.parametrize("slot", [0, 4096])
def test_one_torn_slot_of_the_synced_file_is_survived(bench: Bench, slot: int) -> None:
    for value in (b"a", b"b", b"c"):
        bench.append(value)
        bench.sync()
    bench.damage("t/0/synced", slot + 10)
    bench.open()
    assert bench.log.synced_end in (2, 3)
    assert bench.values() == [b"a", b"b", b"c"]


def test_without_a_synced_file_everything_is_read_and_the_last_segment_cut(bench: Bench) -> None:
    bench.append(b"a")
    bench.log.roll(1000)
    for value in (b"b", b"c"):
        bench.append(value)
    bench.sync()
    bench.log.close()
    bench.disk.remove("t/0/synced")
    bench.damage(bench.name(1), BATCH_BYTES + 65)
    bench.open()
    assert bench.values() == [b"a", b"b"]
    assert bench.log.synced_end == 2


def test_without_a_synced_file_a_bad_earlier_segment_is_rot(bench: Bench) -> None:
    bench.append(b"a")
    bench.log.roll(1000)
    bench.append(b"b")
    bench.sync()
    bench.log.close()
    bench.disk.remove("t/0/synced")
    bench.damage(bench.name(0), 65)
    with pytest.raises(CorruptLog, match=f"{bench.name(0)} at byte 0"):
        bench.open()


def test_a_log_has_a_durable_mark_before_its_second_segment(bench: Bench) -> None:
    bench.append(b"a")
    bench.log.roll(1000)
    bench.append(b"b")
    after = bench.disk.crash(keep_nothing)
    assert after.exists("t/0/synced")


def test_lost_epochs_are_found_in_the_batches(bench: Bench) -> None:
    bench.append(b"a", epoch=1)
    bench.sync()
    bench.append(b"b", epoch=4)
    bench.append(b"c", epoch=4)
    bench.disk.open("t/0/epochs").truncate(16)
    bench.open()
    assert bench.log.epoch_end(1) == (1, 1)
    assert bench.log.epoch_end(4) == (4, 3)


def test_the_epochs_of_synced_batches_survive(bench: Bench) -> None:
    bench.append(b"a", epoch=1)
    bench.append(b"b", epoch=2)
    bench.sync()
    bench.crash(keep_nothing)
    assert (bench.log.epoch_end(1), bench.log.epoch_end(2)) == ((1, 1), (2, 2))


def test_a_read_only_open_of_a_torn_log_leaves_it_torn(bench: Bench) -> None:
    bench.append(b"a")
    bench.sync()
    bench.append(b"b")
    bench.damage(bench.name(0), BATCH_BYTES + 65)
    size = bench.disk.open(bench.name(0)).size()
    bench.open(read_only=True)
    assert bench.values() == [b"a"]
    assert bench.disk.open(bench.name(0)).size() == size


def test_a_start_above_what_survived_begins_an_empty_log(bench: Bench) -> None:
    bench.append(b"a")
    bench.sync()
    bench.append(b"b", b"c", b"d")
    bench.log.delete_before(3)
    bench.crash(keep_nothing)
    assert (bench.log.start_offset, bench.log.end_offset) == (3, 3)
    assert bench.append(b"e") == (3, 4)
    bench.reopen()
    assert bench.values() == [b"e"]


def test_a_disk_that_refuses_to_sync_what_was_found_does_not_open(bench: Bench) -> None:
    bench.append(b"a")
    bench.disk.fail_syncs = True
    with pytest.raises(SyncFailed):
        bench.open()
