"""Compression of a batch's records, in the forms that Kafka clients write.

    gzip      one RFC 1952 member
    snappy    82 'SNAPPY' 00 | version 1 | least version 1 | (length, block) ...
    lz4       the frame format with independent blocks
    zstd      frames

A compressed batch of a few kilobytes can claim to hold gigabytes, and anybody
may send one. So nothing here allocates by what the input claims: output grows
in steps that start from the size of the input, and stops at a limit.

Rejected: the one-call `decompress` of the codec libraries, which finds out how
much memory a bomb needs by allocating it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any, Final

import cramjam

from headrace.core import limits
from headrace.core.errors import CorruptBatch
from headrace.core.ports import Buffer
from headrace.record.filling import filled
from headrace.record.lz4_beginning import OUTPUT_FULL, read_lz4_beginning


class HoldsTooMuch(CorruptBatch):
    """The data may be sound, but there is more of it than the caller takes."""


class Codec(IntEnum):
    """Numbers as in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# zlib's way to say "the largest window, in a gzip member".
_GZIP_WINDOW_BITS: Final = 31
_GZIP_LEVEL: Final = 6
# How much of it is opened at once, and how much at most is fed at once.
_GZIP_PART_BYTES: Final = 512 * 1024
_LZ4_LEVEL: Final = 1
_ZSTD_LEVEL: Final = 3

XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
# What is opened of snappy where the beginning is asked for: its blocks have no end within.
_BLOCK_BYTES_MAX: Final = 2 * 1024 * 1024
_BLOCK_LENGTH: Final = struct.Struct(">i")
# Snappy's best element makes 64 bytes of 3, so a claim beyond this ratio is a
# lie that needs no memory to be found out.
_SNAPPY_RATIO_MAX: Final = 64

_FIRST_GUESS_RATIO: Final = 6
_FIRST_GUESS_BYTES_MIN: Final = 16 * 1024
_GROWTH: Final = 4


