"""Control batches: the marker that ends a transaction in one partition.

    key     version 0 (2 bytes) | kind (2 bytes)
    value   version 0 (2 bytes) | coordinator epoch (4 bytes)

The one record of the batch is for brokers and client libraries; no consumer ever
sees it. It decides all earlier transactional records of its producer.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from headrace.core.errors import CorruptBatch

KEY: Final = struct.Struct(">hh")
VALUE: Final = struct.Struct(">hi")


class ControlKind(IntEnum):
    """Numbers as in the key of the marker."""

    ABORT = 0
    COMMIT = 1


class ControlMarker(NamedTuple):
    """What a control batch says, and of whom."""

    kind: ControlKind
    offset: int
    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def encode_marker(kind: ControlKind, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Key and value of the marker's record."""
    return KEY.pack(0, kind), VALUE.pack(0, coordinator_epoch)


def decode_marker(key: bytes | None, value: bytes | None) -> tuple[ControlKind, int]:
    """Kind and coordinator epoch. Later versions only add to the end, so longer
    keys and values are read as far as they are known."""
    if key is None or value is None or len(key) < KEY.size or len(value) < VALUE.size:
        raise CorruptBatch("a control record is too short to be a marker")
    _, kind = KEY.unpack_from(key)
    _, coordinator_epoch = VALUE.unpack_from(value)
    if kind not in (ControlKind.ABORT, ControlKind.COMMIT):
        raise CorruptBatch(f"a control record has the unknown kind {kind}")
    return ControlKind(kind), coordinator_epoch
