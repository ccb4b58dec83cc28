"""The codecs: known bytes, foreign forms, damage, and bombs."""

from __future__ import annotations

import ctypes
import gzip
import struct
import sys
import zlib
from pathlib import Path
from random import Random

import cramjam
import pytest

from headrace.core.errors import CorruptBatch
from headrace.record.compression import Codec, compress, decompress

LIMIT = 1 << 20
COMPRESSED = [codec for codec in Codec if codec]
SAMPLES = [b"", b"x", bytes(100_000), bytes(range(256)) * 1_000, b"small " * 3]

# "hello" in each format, written out by hand from the format's specification.
BY_HAND = {
    Codec.SNAPPY: "05 10 68656c6c6f",
    Codec.LZ4: "04224d18 60 40 82 05000080 68656c6c6f 00000000",
    Codec.ZSTD: "28b52ffd 20 05 290000 68656c6c6f",
}


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("sample", SAMPLES, ids=len)
def test_what_is_compressed_comes_back(codec: Codec, sample: bytes) -> None:
    assert decompress(codec, compress(codec, sample)) == sample
    assert decompress(codec, memoryview(compress(codec, bytearray(sample)))) == sample


@pytest.mark.parametrize("codec", BY_HAND)
def test_bytes_written_by_hand_are_read(codec: Codec) -> None:
    assert decompress(codec, bytes.fromhex(BY_HAND[codec])) == b"hello"


def test_gzip_of_another_writer_is_read() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"hello", 9)) == b"hello"


@pytest.mark.parametrize("size", [524_287, 524_288, 524_289, 1_048_576, 3_000_001])
@pytest.mark.parametrize("is_random", [True, False])
def test_gzip_of_many_parts_is_read_to_its_end_and_not_beyond(size: int, is_random: bool) -> None:
    sample = Random(size).randbytes(size) if is_random else bytes(size)
    compressed = gzip.compress(sample, 1)
    assert decompress(Codec.GZIP, compressed) == sample
    assert decompress(Codec.GZIP, compressed, size) == sample
    with pytest.raises(CorruptBatch, match="more than"):
        decompress(Codec.GZIP, compressed, size - 1)
    for more in (1, 600_000):
        with pytest.raises(CorruptBatch, match="bytes follow"):
            decompress(Codec.GZIP, compressed + bytes(more))
    with pytest.raises(CorruptBatch, match="cut off"):
        decompress(Codec.GZIP, compressed[:-1])


def test_gzip_is_read_by_another_reader() -> None:
    assert gzip.decompress(compress(Codec.GZIP, b"hello" * 100)) == b"hello" * 100


def test_snappy_is_written_in_the_framing_that_java_reads() -> None:
    compressed = compress(Codec.SNAPPY, bytes(40_000))
    assert compressed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    first = struct.unpack_from(">i", compressed, 16)[0]
    assert len(bytes(cramjam.snappy.decompress_raw(compressed[20 : 20 + first]))) == 32 * 1024


def test_lz4_is_written_with_independent_blocks() -> None:
    descriptor = compress(Codec.LZ4, bytes(200_000))[4]
    assert descriptor & 0x20
    assert descriptor >> 6 == 1


def test_lz4_with_linked_blocks_and_checksums_is_read() -> None:
    assert decompress(Codec.LZ4, bytes(cramjam.lz4.compress(b"abc" * 99_999))) == b"abc" * 99_999


@pytest.mark.parametrize("codec", list(Codec))
def test_exactly_the_limit_is_allowed_and_one_byte_more_is_not(codec: Codec) -> None:
    compressed = compress(codec, bytes(LIMIT))
    assert decompress(codec, compressed, LIMIT) == bytes(LIMIT)
    with pytest.raises(CorruptBatch, match="more than"):
        decompress(codec, compressed, LIMIT - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_data_that_shrank_a_thousandfold_is_still_read(codec: Codec) -> None:
    assert decompress(codec, compress(codec, bytes(10 * LIMIT))) == bytes(10 * LIMIT)


def bomb_of(codec: Codec) -> bytes:
    """256 MiB of zeros, made without ever holding them."""
    chunk = bytes(LIMIT)
    if codec == Codec.GZIP:
        gzipper = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join([*(gzipper.compress(chunk) for _ in range(256)), gzipper.flush()])
    if codec == Codec.LZ4:
        framer = cramjam.lz4.Compressor(block_linked=False)
        for _ in range(256):
            framer.compress(chunk)
        return bytes(framer.finish())
    if codec == Codec.SNAPPY:
        framed = compress(codec, chunk)
        return framed[:16] + framed[16:] * 256
    return compress(codec, chunk) * 256


def memory_kib(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field))


def forget_peak() -> int:
    """What is in use, which is the highest use from now on."""
    # What tests before have freed would be used again, and show in no peak.
    ctypes.CDLL(None).malloc_trim(0)
    # Five asks the kernel to forget the highest use of memory so far.
    Path("/proc/self/clear_refs").write_text("5")
    return memory_kib("VmHWM")


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_stops_at_the_limit_and_takes_little_memory(codec: Codec) -> None:
    bomb = bomb_of(codec)
    before_kib = forget_peak()
    with pytest.raises(CorruptBatch, match="more than"):
        decompress(codec, bomb, LIMIT)
    assert memory_kib("VmHWM") - before_kib < 8 * LIMIT // 1024


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_memory_that_is_taken_shows_in_the_peak() -> None:
    compressed = compress(Codec.ZSTD, bytes(LIMIT)) * 32
    before_kib = forget_peak()
    assert len(decompress(Codec.ZSTD, compressed)) == 32 * LIMIT
    assert memory_kib("VmHWM") - before_kib > 8 * LIMIT // 1024


def test_a_snappy_block_that_claims_more_than_it_can_hold_costs_no_memory() -> None:
    claims_16_mib = bytes.fromhex("80808008") + b"\0x"
    with pytest.raises(CorruptBatch, match="cannot hold"):
        decompress(Codec.SNAPPY, claims_16_mib)
    framed = compress(Codec.SNAPPY, b"")[:16] + struct.pack(">i", len(claims_16_mib))
    with pytest.raises(CorruptBatch, match="cannot hold"):
        decompress(Codec.SNAPPY, framed + claims_16_mib)


def test_the_limit_holds_for_all_snappy_blocks_together() -> None:
    compressed = compress(Codec.SNAPPY, bytes(100_000))
    with pytest.raises(CorruptBatch, match="more than"):
        decompress(Codec.SNAPPY, compressed, 40_000)


@pytest.mark.parametrize("length", [0, -1, 7, 2**31 - 1])
def test_a_snappy_block_with_an_impossible_length_is_refused(length: int) -> None:
    framed = compress(Codec.SNAPPY, b"")[:16] + struct.pack(">i", length) + b"\x01\x00x"
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, framed)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_data_cut_at_any_byte_is_refused(codec: Codec) -> None:
    compressed = compress(codec, b"some text that is some text")
    for size in range(len(compressed)):
        # The frame header of snappy alone is the frame of nothing.
        if codec == Codec.SNAPPY and size == 16:
            assert decompress(codec, compressed[:size]) == b""
            continue
        with pytest.raises(CorruptBatch):
            decompress(codec, compressed[:size])


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bytes_that_follow_the_data_are_refused(codec: Codec) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, b"text") + b"zz")


def test_a_plain_zlib_stream_is_not_gzip() -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.GZIP, zlib.compress(b"text"))


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="codec 5"):
        decompress(5, b"")
