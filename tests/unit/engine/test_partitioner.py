"""The partitioner: the same choice as every Kafka client."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable

import pytest
from tests.twins import both

from headrace.core.errors import InvalidArgument
from headrace.engine.partitioner import (
    STICKY_BYTES_MAX,
    STICKY_MESSAGES_MAX,
    RoundRobinPartitioner,
    StickyPartitioner,
    partition_of_key,
)

with warnings.catch_warnings():
    # kafka-python reads its schemas by a call that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

# What Kafka's own unit tests expect of its Java implementation, which is signed.
KAFKA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


Murmur = Callable[[bytes], int]
each_murmur2 = pytest.mark.parametrize("murmur2", both("headrace.engine.partitioner.murmur2"))


@each_murmur2
@pytest.mark.parametrize(("key", "expected"), KAFKA_VECTORS.items())
def test_murmur2_agrees_with_the_vectors_of_kafka(
    key: bytes, expected: int, murmur2: Murmur
) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


@each_murmur2
def test_murmur2_agrees_with_kafka_python_at_every_length(murmur2: Murmur) -> None:
    chance = random.Random(7)
    for length in [*range(300), 1024, 65_537]:
        key = chance.randbytes(length)
        assert murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFFFFFF


def test_a_key_leads_to_the_partition_that_kafka_would_choose() -> None:
    for key in (b"", b"order-17", b"\xff" * 64, b"long" * 100):
        for partitions in (1, 3, 12):
            expected = (murmur2_of_kafka_python(key) & 0x7FFFFFFF) % partitions
            assert partition_of_key(key, partitions) == expected
            assert partition_of_key(key, partitions) == expected


def test_a_topic_without_partitions_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        partition_of_key(b"key", 0)
    with pytest.raises(InvalidArgument):
        StickyPartitioner().next(0, 1)
    with pytest.raises(InvalidArgument):
        RoundRobinPartitioner().next(0)


def test_sticky_stays_until_a_batch_of_bytes_went_to_a_partition() -> None:
    sticky = StickyPartitioner(start=1)
    size_bytes = STICKY_BYTES_MAX // 4
    assert [sticky.next(3, size_bytes) for _ in range(9)] == [1, 1, 1, 1, 2, 2, 2, 2, 0]


def test_sticky_moves_on_after_many_tiny_messages() -> None:
    sticky = StickyPartitioner()
    chosen = [sticky.next(2, 1) for _ in range(STICKY_MESSAGES_MAX + 1)]
    assert chosen == [0] * STICKY_MESSAGES_MAX + [1]


def test_sticky_keeps_a_group_of_messages_together_and_counts_them_all() -> None:
    sticky = StickyPartitioner()
    assert sticky.next(2, 10, count=STICKY_MESSAGES_MAX - 1) == 0
    assert sticky.next(2, 10, count=500) == 0
    assert sticky.next(2, 10) == 1


def test_sticky_starts_anywhere_and_follows_a_growing_topic() -> None:
    sticky = StickyPartitioner(start=7)
    assert sticky.next(4, 1) == 3
    assert sticky.next(8, 1) == 7


def test_round_robin_takes_every_partition_in_turn() -> None:
    turns = RoundRobinPartitioner(start=2)
    assert [turns.next(3, 100) for _ in range(6)] == [2, 0, 1, 2, 0, 1]
