"""The first bytes of what an lz4 frame holds, without opening the rest of it.

    magic | flags | sizes ... | length, block | length, block | ... | 0

The library opens a block at a time, and most clients make one block of a whole batch of
messages: to see its first records costs as much as to see all of them. The compiled twin
stops where it has what is asked for.
"""

from __future__ import annotations

from typing import Final

import cramjam

from headrace.compiled import compiled
from headrace.core.ports import Buffer

# How cramjam says that the output buffer is full. Any other failure is the input's fault
# and is not worth a larger buffer.
OUTPUT_FULL: Final = "failed to write whole buffer"


@compiled
def read_lz4_beginning(data: Buffer, limit: int) -> tuple[Buffer, bool] | None:
    """At most `limit` bytes, and whether it is known that these are all; None when the data
    are no frame, or damaged as far as was looked."""
    output = bytearray(limit)
    try:
        return memoryview(output)[: cramjam.lz4.decompress_into(data, output)], True
    except cramjam.DecompressionError as error:
        return (output, False) if OUTPUT_FULL in str(error) else None