def compress(codec: Codec, data: Buffer) -> bytes:
    """The bytes that stand in a batch for `data`."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return zlib.compress(data, _GZIP_LEVEL, _GZIP_WINDOW_BITS)
    if codec == Codec.SNAPPY:
        return _compress_xerial(data)
    if codec == Codec.LZ4:
        # Kafka's own reader refuses linked blocks.
        compressor = cramjam.lz4.Compressor(
            level=_LZ4_LEVEL, content_checksum=False, block_linked=False
        )
        compressor.compress(bytes(data))
        return bytes(compressor.finish())
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


def decompress(codec: int, data: Buffer, limit: int = limits.DECOMPRESSED_BYTES_MAX) -> bytes:
    """The bytes that `compress` was given.

    CorruptBatch when they are not of that codec, end early, or would be more
    than `limit`; never much more than `limit` is allocated on the way.
    """
    if codec == Codec.NONE:
        if len(data) > limit:
            raise _too_large(limit)
        return bytes(data)
    try:
        if codec == Codec.GZIP:
            return _decompress_gzip(data, limit)
        if codec == Codec.SNAPPY:
            return _decompress_snappy(data, limit)
        if codec == Codec.LZ4:
            return _decompress_growing(cramjam.lz4.decompress_into, data, limit)
        if codec == Codec.ZSTD:
            return _decompress_growing(cramjam.zstd.decompress_into, data, limit)
    except (zlib.error, cramjam.DecompressionError) as error:
        raise _invalid(codec, error) from error
    raise CorruptBatch(f"codec {codec} is unknown")


def decompress_beginning(codec: int, data: Buffer, limit: int) -> tuple[Buffer, bool]:
    """Like `decompress`; where there are more than `limit` bytes, the first so many or
    more. And whether these are all."""
    if codec == Codec.LZ4:
        beginning = read_lz4_beginning(data, limit)
        if beginning is not None:
            return beginning
    elif codec == Codec.GZIP:
        beginning = _gzip_beginning(data, limit)
        if not beginning[1]:
            return beginning
    elif codec == Codec.ZSTD:
        output = bytearray(limit)
        try:
            return memoryview(output)[: cramjam.zstd.decompress_into(data, output)], True
        except cramjam.DecompressionError as error:
            if OUTPUT_FULL in str(error):
                return output, False
    # A block of snappy is opened whole. Of the others what is wrong is said here.
    return decompress(codec, data, max(limit, _BLOCK_BYTES_MAX)), True


def _gzip_beginning(data: Buffer, limit: int) -> tuple[bytes, bool]:
    try:
        found = zlib.decompressobj(_GZIP_WINDOW_BITS).decompress(data, limit)
    except zlib.error:
        return b"", True
    return found, len(found) < limit


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    decompressor = zlib.decompressobj(_GZIP_WINDOW_BITS)
    # One byte more than allowed tells "exactly the limit" from "beyond it".
    result = decompressor.decompress(data, min(limit + 1, _GZIP_PART_BYTES))
    if len(result) == _GZIP_PART_BYTES:
        result = _in_parts(decompressor, result, limit + 1)
    if len(result) > limit:
        raise _too_large(limit)
    if not decompressor.eof:
        raise CorruptBatch("gzip data is cut off")
    if decompressor.unused_data:
        raise CorruptBatch("bytes follow the gzip data")
    return result


def _in_parts(decompressor: Any, first: bytes, capacity: int) -> bytes:
    """The first part of what it makes, and the rest up to the capacity: in pieces, since all of
    it would be copied at once, for which everybody else waits."""
    with memoryview(decompressor.unconsumed_tail) as behind:

        def fill(room: Buffer) -> int:
            size, at, part = 0, 0, first
            with memoryview(room) as view:
                while part or at < len(behind):
                    view[size : size + len(part)] = part
                    size += len(part)
                    if size == capacity or decompressor.eof:
                        break
                    piece = decompressor.unconsumed_tail if at else b""
                    if not piece:
                        piece, at = behind[at : at + _GZIP_PART_BYTES], at + _GZIP_PART_BYTES
                    part = decompressor.decompress(piece, min(capacity - size, _GZIP_PART_BYTES))
            if decompressor.eof and at < len(behind):
                raise CorruptBatch("bytes follow the gzip data")
            return size

        return filled(capacity, fill)


def _compress_xerial(data: Buffer) -> bytes:
    parts = [XERIAL_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
            parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    with memoryview(data) as view:
        if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
            return _decompress_snappy_block(view, limit)
        if len(view) < len(XERIAL_HEADER):
            raise CorruptBatch("the frame header of snappy is cut off")
        parts = []
        left = limit
        position = len(XERIAL_HEADER)
        while position < len(view):
            start = position + _BLOCK_LENGTH.size
            if start > len(view):
                raise CorruptBatch("the length of a snappy block is cut off")
            length: int = _BLOCK_LENGTH.unpack_from(view, position)[0]
            position = start + length
            if length <= 0 or position > len(view):
                raise CorruptBatch(f"a snappy block says it has {length} bytes")
            parts.append(_decompress_snappy_block(view[start:position], left))
            left -= len(parts[-1])
        return b"".join(parts)


def _decompress_snappy_block(block: memoryview, limit: int) -> bytes:
    claimed = cramjam.snappy.decompress_raw_len(block)
    if claimed > limit:
        raise _too_large(limit)
    if claimed > len(block) * _SNAPPY_RATIO_MAX:
        raise CorruptBatch(f"{len(block)} bytes of snappy cannot hold {claimed}")
    return filled(claimed, partial(cramjam.snappy.decompress_raw_into, block))


def _decompress_growing(
    decompress_into: Callable[[Buffer, Buffer], int], data: Buffer, limit: int
) -> bytes:
    capacity = max(_FIRST_GUESS_BYTES_MIN, len(data) * _FIRST_GUESS_RATIO)
    while True:
        capacity = min(capacity, limit)
        try:
            return filled(capacity, partial(decompress_into, data))
        except cramjam.DecompressionError as error:
            if OUTPUT_FULL not in str(error):
                raise
            if capacity == limit:
                raise _too_large(limit) from error
            capacity *= _GROWTH


def _invalid(codec: int, error: Exception) -> CorruptBatch:
    return CorruptBatch(f"records are not valid {Codec(codec).name.lower()}: {error}")


def _too_large(limit: int) -> HoldsTooMuch:
    return HoldsTooMuch(f"records decompress to more than {limit} bytes")
