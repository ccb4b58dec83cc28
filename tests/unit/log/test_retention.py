"""Which segments go, by time, by size and by what is still owed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from headrace.testing.fault_disk import keep_nothing

if TYPE_CHECKING:
    from tests.unit.log.conftest import Bench


@pytest.fixture
def four(bench: Bench) -> Bench:
    """Segments at 0, 1 and 2 and an active one at 3, a second apart."""
    for number in range(4):
        bench.append(b"%d" % number, timestamp_ms=1000 * (number + 1))
        if number < 3:
            bench.log.roll(1000)
    bench.sync()
    return bench


def retain(bench: Bench, *, ms: int | None = None, size_bytes: int | None = None) -> None:
    bench.settings = replace(bench.settings, retention_ms=ms, retention_bytes=size_bytes)
    bench.log.settings = bench.settings


def test_segments_go_when_their_youngest_record_is_too_old(four: Bench) -> None:
    retain(four, ms=5000)
    assert four.log.expire(6000, 4) == []
    assert four.log.expire(6001, 4) == [0]
    assert four.log.expire(7500, 4) == [1]
    assert four.log.start_offset == 2
    assert not four.disk.exists(four.name(0)) and not four.disk.exists(four.name(0, ".timeindex"))


def test_the_active_segment_goes_when_all_of_it_is_too_old(four: Bench) -> None:
    retain(four, ms=5000)
    assert four.log.expire(10_000, 4) == [0, 1, 2, 3]
    assert (four.log.start_offset, four.log.end_offset) == (4, 4)
    four.reopen()
    assert four.append(b"x") == (4, 5)


def test_what_is_owed_stays(four: Bench) -> None:
    retain(four, ms=5000)
    assert four.log.expire(60_000, 2) == [0, 1]
    assert four.log.expire(60_000, 2) == []
    retain(four, size_bytes=1)
    assert four.log.expire(60_000, 2) == []


def test_segments_go_while_the_rest_is_large_enough(four: Bench) -> None:
    size = four.log.segments()[0].size_bytes
    retain(four, size_bytes=4 * size)
    assert four.log.expire(0, 4) == []
    retain(four, size_bytes=2 * size)
    assert four.log.expire(0, 4) == [0, 1]
    assert four.log.size_bytes == 2 * size


def test_no_limit_means_for_ever(four: Bench) -> None:
    retain(four)
    assert four.log.expire(10**15, 4) == []


def test_a_segment_without_timestamps_goes_with_the_next(bench: Bench) -> None:
    for timestamp_ms in (-1, 1000, -1):
        bench.append(b"x", timestamp_ms=timestamp_ms)
        bench.log.roll(1000)
    retain(bench, ms=10)
    assert bench.log.expire(1010, 3) == []
    assert bench.log.expire(1011, 3) == [0, 1]


def test_one_young_record_keeps_an_old_segment(bench: Bench) -> None:
    for timestamp_ms in (1000, 9000, 1000):
        bench.append(b"x", timestamp_ms=timestamp_ms)
    bench.log.roll(1000)
    retain(bench, ms=10)
    for _ in range(2):
        assert bench.log.expire(9010, 3) == []
        bench.reopen()
    assert bench.log.expire(9011, 3) == [0]


def test_acked_segments_are_released(four: Bench) -> None:
    assert four.log.release(0) == []
    assert four.log.release(2) == [0, 1]
    assert four.log.release(4) == [2]
    assert four.values() == [b"3"]


def test_deleted_segments_do_not_come_back_with_the_power(four: Bench) -> None:
    four.log.release(2)
    four.crash(keep_nothing)
    assert four.values() == [b"2", b"3"]
    assert [name for name in four.disk.list("t/0") if name.endswith(".log")] == [
        "00000000000000000002.log",
        "00000000000000000003.log",
    ]
