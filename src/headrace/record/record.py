"""The record: what one publish stores and one delivery hands out.

`NewRecord` is a record that has no place yet; `Record` is one that was read back
and knows its offset. Both are plain tuples, so that a million of them cost what
tuples cost.

Rejected: one class with an optional offset. Whoever holds a record from the log
would have to ask again whether its offset is there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]

# Kafka's word for "nobody said when".
NO_TIMESTAMP_MS: Final = -1


class Record(NamedTuple):
    """A record as it stands in its partition."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class RawRecord(NamedTuple):
    """A record that is copied: its headers are the bytes that say them."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: bytes


class NewRecord(NamedTuple):
    """A record to be published; a null value under a key is a tombstone."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = NO_TIMESTAMP_MS
