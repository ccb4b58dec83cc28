"""Memory for the batches of a read, kept by the process from one batch to the next.

C's library gives large pieces back to the system as soon as they are free, and gets
them again for the next batch, page by page, each filled with zeros first. That was a
third of what reading large values cost a reader. A process that reads for Spark does
nothing else, so it keeps them.

Rejected: buffers of our own that are used again. Whoever made an Arrow batch cannot
know when Spark is done with it.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

# As in malloc.h of glibc.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
# The largest that glibc takes for a piece, and enough for the pieces of some batches.
PIECE_BYTES_MAX: Final = 32 * 1024 * 1024
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024


def keep_freed_memory() -> None:
    """From now on. Where C's library is another than glibc, nothing changes."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, PIECE_BYTES_MAX)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
