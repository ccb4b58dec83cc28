"""How much compressed records may hold, found without opening them.

Whoever appends a batch unopened still has to refuse one that nobody here could read. All
codecs write blocks with their lengths in front, so the most that is inside is a short walk:

    zstd      a block holds 128 KiB at most, and says what it holds unless it is compressed
    lz4       a block holds what the head of the frame says at most
    snappy    each block says what it holds
    gzip      the last four bytes say it, modulo 2^32

The answer is a bound and not a size: one that is beyond the limit is for somebody to open.

Rejected: the size in the head of a zstd or lz4 frame. Kafka's clients compress as a stream
and leave it out.
"""

from __future__ import annotations

import struct
from typing import Final

import cramjam

from headrace.core import limits
from headrace.core.ports import Buffer
from headrace.record.compression import XERIAL_HEADER, XERIAL_MAGIC, Codec

# What no codec makes more of one byte than; of zstd, a block of four bytes that says
# "this one, 128 KiB times".
_RATIO_MAX: Final = {Codec.GZIP: 1_032, Codec.SNAPPY: 64, Codec.LZ4: 255, Codec.ZSTD: 32_768}
# A batch of this size holds no more than a batch may, whatever its codec is.
SMALL_BYTES: Final = limits.DECOMPRESSED_BYTES_MAX // max(_RATIO_MAX.values())
# Blocks that are counted before a batch is opened instead: 32 MiB are 1,024 blocks of snappy
# as Kafka's clients write them, and fewer of the others.
_BLOCKS_MAX: Final = 2_048

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK_BYTES_MAX: Final = 128 * 1024
_ZSTD_RAW, _ZSTD_REPEATED, _ZSTD_COMPRESSED = range(3)
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_PLAIN: Final = 0x8000_0000
_LITTLE: Final = struct.Struct("<I")
_BIG: Final = struct.Struct(">i")


class _Unknown(Exception):
    """The walk does not know what stands here, or it would be a long one."""


def may_hold_more(codec: int, data: Buffer, limit: int) -> bool:
    """Whether these records of a batch may be more than `limit` bytes when they are
    uncompressed. True says that only opening them tells."""
    ratio = _RATIO_MAX.get(codec)  # type: ignore[call-overload]
    if ratio is None or len(data) * ratio <= limit:
        return False
    with memoryview(data) as view:
        try:
            if codec == Codec.GZIP:
                return len(view) * ratio >= 1 << 32 or _little(view, len(view) - 4) > limit
            if codec == Codec.SNAPPY:
                return _snappy_bytes(view) > limit
            if codec == Codec.LZ4:
                return _lz4_bytes_max(view) > limit
            return _zstd_bytes_max(view) > limit
        except (_Unknown, IndexError, struct.error, cramjam.DecompressionError):
            return True


def _little(view: memoryview, position: int) -> int:
    return int(_LITTLE.unpack_from(view, position)[0])


def _snappy_bytes(view: memoryview) -> int:
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return cramjam.snappy.decompress_raw_len(view)
    total = 0
    position = len(XERIAL_HEADER)
    for _ in range(_BLOCKS_MAX):
        if position == len(view):
            return total
        length: int = _BIG.unpack_from(view, position)[0]
        position += _BIG.size
        if length <= 0:
            break
        # The length of a block is in its first five bytes; the library takes all of it.
        total += cramjam.snappy.decompress_raw_len(view[position : position + length])
        position += length
    raise _Unknown


def _lz4_bytes_max(view: memoryview) -> int:
    if bytes(view[:4]) != _LZ4_MAGIC:
        raise _Unknown
    flags, size_class = view[4], view[5] >> 4 & 7
    has_checksums, has_size, has_dictionary = flags & 0x10, flags & 0x08, flags & 0x01
    # 4 to 7 are 64 KiB, 256 KiB, 1 MiB and 4 MiB.
    block_bytes_max = 1 << (8 + 2 * size_class)
    position = 7 + (8 if has_size else 0) + (4 if has_dictionary else 0)
    total = 0
    for _ in range(_BLOCKS_MAX):
        word = _little(view, position)
        position += 4
        if not word:
            position += 4 if flags & 0x04 else 0
            if position != len(view):
                break
            return total
        length = word & ~_LZ4_PLAIN
        total += (
            length if word & _LZ4_PLAIN else min(length * _RATIO_MAX[Codec.LZ4], block_bytes_max)
        )
        position += length + (4 if has_checksums else 0)
    raise _Unknown


def _zstd_bytes_max(view: memoryview) -> int:
    if bytes(view[:4]) != _ZSTD_MAGIC:
        raise _Unknown
    flags = view[4]
    is_single_segment = flags >> 5 & 1
    size_bytes = (is_single_segment, 2, 4, 8)[flags >> 6]
    dictionary_bytes = (0, 1, 2, 4)[flags & 3]
    position = 5 + (1 - is_single_segment) + dictionary_bytes + size_bytes
    total = 0
    for _ in range(_BLOCKS_MAX):
        word = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        kind, length = word >> 1 & 3, word >> 3
        position += 3
        if kind == _ZSTD_COMPRESSED:
            total += _ZSTD_BLOCK_BYTES_MAX
        elif kind in (_ZSTD_RAW, _ZSTD_REPEATED):
            total += length
        else:
            break
        position += 1 if kind == _ZSTD_REPEATED else length
        if word & 1:
            position += 4 if flags & 0x04 else 0
            # Another frame behind it is for the library.
            if position != len(view):
                break
            return total
    raise _Unknown
