"""The partitioner: which partition of a topic a message goes to.

A key always leads to the same partition, and to the one that every Kafka client
would choose, so that messages of one key stay in order whoever publishes them.

    with a key      (murmur2(key) & 0x7fffffff) % partitions
    without one     sticky: one partition until 16 KiB or 1,000 messages went
                    to it, then the next one
    on request      round robin: every message to the next partition

Sticky is the default without a key since a batch is per partition: messages that
are spread one by one make many small batches, each with its own checksum, header
and write.

Rejected: Python's own hash of the key. It differs from process to process, and no
other client could follow it.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from itertools import pairwise
from struct import Struct
from typing import Final

from headrace.compiled import compiled
from headrace.core.errors import InvalidArgument
from headrace.core.ports import Buffer

# A batch of this size has paid for its header and its write. The count stands
# beside it so that tiny messages change partition now and then too.
STICKY_BYTES_MAX: Final = 16 * 1024
STICKY_MESSAGES_MAX: Final = 1_000

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF

# The cache holds its keys, so long keys stay out of it: 4,096 of them at the
# largest permitted size would be 256 MiB.
_CACHED_KEYS_MAX: Final = 4096
_CACHED_KEY_BYTES_MAX: Final = 64

# One compiled reader for each number of whole words in a key of usual length.
_WORDS: Final = tuple(Struct(f"<{count}I") for count in range(65))


@compiled
def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, unsigned. Java shows the same bits as signed."""
    length = len(data)
    word_count = length >> 2
    words = _WORDS[word_count] if word_count < 65 else Struct(f"<{word_count}I")
    result = _SEED ^ length
    for word in words.unpack_from(data):
        word = (word * 0x5BD1E995) & 0xFFFFFFFF
        # Of the product only the low 32 bits count, and the mask at the end of
        # the line cuts them out, so one mask does for both factors.
        result = (result * 0x5BD1E995) ^ ((word ^ (word >> 24)) * 0x5BD1E995)
        result &= 0xFFFFFFFF
    rest = length & 3
    if rest:
        tail = int.from_bytes(data[length - rest :], "little")
        result = ((result ^ tail) * _MULTIPLIER) & _MASK
    result = ((result ^ (result >> 13)) * _MULTIPLIER) & _MASK
    return result ^ (result >> 15)


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition that every Kafka client would choose for this key."""
    if partitions < 1:
        raise InvalidArgument(f"a topic has at least one partition, not {partitions}")
    if len(key) <= _CACHED_KEY_BYTES_MAX:
        return _partition_of_short_key(key, partitions)
    return (murmur2(key) & 0x7FFFFFFF) % partitions


@lru_cache(maxsize=_CACHED_KEYS_MAX)
def _partition_of_short_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


@compiled
def partitions_of_keys(starts: Buffer, data: Buffer, partitions: int) -> bytearray:
    """The partitions (int32 each) of many keys at once: key n is
    data[starts[n]:starts[n + 1]], with starts of int32."""
    if partitions < 1:
        raise InvalidArgument(f"a topic has at least one partition, not {partitions}")
    bounds = array("i", bytes(starts))
    view = bytes(data)
    chosen = array(
        "i",
        (partition_of_key(view[start:end], partitions) for start, end in pairwise(bounds)),
    )
    return bytearray(chosen.tobytes())


class StickyPartitioner:
    """Stays on one partition until a batch's worth went there.

    A message is never split from its neighbours early: the one that reaches the
    limit still goes to the current partition, and the next one moves on.
    """

    __slots__ = ("_bytes", "_index", "_messages")

    def __init__(self, start: int = 0) -> None:
        """`start` is the first partition, modulo their number. Publishers that
        begin at different places do not all fill the same partition first."""
        self._index = start
        self._bytes = 0
        self._messages = 0

    def next(self, partitions: int, size_bytes: int, count: int = 1) -> int:
        """The partition for the next `count` messages of `size_bytes` together."""
        if partitions < 1:
            raise InvalidArgument(f"a topic has at least one partition, not {partitions}")
        if self._bytes >= STICKY_BYTES_MAX or self._messages >= STICKY_MESSAGES_MAX:
            self._index += 1
            self._bytes = 0
            self._messages = 0
        self._bytes += size_bytes
        self._messages += count
        return self._index % partitions


class RoundRobinPartitioner:
    """Every call goes to the next partition. Takes what the sticky one takes."""

    __slots__ = ("_index",)

    def __init__(self, start: int = 0) -> None:
        self._index = start

    def next(self, partitions: int, size_bytes: int = 0, count: int = 1) -> int:
        """The partition for the next message, or for a group kept together."""
        if partitions < 1:
            raise InvalidArgument(f"a topic has at least one partition, not {partitions}")
        chosen = self._index % partitions
        self._index += 1
        return chosen
