"""The two decoders of columns agree: on records, and on nonsense."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.record.test_columns import rows_of

from headrace.compiled import twins
from headrace.core.errors import CorruptBatch
from headrace.record import Codec, NewRecord, build_batch, read_header
from headrace.record.columns import Block, open_block

PLAIN, COMPILED = twins("headrace.record.columns.decode_columns")

pytestmark = pytest.mark.skipif(COMPILED is None, reason="not compiled: run hatch_build.py")

values = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=8), values), max_size=4).map(tuple)
records = st.builds(
    NewRecord, values, values, headers, st.integers(min_value=-(2**40), max_value=2**60)
)
batches = st.builds(
    lambda each, base, codec: build_batch(each, base_offset=base, codec=codec),
    st.lists(records, min_size=1, max_size=30),
    st.integers(min_value=0, max_value=100),
    st.sampled_from(list(Codec)),
)


def outcome(decode: Any, blocks: list[Block], start: int, end: int, with_headers: bool) -> Any:
    try:
        return rows_of(decode(blocks, start, end, with_headers=with_headers))
    except CorruptBatch:
        return "corrupt"


@given(st.lists(batches, max_size=4), st.integers(0, 150), st.integers(0, 150), st.booleans())
def test_both_twins_make_the_same_columns(
    made: list[bytearray], start: int, end: int, with_headers: bool
) -> None:
    blocks = [open_block(batch, read_header(batch)) for batch in made]
    plain = outcome(PLAIN, blocks, start, end, with_headers)
    assert plain != "corrupt"
    assert outcome(COMPILED, blocks, start, end, with_headers) == plain


@given(batches, st.data())
def test_both_twins_refuse_the_same_nonsense(batch: bytearray, data: st.DataObject) -> None:
    block = open_block(batch, read_header(batch))
    damaged = bytearray(block.records)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    blocks = [Block(bytes(damaged), block.header)]
    plain = outcome(PLAIN, blocks, 0, 2**62, True)
    assert outcome(COMPILED, blocks, 0, 2**62, True) == plain
