"""The two encoders agree, and what they make is read back as it was."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.record.test_column_builder import column

from headrace.compiled import twins
from headrace.engine.partitioner import partition_of_key
from headrace.record import encode_headers, read_records, seal_records

PLAIN, COMPILED = twins("headrace.record.column_builder.encode_rows")
KEYS_PLAIN, KEYS_COMPILED = twins("headrace.engine.partitioner.partitions_of_keys")

pytestmark = pytest.mark.skipif(COMPILED is None, reason="not compiled: run hatch_build.py")

values = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=8), values), max_size=3).map(tuple)
table = st.lists(st.tuples(values, values, headers, st.integers(0, 2**50)), min_size=1, max_size=40)


@given(table, st.data(), st.booleans())
def test_both_twins_make_the_same_records(
    made: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]],
    data: st.DataObject,
    with_times: bool,
) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(made) - 1), min_size=1, max_size=60))
    arguments = (
        array("i", chosen).tobytes(),
        column([row[0] for row in made]),
        column([row[1] for row in made]),
        column([encode_headers(row[2]) for row in made]),
        array("q", [row[3] for row in made]).tobytes() if with_times else None,
        17,
    )
    records = PLAIN(*arguments)
    assert COMPILED is not None
    assert COMPILED(*arguments) == records
    assert read_records(seal_records(records, len(chosen), 17, 17)) == [
        (offset, made[row][3] if with_times else 17, made[row][0], made[row][1], made[row][2])
        for offset, row in enumerate(chosen)
    ]


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 1_000))
def test_both_twins_choose_the_same_partitions(keys: list[bytes], partitions: int) -> None:
    made = column(keys)
    expected = [partition_of_key(key, partitions) for key in keys]
    assert KEYS_COMPILED is not None
    for choose in (KEYS_PLAIN, KEYS_COMPILED):
        assert list(array("i", bytes(choose(made.starts, made.data, partitions)))) == expected
