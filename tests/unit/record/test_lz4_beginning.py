"""The beginning of lz4 frames: its twins agree with the library, and survive damage."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from tests.twins import both

from headrace.compiled import twins
from headrace.record.compression import Codec, compress

Read = Callable[[bytes, int], tuple[Any, bool] | None]
each_twin = pytest.mark.parametrize(
    "read", both("headrace.record.lz4_beginning.read_lz4_beginning")
)
SEED = 7


def payloads() -> list[bytes]:
    chance = random.Random(SEED)
    words = [chance.randbytes(chance.randint(1, 40)) for _ in range(50)]
    mixed = b"".join(chance.choice(words) for _ in range(20_000))
    return [b"", b"x", b"ab" * 50_000, bytes(300_000), chance.randbytes(200_000), mixed]


def frames(payload: bytes) -> list[bytes]:
    linked = cramjam.lz4.Compressor(level=9, content_checksum=True, block_linked=True)
    linked.compress(payload)
    return [compress(Codec.LZ4, payload), bytes(linked.finish())]


@each_twin
@pytest.mark.parametrize("payload", payloads(), ids=len)
def test_the_first_bytes_are_those_of_the_whole(read: Read, payload: bytes) -> None:
    for frame in frames(payload):
        for limit in (1, 100, 8_192, 70_000, len(payload), len(payload) + 1):
            found = read(frame, limit)
            assert found is not None
            assert bytes(found[0]) == payload[:limit]
            assert found[1] <= (len(payload) <= limit)
            # Where it ends exactly at the limit, a twin may not have looked further.
            if len(payload) < limit:
                assert found[1]


@each_twin
def test_what_is_no_frame_is_none(read: Read) -> None:
    for data in (b"", b"\x04\x22\x4d\x18", b"anything at all, and more of it", bytes(100)):
        assert read(data, 100) is None


def test_damage_never_makes_more_than_the_limit() -> None:
    compiled = twins("headrace.record.lz4_beginning.read_lz4_beginning").compiled
    if compiled is None:
        pytest.skip("not compiled: run hatch_build.py")
    chance = random.Random(SEED)
    frame = compress(Codec.LZ4, payloads()[-1][:5_000])
    for _ in range(20_000):
        damaged = bytearray(frame)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        found = compiled(bytes(damaged[: chance.randint(0, len(damaged))]), 3_000)
        assert found is None or len(found[0]) <= 3_000
