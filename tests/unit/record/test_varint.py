"""Zigzag varints, against values worked out by hand."""

from __future__ import annotations

import pytest

from headrace.core.errors import CorruptBatch, InvalidArgument
from headrace.record.varint import (
    BITS_32,
    BITS_64,
    SMALL,
    decode_unsigned,
    decode_varint,
    encode_varint,
    varint_size,
)

KNOWN = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    8191: "fe7f",
    8192: "808001",
    2**31 - 1: "feffffff0f",
    -(2**31): "ffffffff0f",
    2**63 - 1: "feffffffffffffffff01",
    -(2**63): "ffffffffffffffffff01",
}


@pytest.mark.parametrize(("value", "encoded"), KNOWN.items())
def test_known_values_have_their_known_bytes(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert varint_size(value) == len(encoded) // 2
    assert decode_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


def test_the_table_of_small_numbers_holds_what_encoding_makes() -> None:
    assert [decode_varint(encoded, 0)[0] for encoded in SMALL] == list(range(len(SMALL)))


def test_a_number_that_needs_more_bits_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="more than 32 bits"):
        decode_unsigned(bytes.fromhex("ffffffff1f"), 0, BITS_32)
    with pytest.raises(CorruptBatch, match="more than 64 bits"):
        decode_varint(b"\xff" * 9 + b"\x02", 0, BITS_64)
    with pytest.raises(CorruptBatch, match="more than 64 bits"):
        decode_varint(b"\x80" * 40, 0, BITS_64)


def test_a_number_that_is_cut_off_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="cut off"):
        decode_varint(b"\x80\x80", 0)
    with pytest.raises(CorruptBatch, match="cut off"):
        decode_varint(b"", 0)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_a_number_beyond_64_bits_is_not_encoded(value: int) -> None:
    with pytest.raises(InvalidArgument):
        encode_varint(value)
