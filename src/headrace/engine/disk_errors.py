"""What the disk said, as an error of ours: one rule for every call, at every door.

    no room           DiskFull        what frees some goes on: reading, acking
    no more files     TooManyFiles    nothing is wrong with the disk
    anything else     WriteFailed     what it takes from now on cannot be relied on

A write that fails changes nothing, so a node goes on and refuses what failed; a handle in the
same process ends (`platform/group_commit.py`). After a sync that failed nothing can be
promised: both end.
"""

from __future__ import annotations

import errno

from headrace.core.errors import DiskFull, HeadraceError, SyncFailed, TooManyFiles
from headrace.log.checkpoint import FULL


class WriteFailed(SyncFailed):
    """What failed was a write. To a client it is one with a failed sync."""


def disk_error(error: OSError) -> HeadraceError:
    if error.errno in FULL:
        return DiskFull(f"the disk is full ({error.strerror}); reading and acking go on")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TooManyFiles(
            "the process has too many files open; raise its limit (ulimit -n), or use fewer "
            "topics and partitions"
        )
    return WriteFailed(
        f"the disk failed ({error}); check the disk, then open the directory or start the node "
        "again"
    )
