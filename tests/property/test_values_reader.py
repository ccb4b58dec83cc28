"""The quick way to read a batch of plain values agrees with the general one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import CorruptBatch
from headrace.record import build_values_batch, read_header
from headrace.record.batch import HEADER_BYTES
from headrace.record.reader import _read_all, _read_values

# Around the lengths and counts at which numbers in a batch need one more byte.
LENGTHS = st.sampled_from([0, 1, 2, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 100, 8_191, 8_192])
COUNTS = st.sampled_from([1, 2, 63, 64, 65, 66])


@given(length=LENGTHS, count=COUNTS, byte=st.integers(0, 255))
def test_values_of_one_length_are_read_the_quick_way(length: int, count: int, byte: int) -> None:
    batch = bytes(build_values_batch([bytes([byte]) * length] * count, 7, base_offset=9))
    header = read_header(batch)
    quick = _read_values(batch[HEADER_BYTES:], header)
    assert len(quick) == count
    assert quick == _read_all(batch[HEADER_BYTES:], header)


@given(data=st.data(), length=LENGTHS, count=COUNTS)
def test_damage_is_never_read_as_something_else(
    data: st.DataObject, length: int, count: int
) -> None:
    batch = build_values_batch([b"\0" * length] * count, 7)
    header = read_header(bytes(batch))
    records = bytearray(batch[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(records) - 1))
        records[position] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del records[data.draw(st.integers(1, len(records))) :]
    try:
        quick = _read_values(bytes(records), header)
    except (CorruptBatch, IndexError):
        quick = []
    if quick:
        assert quick == _read_all(bytes(records), header)
