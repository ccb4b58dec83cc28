"""The check of records against limits: its twins agree, and what it lets pass can be
read, whatever the bytes are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.compiled import twins
from headrace.core import limits
from headrace.core.errors import CorruptBatch
from headrace.record import NewRecord, build_batch, read_header
from headrace.record.batch import HEADER_BYTES
from headrace.record.reader import read_block_records
from headrace.record.record_limits import KEYED, LIMITS, PART, WITHIN

plain, compiled = twins("headrace.record.record_limits.find_fault")

records = st.builds(
    NewRecord,
    st.none() | st.binary(max_size=9),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=4).map(
        tuple
    ),
    st.integers(0, 2**40),
)
times = st.sampled_from([0, 1_700_000_000_000, 2**63 - 1, -(2**63)])
damages = st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 255)), max_size=3)


@pytest.mark.skipif(compiled is None, reason="not compiled: run hatch_build.py")
@given(st.lists(records, min_size=1, max_size=5), damages, times)
def test_the_twins_agree(
    sound: list[NewRecord], damaged: list[tuple[int, int]], base_ms: int
) -> None:
    block = bytearray(build_batch(sound)[HEADER_BYTES:])
    for at, byte in damaged:
        block[at % len(block)] = byte
    assert compiled is not None
    for rules in (0, LIMITS, KEYED | LIMITS, PART, PART | KEYED):
        for end in (len(block), len(block) - 1, len(block) // 2):
            part = bytes(block[:end])
            assert compiled(part, len(sound), rules, base_ms) == plain(
                part, len(sound), rules, base_ms
            )


@given(st.lists(records, min_size=1, max_size=5))
def test_the_beginning_of_sound_records_passes_wherever_it_ends(sound: list[NewRecord]) -> None:
    block = bytes(build_batch(sound)[HEADER_BYTES:])
    for end in range(len(block) + 1):
        assert plain(block[:end], len(sound), PART, 0)[0] == WITHIN


@given(st.lists(records, min_size=1, max_size=5), damages)
def test_what_can_be_read_whole_and_within_the_limits_passes(
    sound: list[NewRecord], damaged: list[tuple[int, int]]
) -> None:
    batch = build_batch(sound)
    block = bytearray(batch[HEADER_BYTES:])
    for at, byte in damaged:
        block[at % len(block)] = byte
    try:
        read_block_records(bytes(block), read_header(batch))
    except CorruptBatch:
        return
    assert len(block) < limits.KEY_BYTES_MAX
    assert plain(bytes(block), len(sound), LIMITS, 0)[0] == WITHIN
