"""Compaction: what stays, what goes, and what a crash in the middle leaves."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.log import CompactionResult
from headrace.record.batch import split_batches
from headrace.record.builder import build_batch, build_control_batch
from headrace.record.control import ControlKind
from headrace.record.record import NewRecord
from headrace.testing.fault_disk import keep_nothing

if TYPE_CHECKING:
    from tests.unit.log.conftest import Bench


def compact(
    bench: Bench, now_ms: int = 2000, clean_below: int = 10**9, keys_max: int | None = None
) -> CompactionResult:
    passes = bench.log.compact(now_ms, clean_below, keys_max=keys_max)
    while True:
        try:
            next(passes)
        except StopIteration as end:
            assert isinstance(end.value, CompactionResult)
            return end.value


def seal(bench: Bench) -> None:
    bench.log.roll(1000)
    bench.sync()


def offsets(bench: Bench) -> list[int]:
    return [record.offset for record in bench.records()]


def test_the_last_record_of_each_key_stays_where_it_was(bench: Bench) -> None:
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), (b"a", b"5")):
        bench.append(value, key=key)
    seal(bench)
    result = compact(bench)
    assert (result.records_dropped, result.cleaned_end) == (2, 5)
    assert result.bytes_after < result.bytes_before
    assert [(r.offset, r.key, r.value) for r in bench.records()] == [
        (1, b"b", b"2"),
        (3, b"c", b"4"),
        (4, b"a", b"5"),
    ]
    # An offset in a gap reads the next batch that exists.
    ((_, header),) = split_batches(bench.log.read(0, 1))
    assert header.base_offset == 1
    bench.reopen()
    assert offsets(bench) == [1, 3, 4]


def test_records_without_a_key_and_the_active_segment_stay(bench: Bench) -> None:
    bench.append(b"1")
    bench.append(b"2", key=b"a")
    seal(bench)
    bench.append(b"3", key=b"a")
    bench.append(b"4", key=b"a")
    bench.sync()
    assert compact(bench).records_dropped == 0
    assert offsets(bench) == [0, 1, 2, 3]


def test_nothing_unsynced_or_above_the_given_end_is_compacted(bench: Bench) -> None:
    for value in (b"1", b"2"):
        bench.append(value, key=b"a")
        bench.log.roll(1000)
    assert compact(bench).cleaned_end == 0
    bench.sync()
    assert compact(bench, clean_below=1).records_dropped == 0
    assert offsets(bench) == [0, 1]
    assert compact(bench, clean_below=2).records_dropped == 1
    assert offsets(bench) == [1]


def test_a_batch_keeps_the_records_that_are_still_the_last(bench: Bench) -> None:
    records = [NewRecord(key, key, timestamp_ms=1000) for key in (b"a", b"b", b"c")]
    bench.log.append(build_batch(records), 1, 1000)
    bench.append(b"new", key=b"b")
    seal(bench)
    compact(bench)
    assert [(r.offset, r.value) for r in bench.records()] == [(0, b"a"), (2, b"c"), (3, b"new")]


def test_a_segment_still_ends_where_it_ended(bench: Bench) -> None:
    bench.append(b"1", key=b"a")
    bench.append(b"2", key=b"b")
    seal(bench)
    bench.append(b"x" * 900, key=b"a")
    bench.append(b"y" * 900, key=b"b")
    seal(bench)
    compact(bench)
    assert offsets(bench) == [2, 3]
    # The first segment has nothing but an empty batch that says how far it goes.
    ((_, header),) = split_batches(bench.log.read(0, 1))
    assert (header.count, header.last_offset) == (0, 1)
    assert not [found for found in bench.log.verify() if hasattr(found, "reason")]


def test_small_neighbours_are_merged(bench: Bench) -> None:
    for number in range(6):
        bench.append(b"%d" % number, key=b"%d" % number)
        bench.log.roll(1000)
    bench.sync()
    compact(bench)
    assert bench.bases() == [0, 6]
    assert offsets(bench) == list(range(6))
    bench.reopen()
    assert offsets(bench) == list(range(6))


def test_a_tombstone_goes_its_time_after_it_was_first_compacted(bench: Bench) -> None:
    bench.log.settings = replace(bench.settings, tombstone_ms=100)
    bench.append(b"1", key=b"a")
    bench.append(None, key=b"a")
    bench.append(b"2", key=b"b")
    seal(bench)
    compact(bench, now_ms=5000)
    assert [(r.offset, r.value, r.timestamp_ms) for r in bench.records()] == [
        (1, None, 1000),
        (2, b"2", 1000),
    ]
    assert compact(bench, now_ms=5099).records_dropped == 0
    assert compact(bench, now_ms=5100).records_dropped == 1
    assert offsets(bench) == [2]
    assert compact(bench, now_ms=9999).bytes_before == 0


def test_a_limited_map_takes_several_passes(bench: Bench) -> None:
    for number in range(20):
        bench.append(b"%d" % number, key=b"%d" % (number % 4))
        if number % 5 == 4:
            bench.log.roll(1000)
    bench.sync()
    passes = 0
    while compact(bench, keys_max=2).cleaned_end < 20:
        passes += 1
    assert 1 < passes < 20
    compact(bench, keys_max=2)
    assert offsets(bench) == [16, 17, 18, 19]


def transaction(bench: Bench, key: bytes, value: bytes, kind: ControlKind, producer: int) -> None:
    bench.log.append(
        build_batch(
            [NewRecord(key, value, timestamp_ms=1000)],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        ),
        1,
        1000,
    )
    bench.log.append(
        build_control_batch(
            kind,
            base_offset=0,
            leader_epoch=0,
            timestamp_ms=1000,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
        ),
        1,
        1000,
    )


def test_an_aborted_record_supersedes_nothing(bench: Bench) -> None:
    bench.append(b"kept", key=b"a")
    transaction(bench, b"a", b"aborted", ControlKind.ABORT, 7)
    bench.append(b"old", key=b"b")
    transaction(bench, b"b", b"committed", ControlKind.COMMIT, 8)
    seal(bench)
    compact(bench)
    values = [record.value for record in bench.records()]
    assert b"kept" in values and b"committed" in values and b"old" not in values


def test_deletion_under_a_compaction_interrupts_it(bench: Bench) -> None:
    for number in range(6):
        bench.append(b"%d" % number, key=b"a")
        bench.log.roll(1000)
    bench.sync()
    passes = bench.log.compact(2000, 10)
    for _ in range(8):
        next(passes)
    bench.log.release(2)
    result = None
    try:
        while True:
            next(passes)
    except StopIteration as end:
        result = end.value
    assert result is not None and result.interrupted
    assert offsets(bench) == [2, 3, 4, 5]
    assert not [name for name in bench.disk.list("t/0") if name.endswith(".cleaned")]


def test_appends_go_on_during_a_compaction(bench: Bench) -> None:
    for _ in range(3):
        bench.append(b"x", key=b"a")
    seal(bench)
    for _ in bench.log.compact(2000, 10):
        bench.append(b"y", key=b"a")
    assert offsets(bench)[0] == 2
    assert len(offsets(bench)) == bench.log.end_offset - 2


def test_an_abandoned_compaction_leaves_nothing(bench: Bench) -> None:
    for _ in range(3):
        bench.append(b"x", key=b"a")
    seal(bench)
    passes = bench.log.compact(2000, 10)
    for _ in range(5):
        next(passes)
    passes.close()
    assert offsets(bench) == [0, 1, 2]
    assert not [name for name in bench.disk.list("t/0") if "cleaned" in name]


def test_a_copy_that_was_not_finished_is_discarded_at_open(bench: Bench) -> None:
    bench.append(b"x")
    bench.sync()
    bench.disk.open(bench.name(0, ".log.cleaned"), create=True).write(b"junk", 0)
    bench.reopen()
    assert bench.values() == [b"x"]
    assert not bench.disk.exists(bench.name(0, ".log.cleaned"))


def test_a_finished_copy_is_put_in_place_at_open(bench: Bench) -> None:
    for value in (b"1", b"2"):
        bench.append(value, key=b"a")
        bench.log.roll(1000)
    bench.append(b"3")
    bench.sync()
    swap = bench.disk.open(bench.name(0, ".log.swap"), create=True)
    swap.write(build_batch([NewRecord(b"a", b"2")], base_offset=1, leader_epoch=1), 0)
    bench.reopen()
    assert [(r.offset, r.value) for r in bench.records()] == [(1, b"2"), (2, b"3")]
    assert bench.bases() == [0, 2]


def test_a_finished_copy_is_put_in_place_also_on_a_full_disk(bench: Bench) -> None:
    for value in (b"1", b"2"):
        bench.append(value, key=b"a")
        seal(bench)
    compact(bench)
    for value in (b"3", b"4"):
        bench.append(value, key=b"a")
        seal(bench)
    swap = bench.disk.open(bench.name(2, ".log.swap"), create=True)
    swap.write(build_batch([NewRecord(b"a", b"4")], base_offset=3, leader_epoch=1), 0)

    def fail(_count: int, name: str, path: str) -> None:
        if name == "create":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    bench.disk.on_operation = fail
    bench.reopen()
    assert offsets(bench) == [1, 3]


def test_a_compacted_log_survives_power_loss(bench: Bench) -> None:
    for number in range(6):
        bench.append(b"%d" % number, key=b"a")
        bench.log.roll(1000)
    bench.sync()
    compact(bench)
    bench.crash(keep_nothing)
    assert offsets(bench) == [5]


def test_what_replaces_a_cut_end_is_compacted_too(bench: Bench) -> None:
    for value in (b"1", b"2", b"3"):
        bench.append(value, key=b"a")
        bench.log.roll(1000)
    bench.sync()
    assert compact(bench).cleaned_end == 3
    bench.log.truncate_to(bench.log.start_offset)
    for value in (b"4", b"5"):
        bench.append(value, key=b"a")
        seal(bench)
    assert compact(bench).records_dropped == 1
    assert bench.values() == [b"5"]


def test_what_is_younger_than_the_least_lag_waits_with_all_behind_it(bench: Bench) -> None:
    bench.log.settings = replace(bench.settings, compaction_lag_min_ms=5_000)
    for timestamp_ms in (1_000, 1_000, 7_000, 1_000):
        bench.append(b"v", key=b"a", timestamp_ms=timestamp_ms)
        seal(bench)
    assert compact(bench, now_ms=5_999).cleaned_end == 0
    assert compact(bench, now_ms=6_000).cleaned_end == 2
    assert offsets(bench) == [1, 2, 3]
    assert compact(bench, now_ms=12_000).cleaned_end == 4
    assert offsets(bench) == [3]


def test_compaction_waits_until_enough_is_new(bench: Bench) -> None:
    bench.log.settings = replace(bench.settings, dirty_ratio_min=0.5)
    for key in (b"a", b"b", b"c"):
        bench.append(b"v", key=key)
    seal(bench)
    assert compact(bench).cleaned_end == 3
    for _ in range(3):
        bench.append(b"v", key=b"a")
    seal(bench)
    # As much as is compacted already is not more than half.
    assert compact(bench).cleaned_end == 3
    bench.append(b"v", key=b"a")
    seal(bench)
    assert compact(bench).cleaned_end == 7
    assert offsets(bench) == [1, 2, 6]


def test_what_is_older_than_the_greatest_lag_is_compacted_in_any_case(bench: Bench) -> None:
    bench.log.settings = replace(bench.settings, dirty_ratio_min=1, compaction_lag_max_ms=5_000)
    bench.append(b"1", key=b"a", timestamp_ms=1_000)
    bench.append(b"2", key=b"a", timestamp_ms=9_000)
    seal(bench)
    assert compact(bench, now_ms=6_000).cleaned_end == 0
    assert compact(bench, now_ms=6_001).cleaned_end == 2
    assert offsets(bench) == [1]
    bench.append(b"3", key=b"a", timestamp_ms=6_000)
    seal(bench)
    assert compact(bench, now_ms=6_001).cleaned_end == 2
    assert compact(bench, now_ms=11_001).cleaned_end == 3


def test_tombstones_go_in_time_however_little_is_new(bench: Bench) -> None:
    bench.log.settings = replace(bench.settings, dirty_ratio_min=0.9, tombstone_ms=500)
    bench.append(None, key=b"a")
    bench.append(b"v", key=b"b")
    seal(bench)
    assert compact(bench, now_ms=2_000).cleaned_end == 2
    assert offsets(bench) == [0, 1]
    compact(bench, now_ms=2_501)
    assert offsets(bench) == [1]
