"""What the generated codecs are made of: the rare turns of the road.

The common case of every field is written out in the generated code; what is here
is called when a length takes more than one byte, when a peer sends a tagged field
that we do not know, and for arrays of numbers.

    unsigned varint   7 bits a byte, lowest first, the high bit says "more"; 5 bytes at most
    compact length    varint of length + 1; 0 is null
    tagged fields     varint count, then (varint tag, varint size, that many bytes) each

Readers take a position and return the position behind what they read. They raise
MalformedMessage, or IndexError where the frame ends too early; the generated
decoders turn every such error into MalformedMessage.

Rejected: a reader object that keeps the position. An attribute costs more than
a local variable, and a decoder reads its position at every field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, error, pack, unpack_from
from typing import Any, Final, Protocol, TypeVar, cast

from headrace.core.errors import InvalidArgument, MalformedMessage
from headrace.core.ports import Buffer

# Kafka bounds a compact string like the legacy one, whose length is an int16.
STRING_BYTES_MAX: Final = 2**15 - 1

ZERO_UUID: Final = bytes(16)

# Everything that reading beyond the frame, or text that is no UTF-8, can raise.
DECODE_ERRORS: Final = (error, IndexError, UnicodeDecodeError)
ENCODE_ERRORS: Final = (error, UnicodeEncodeError)

Value = TypeVar("Value")


class _New(Protocol):
    def __call__(self, kind: type[Value], fields: tuple[Any, ...], /) -> Value: ...


# Makes a NamedTuple from all of its fields at once, past the Python function that
# would sort out keywords and defaults.
new: Final = cast(_New, tuple.__new__)


def malformed(message: str, cause: Exception) -> MalformedMessage:
    return MalformedMessage(f"{message}: {cause}")


def unencodable(message: str, cause: Exception) -> InvalidArgument:
    return InvalidArgument(f"{message}: a value does not fit its field: {cause}")


def missing(field: str) -> InvalidArgument:
    return InvalidArgument(f"{field} cannot be null in this version")


def not_a_uuid(value: Buffer) -> InvalidArgument:
    return InvalidArgument(f"a UUID has 16 bytes, not {len(value)}")


# Varints.


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# The numbers that lengths and counts mostly are, encoded once.
SHORT_VARINTS_END: Final = 1024
short_varints: Final[tuple[bytes, ...]] = tuple(map(_varint, range(SHORT_VARINTS_END)))


_pack_two: Final = Struct("BB").pack
_pack_three: Final = Struct("BBB").pack


def encode_varint(value: int) -> bytes:
    """An unsigned varint of up to 32 bits."""
    if not 0 <= value < 2**32:
        raise InvalidArgument(f"{value} does not fit an unsigned varint of 32 bits")
    if value < SHORT_VARINTS_END:
        return short_varints[value]
    # The sizes of batches: written out, because every fetched partition has one.
    if value < 2**14:
        return _pack_two(value & 0x7F | 0x80, value >> 7)
    if value < 2**21:
        return _pack_three(value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14)
    return _varint(value)


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    value = data[position]
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 2**32:
                break
            return value, position
    raise MalformedMessage("a varint has more than 32 bits")


# Strings.


def string_length(size: int) -> bytes:
    """The compact length of a string that is too long for `short_varints`."""
    if size > STRING_BYTES_MAX:
        raise InvalidArgument(f"a string of {size} bytes; at most {STRING_BYTES_MAX} fit")
    return encode_varint(size + 1)


def read_string_length(data: Buffer, position: int) -> tuple[int, int]:
    """The compact length of a string, once it is known to take several bytes."""
    length, position = read_varint(data, position)
    if length > STRING_BYTES_MAX + 1:
        raise MalformedMessage(f"a string of {length - 1} bytes; at most {STRING_BYTES_MAX} fit")
    return length, position


def compact_string(text: str) -> bytes:
    encoded = text.encode()
    size = len(encoded)
    if size < 127:
        return short_varints[size + 1] + encoded
    return string_length(size) + encoded


def legacy_string(text: str) -> bytes:
    encoded = text.encode()
    return pack(">h", len(encoded)) + encoded


def compact_bytes(value: Buffer) -> bytes:
    return encode_varint(len(value) + 1) + value


def legacy_bytes(value: Buffer) -> bytes:
    return pack(">i", len(value)) + value


# Arrays of numbers. Short ones, such as the replicas of a partition, have their
# formats compiled ahead, the count included.

_COMPILED_END: Final = 17


def _compile(count_format: str, element: str) -> tuple[Callable[..., bytes], ...]:
    return tuple(Struct(f">{count_format}{count}{element}").pack for count in range(_COMPILED_END))


_compact_packs: Final = {element: _compile("B", element) for element in "bhiq"}
_legacy_packs: Final = {element: _compile("i", element) for element in "bhiq"}
_unpacks: Final = {
    element: tuple(Struct(f">{count}{element}").unpack_from for count in range(_COMPILED_END))
    for element in "bhiq"
}

# The most common ones, for the encoders to use without a call between.
compact_int32s: Final = _compact_packs["i"]
legacy_int32s: Final = _legacy_packs["i"]
INT32S_END: Final = _COMPILED_END


def compact_numbers(element: str, values: Sequence[int]) -> bytes:
    count = len(values)
    if count < _COMPILED_END:
        return _compact_packs[element][count](count + 1, *values)
    return encode_varint(count + 1) + pack(f">{count}{element}", *values)


def legacy_numbers(element: str, values: Sequence[int]) -> bytes:
    count = len(values)
    if count < _COMPILED_END:
        return _legacy_packs[element][count](count, *values)
    return pack(f">i{count}{element}", count, *values)


def read_numbers(element: str, data: Buffer, position: int, count: int) -> tuple[int, ...]:
    """The caller has checked the count against the rest of the frame."""
    if count < _COMPILED_END:
        return _unpacks[element][count](data, position)
    return unpack_from(f">{count}{element}", data, position)


def join_uuids(values: Sequence[bytes]) -> bytes:
    for value in values:
        if len(value) != 16:
            raise not_a_uuid(value)
    return b"".join(values)


def read_uuids(data: Buffer, position: int, count: int) -> tuple[bytes, ...]:
    """The caller has checked the count against the rest of the frame."""
    return tuple([bytes(data[at : at + 16]) for at in range(position, position + 16 * count, 16)])


# Tagged fields.


def tagged_field(tag: int, parts: Sequence[Buffer]) -> bytes:
    body = b"".join(parts)
    return encode_varint(tag) + encode_varint(len(body)) + body


def tagged_section(fields: Sequence[bytes]) -> bytes:
    return encode_varint(len(fields)) + b"".join(fields)


def read_tag(data: Buffer, position: int, size: int) -> tuple[int, int, int]:
    """One field's tag, the position of its content, and the content's end."""
    tag, position = read_varint(data, position)
    length, position = read_varint(data, position)
    end = position + length
    if end > size:
        raise MalformedMessage(f"tagged field {tag} ends beyond the frame")
    return tag, position, end


def skip_tagged_fields(data: Buffer, position: int, size: int) -> int:
    """Pass over a whole section, whose count is at the position."""
    count, position = read_varint(data, position)
    for _ in range(count):
        _, _, position = read_tag(data, position, size)
    return position
