"""What compressed records may hold, without opening them."""

from __future__ import annotations

import random

import cramjam
import pytest

from headrace.record import Codec
from headrace.record.bounds import may_hold_more
from headrace.record.compression import compress

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
LIMIT = 4 * 1024 * 1024
LINES = b"".join(
    b"line %06d of a log that says the same\n" % (each % 5_000) for each in range(60_000)
)
NOISE = random.Random(5).randbytes(256 * 1024)


def zstd_stream(data: bytes) -> bytes:
    """As Kafka's clients write it: a stream, whose head does not say its size."""
    compressor = cramjam.zstd.Compressor(level=3)
    for start in range(0, len(data), 64 * 1024):
        compressor.compress(data[start : start + 64 * 1024])
    return bytes(compressor.finish())


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("unit", [bytes(1024), LINES, NOISE], ids=["zeros", "lines", "noise"])
def test_more_than_the_limit_may_be_more(codec: Codec, unit: bytes) -> None:
    data = (unit * (LIMIT // len(unit) + 1))[: LIMIT + 1]
    assert may_hold_more(codec, compress(codec, data), LIMIT)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("unit", [bytes(1024), LINES, NOISE], ids=["zeros", "lines", "noise"])
def test_what_is_well_below_the_limit_need_not_be_opened(codec: Codec, unit: bytes) -> None:
    data = (unit * (LIMIT // len(unit) + 1))[: LIMIT // 2]
    assert not may_hold_more(codec, compress(codec, data), LIMIT)


def test_a_stream_of_zstd_is_bounded_by_its_blocks() -> None:
    data = LINES * (2 * LIMIT // len(LINES) + 1)
    assert may_hold_more(Codec.ZSTD, zstd_stream(data), LIMIT)
    assert not may_hold_more(Codec.ZSTD, zstd_stream(data[: LIMIT // 2]), LIMIT)
    assert may_hold_more(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), LIMIT)
    assert not may_hold_more(
        Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data[: LIMIT // 2])), LIMIT
    )


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_the_walk_does_not_know_has_to_be_opened(codec: Codec) -> None:
    data = compress(codec, LINES * 3)
    for odd in (data[: len(data) // 2], data + data, b"\xff" * len(data)):
        assert may_hold_more(codec, odd, LIMIT)


def test_plain_records_and_small_ones_are_not_walked() -> None:
    assert not may_hold_more(Codec.NONE, bytes(LIMIT + 1), LIMIT)
    for codec in COMPRESSED:
        assert not may_hold_more(codec, b"\xff" * 100, LIMIT)
