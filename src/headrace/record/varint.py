"""Zigzag varints: small numbers in few bytes, whatever their sign.

    value     0   -1    1   -2 ...   63   -64      64
    zigzag    0    1    2    3 ...  126   127     128
    bytes    00   01   02   03 ...   7e    7f   80 01

Seven bits a byte, low bits first; the high bit says that more follow. A 32-bit
number takes at most 5 bytes, a 64-bit number at most 10.

The hot loops do not come here for numbers of one or two bytes: the builder looks
them up in `SMALL` and the reader decodes them itself, since a call costs more
than the work. What is here is the whole truth, for the rest.

Rejected: a table of two-byte decodings. Indexing it is no faster than a shift.
"""

from __future__ import annotations

from typing import Final

from headrace.core.errors import CorruptBatch, InvalidArgument

BITS_32: Final = 32
BITS_64: Final = 64

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_UINT64_MAX: Final = 2**64 - 1


class NumberCutOff(CorruptBatch):
    """The bytes end before the number does."""


def encode_varint(value: int) -> bytes:
    """The bytes of a number of at most 64 bits with its sign."""
    if 0 <= value < _SMALL_COUNT:
        return SMALL[value]
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise InvalidArgument(f"{value} does not fit into 64 bits")
    return _encode(value)


def decode_varint(buffer: bytes, position: int, bits: int = BITS_64) -> tuple[int, int]:
    """The number at `position` and the position behind it.

    CorruptBatch when the buffer ends first or the number needs more bits.
    """
    raw, position = decode_unsigned(buffer, position, bits)
    return (raw >> 1) ^ -(raw & 1), position


def decode_unsigned(buffer: bytes, position: int, bits: int = BITS_32) -> tuple[int, int]:
    """Like `decode_varint` without undoing the zigzag: odd is negative."""
    raw = 0
    for shift in range(0, bits, 7):
        if position >= len(buffer):
            raise NumberCutOff("a number is cut off at the end of the batch")
        byte = buffer[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> bits:
                break
            return raw, position
    raise CorruptBatch(f"a number has more than {bits} bits")


def read_more(data: bytes, position: int, raw: int, bits: int = BITS_32) -> tuple[int, int]:
    """A number whose first byte was `raw`, before `position`, and where it ends.
    The zigzag is not undone: odd is negative. IndexError at the end of the data."""
    following = data[position]
    if following < 128:
        return raw - 128 + (following << 7), position + 1
    return decode_unsigned(data, position - 1, bits)


def as_int64(value: int) -> int:
    """What 64 bits keep of a sum or a difference, as in Kafka: times are added and subtracted
    so, and what was subtracted is the same again once it is added."""
    return ((value - _INT64_MIN) & _UINT64_MAX) + _INT64_MIN


def varint_size(value: int) -> int:
    """How many bytes `encode_varint` makes of it."""
    raw = value << 1 if value >= 0 else ~(value << 1)
    return max(1, (raw.bit_length() + 6) // 7)


def _encode(value: int) -> bytes:
    raw = value << 1 if value >= 0 else ~(value << 1)
    encoded = bytearray()
    while raw > 0x7F:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


# The non-negative numbers of one and two bytes: nearly all the offset deltas
# and lengths there are.
_SMALL_COUNT: Final = 1 << 13
SMALL: Final = tuple(_encode(value) for value in range(_SMALL_COUNT))
