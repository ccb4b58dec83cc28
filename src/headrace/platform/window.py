"""A window: a part of a file to look at, which need not be copied to be sent.

    plain       the bytes, read
    compiled    the pages of the system's own cache, mapped: sending them copies once,
                from there to the socket, and nothing is allocated

What a window shows must not be cut off while somebody holds it: touching a page that
is not in the file any more kills the process. So only records below the high
watermark are looked at, below which nothing is ever cut; a removed file's pages stay
as long as the window does. Small parts are read: mapping them would cost more.

Rejected: one mapping of a whole segment. The last one grows with every append, and
Python's own mmap holds a descriptor of its own for each.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from headrace.compiled import compiled
from headrace.core.ports import Buffer

WINDOW_BYTES_MIN: Final = 128 * 1024
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)


@compiled
def open_window(
    descriptor: int, length: int, position: int, *, is_resident: bool = False
) -> Buffer:
    """At most `length` bytes; fewer at the end of the file. With `is_resident` only
    what is in memory: BlockingIOError when some of it is not."""
    length = max(0, min(length, os.fstat(descriptor).st_size - position))
    data = bytearray(length)
    if os.preadv(descriptor, [data], position, _NOWAIT if is_resident else 0) < length:
        raise BlockingIOError(errno.EAGAIN, "not all of it is in memory")
    return data
