"""Verification: every kind of damage is found and named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.log import Problem, Progress

if TYPE_CHECKING:
    from tests.unit.log.conftest import Bench

BATCH_BYTES = 61 + 8


@pytest.fixture
def three(bench: Bench) -> Bench:
    for _ in range(3):
        for _ in range(6):
            bench.append(b"x")
        bench.log.roll(1000)
    bench.sync()
    bench.log.close()
    return bench


def problems(bench: Bench) -> list[Problem]:
    bench.open(read_only=True)
    return [found for found in bench.log.verify() if isinstance(found, Problem)]


def test_a_sound_log_has_progress_and_no_problems(three: Bench) -> None:
    assert problems(three) == []
    steps = [found for found in three.log.verify() if isinstance(found, Progress)]
    assert [(step.file, step.batches) for step in steps] == [
        (three.name(base), 6) for base in (0, 6, 12)
    ]


def test_a_flipped_bit_is_named_by_file_and_position(three: Bench) -> None:
    three.damage(three.name(6), 2 * BATCH_BYTES + 65)
    (problem,) = problems(three)
    assert (problem.file, problem.position) == (three.name(6), 2 * BATCH_BYTES)
    assert problem.is_data and "checksum" in problem.reason


def test_a_segment_cut_at_a_batch_boundary_is_found(three: Bench) -> None:
    three.disk.open(three.name(0)).truncate(3 * BATCH_BYTES)
    (problem, *others) = problems(three)
    assert problem.is_data and problem.reason == "ends at offset 3 instead of 6"
    assert not any(other.is_data for other in others)


def test_a_batch_in_the_wrong_place_is_found(three: Bench) -> None:
    file = three.disk.open(three.name(0))
    file.write(file.read(BATCH_BYTES, 0), BATCH_BYTES)
    (problem,) = problems(three)
    assert problem.position == BATCH_BYTES and problem.reason == "offset 0 follows 0"


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_wrong_index_is_reported_as_harmless(three: Bench, suffix: str) -> None:
    three.damage(three.name(0, suffix), 7)
    (problem,) = problems(three)
    assert problem.file == three.name(0, suffix) and not problem.is_data


def test_a_batch_larger_than_a_slice_is_verified(bench: Bench) -> None:
    bench.append(b"x" * 3_000_000)
    bench.append(b"y")
    bench.sync()
    assert problems(bench) == []
    bench.log.close()
    bench.damage(bench.name(0), 2_000_000)
    (problem,) = problems(bench)
    assert problem.position == 0 and "checksum" in problem.reason
