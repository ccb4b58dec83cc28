"""Stepping over records: both twins come to the same place, or refuse the same bytes."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.twins import both

from headrace.compiled import twins
from headrace.core.errors import CorruptBatch
from headrace.record import NewRecord, build_batch
from headrace.record.batch import HEADER_BYTES
from headrace.record.skipping import Place

Skip = Callable[[bytes, int, int, int, int, int], Place]
FAR = 1 << 40
NAME = "headrace.record.skipping.skip_to"
plain, compiled = twins(NAME)


def block_of(count: int) -> bytes:
    records = [
        NewRecord(b"k" * (number % 3), b"v" * (number % 300), (), number * 40)
        for number in range(count)
    ]
    return bytes(build_batch(records)[HEADER_BYTES:])


@pytest.mark.parametrize("skip", both(NAME))
def test_it_comes_to_the_record_that_is_wanted_from_wherever_it_begins(skip: Skip) -> None:
    block = block_of(500)
    places = [skip(block, 0, -1, 500, wanted, FAR) for wanted in range(501)]
    assert places[0] == (0, -1, 500)
    assert [place[1:] for place in places] == [(wanted - 1, 500 - wanted) for wanted in range(501)]
    assert places[500][0] == len(block)
    assert skip(block, *places[100], 400, FAR) == places[400]
    # What lies before is not gone back to, and behind the end is nothing.
    assert skip(block, *places[100], 50, FAR) == places[100]
    assert skip(block, 0, -1, 500, 10_000, FAR) == places[500]


@pytest.mark.parametrize("skip", both(NAME))
def test_it_goes_no_further_than_a_byte(skip: Skip) -> None:
    block = block_of(500)
    places = [skip(block, 0, -1, 500, wanted, FAR) for wanted in range(501)]
    assert skip(block, 0, -1, 500, 500, 0) == places[0]
    assert skip(block, 0, -1, 500, 500, places[70][0]) == places[70]
    assert skip(block, 0, -1, 500, 500, places[70][0] + 1) == places[71]
    assert skip(block, *places[70], 500, places[70][0]) == places[70]
    assert skip(block, 0, -1, 500, 60, places[70][0]) == places[60]


@pytest.mark.parametrize("skip", both(NAME))
def test_records_that_are_cut_off_or_too_long_are_refused(skip: Skip) -> None:
    block = block_of(20)
    for end in range(len(block) - 1):
        with pytest.raises(CorruptBatch):
            skip(block[:end], 0, -1, 20, 20, FAR)


@pytest.mark.skipif(compiled is None, reason="not compiled: run hatch_build.py")
def test_the_twins_agree_on_nonsense() -> None:
    assert compiled is not None
    randomly, sound = random.Random(1), block_of(30)
    for _ in range(3_000):
        block = bytearray(sound)
        for _ in range(randomly.randrange(1, 4)):
            block[randomly.randrange(len(block))] = randomly.randrange(256)
        outcomes = []
        for skip in (plain, compiled):
            try:
                outcomes.append(skip(bytes(block), 0, -1, 30, 30, FAR))
            except CorruptBatch:
                outcomes.append(CorruptBatch)
        assert outcomes[0] == outcomes[1]
