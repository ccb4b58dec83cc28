"""Varints, lengths, numbers and tagged sections, byte by byte."""

from __future__ import annotations

import pytest

from headrace.core.errors import InvalidArgument, MalformedMessage
from headrace.wire.kafka.primitives import (
    STRING_BYTES_MAX,
    compact_numbers,
    compact_string,
    encode_varint,
    join_uuids,
    legacy_numbers,
    legacy_string,
    read_numbers,
    read_string_length,
    read_tag,
    read_uuids,
    read_varint,
    skip_tagged_fields,
    string_length,
    tagged_field,
    tagged_section,
)

VARINTS = [
    (0, b"\x00"),
    (1, b"\x01"),
    (127, b"\x7f"),
    (128, b"\x80\x01"),
    (300, b"\xac\x02"),
    (1023, b"\xff\x07"),
    (1024, b"\x80\x08"),
    (16_383, b"\xff\x7f"),
    (16_384, b"\x80\x80\x01"),
    (2**21 - 1, b"\xff\xff\x7f"),
    (2**21, b"\x80\x80\x80\x01"),
    (2**31, b"\x80\x80\x80\x80\x08"),
    (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
]


@pytest.mark.parametrize(("value", "encoded"), VARINTS)
def test_a_varint_has_seven_bits_a_byte_lowest_first(value: int, encoded: bytes) -> None:
    assert encode_varint(value) == encoded
    assert read_varint(b"?" + encoded + b"?", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("value", [-1, 2**32])
def test_a_number_that_is_no_varint_is_not_encoded(value: int) -> None:
    with pytest.raises(InvalidArgument, match="varint"):
        encode_varint(value)


@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x01"])
def test_a_varint_of_more_than_32_bits_is_refused(encoded: bytes) -> None:
    with pytest.raises(MalformedMessage, match="32 bits"):
        read_varint(encoded, 0)


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\xff\xff"])
def test_a_varint_that_does_not_end_leaves_the_frame(encoded: bytes) -> None:
    with pytest.raises(IndexError):
        read_varint(encoded, 0)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 128, STRING_BYTES_MAX])
def test_a_compact_string_starts_with_its_length_plus_one(size: int) -> None:
    encoded = compact_string("x" * size)
    length, position = read_varint(encoded, 0)
    assert length == size + 1
    assert encoded[position:] == b"x" * size


def test_a_string_is_measured_in_bytes_and_not_in_characters() -> None:
    assert compact_string("é") == b"\x03\xc3\xa9"
    assert legacy_string("é") == b"\x00\x02\xc3\xa9"


def test_a_string_too_long_for_kafka_is_neither_written_nor_read() -> None:
    with pytest.raises(InvalidArgument, match="32768 bytes"):
        compact_string("x" * (STRING_BYTES_MAX + 1))
    with pytest.raises(InvalidArgument):
        string_length(STRING_BYTES_MAX + 1)
    assert read_string_length(encode_varint(STRING_BYTES_MAX + 1), 0)[0] == STRING_BYTES_MAX + 1
    with pytest.raises(MalformedMessage, match="32768 bytes"):
        read_string_length(encode_varint(STRING_BYTES_MAX + 2), 0)


@pytest.mark.parametrize("count", [0, 1, 16, 17, 200])
@pytest.mark.parametrize(("element", "size"), [("b", 1), ("h", 2), ("i", 4), ("q", 8)])
def test_numbers_are_counted_and_come_back(element: str, size: int, count: int) -> None:
    values = tuple(-(number % 128) for number in range(count))
    compact = compact_numbers(element, values)
    prefix = encode_varint(count + 1)
    assert compact.startswith(prefix) and len(compact) == len(prefix) + size * count
    legacy = legacy_numbers(element, values)
    assert legacy == count.to_bytes(4, "big") + compact[len(prefix) :]
    assert read_numbers(element, legacy, 4, count) == values


def test_uuids_have_sixteen_bytes_each() -> None:
    uuids = [bytes([number]) * 16 for number in range(3)]
    assert read_uuids(memoryview(b"?" + join_uuids(uuids)), 1, 3) == tuple(uuids)
    with pytest.raises(InvalidArgument, match="not 15"):
        join_uuids([bytes(15)])


def test_a_tagged_section_is_skipped_as_a_whole() -> None:
    section = tagged_section([tagged_field(0, [b"one"]), tagged_field(9_000, [b"t", b"wo"])])
    assert section == b"\x02\x00\x03one\xa8\x46\x03two"
    assert skip_tagged_fields(section + b"?", 0, len(section) + 1) == len(section)
    assert read_tag(section, 1, len(section)) == (0, 3, 6)


@pytest.mark.parametrize("section", [b"\x01\x00\x04one", b"\x01\x00\xff\xff\xff\xff\x0f"])
def test_a_tagged_field_longer_than_the_frame_is_refused(section: bytes) -> None:
    with pytest.raises(MalformedMessage, match="beyond the frame"):
        skip_tagged_fields(section, 0, len(section))
