"""What a classic consumer's metadata says of the topics it reads.

The coordinator passes metadata on without reading it, except for this head,
which every version of the consumer's embedded protocol shares:

    version    2 bytes, big-endian
    topics     4 bytes: how many; then for each 2 bytes of length and UTF-8
    ...        the assignor's own business: what it owns, its generation, its rack

Two sets of metadata with the same topics mean the same work, even when the rest
differs: a static member that comes back has forgotten what it owned, and that is
no reason to stop a whole group.
"""

from __future__ import annotations

import struct

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics, or None when these are not the bytes of a consumer."""
    try:
        version, count = _HEAD.unpack_from(metadata, 0)
        # A count that the bytes cannot hold is refused before it is looped over.
        if version < 0 or not 0 <= count <= len(metadata) // _LENGTH.size:
            return None
        position = _HEAD.size
        topics = set()
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or position + length > len(metadata):
                return None
            topics.add(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)


def same_subscription(
    before: tuple[tuple[str, bytes], ...], after: tuple[tuple[str, bytes], ...]
) -> bool:
    """Whether two lists of protocols ask for the same work in the same way."""
    if before == after:
        return True
    if [name for name, _ in before] != [name for name, _ in after]:
        return False
    for (_, old), (_, new) in zip(before, after, strict=True):
        topics = subscribed_topics(old)
        if old != new and (topics is None or topics != subscribed_topics(new)):
            return False
    return True
