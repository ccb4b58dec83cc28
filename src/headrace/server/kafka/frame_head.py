"""How a frame of the Kafka protocol begins: its length, and the key of its API."""

from __future__ import annotations

import struct
from typing import Final

LENGTH: Final = struct.Struct(">i")
# Both.
HEAD: Final = struct.Struct(">ih")
HEAD_BYTES: Final = HEAD.size
KEY_BYTES: Final = HEAD_BYTES - LENGTH.size
# Of a frame too short to have one, which is refused when its turn has come.
NO_KEY: Final = -1


def key_of(frame: memoryview) -> int:
    """The key of a frame that is whole, length included."""
    if len(frame) < HEAD_BYTES:
        return NO_KEY
    key: int = HEAD.unpack_from(frame)[1]
    return key
