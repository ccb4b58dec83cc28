"""Free space: when publishing stops, and what is told of the disk."""

from __future__ import annotations

import pytest

from headrace.core.errors import DiskFull
from headrace.engine.space import ASK_BYTES, Space
from headrace.platform.memory_disk import MemoryDisk

KIB, MIB = 1024, 1024 * 1024
FLOOR = 64 * MIB


class Bench:
    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.free = 2 * FLOOR
        self.disk.free_bytes = lambda: self.free  # type: ignore[method-assign]
        self.space = Space(self.disk, FLOOR)
        self.told: list[bool] = []
        self.space.on_change = lambda is_full, free: self.told.append(is_full)

    def publishes(self, size: int) -> bool:
        try:
            self.space.check(size)
        except DiskFull:
            return False
        self.free -= size
        return True


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_publish_that_is_too_large_for_what_is_left_does_not_make_the_disk_full(
    bench: Bench,
) -> None:
    bench.free = FLOOR + MIB
    for _ in range(5):
        assert not bench.publishes(2 * MIB)
        assert bench.publishes(KIB)
    assert bench.told == []
    with pytest.raises(DiskFull, match=f"{2 * MIB}"):
        bench.space.check(2 * MIB)


def test_one_message_more_or_less_is_not_told_again_and_again(bench: Bench) -> None:
    for _ in range(5):
        bench.free = FLOOR - KIB
        assert not bench.publishes(KIB)
        bench.free = FLOOR + KIB
        assert bench.publishes(KIB)
    assert bench.told == [True]
    bench.free = FLOOR + MIB
    bench.space.look()
    assert bench.told == [True]
    bench.free = FLOOR + 4 * MIB
    bench.space.look()
    assert bench.told == [True, False]


def test_publishing_never_goes_below_the_floor(bench: Bench) -> None:
    sizes = (3 * MIB, 700 * KIB, ASK_BYTES)
    going_on = True
    while going_on:
        going_on = False
        for size in sizes:
            going_on |= bench.publishes(size)
            assert bench.free >= FLOOR
    assert bench.free < FLOOR + min(sizes)


def test_without_a_floor_nothing_is_refused(bench: Bench) -> None:
    space = Space(bench.disk, 0)
    bench.free = 0
    space.check(MIB)
    assert not space.is_full
