"""Dead letters of records that could not be decoded: how many go together."""

from __future__ import annotations

from headrace.record import Record
from headrace.spark.letters import letter_batches


def letters(*sizes: int) -> list[tuple[Record, str]]:
    return [(Record(n, 0, None, b"x" * size, ()), "why") for n, size in enumerate(sizes)]


def test_letters_go_together_as_long_as_a_broker_takes_them() -> None:
    large = letters(*[200_000] * 5, 2_000_000, 10, 10)
    assert [[record.offset for record, _ in some] for some in letter_batches(large)] == [
        [0, 1],
        [2, 3],
        [4],
        [5],
        [6, 7],
    ]
    assert [len(some) for some in letter_batches(letters(*[1] * 2_500))] == [1_000, 1_000, 500]
    assert list(letter_batches([])) == []
