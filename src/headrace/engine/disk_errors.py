"""What the disk said, as an error of ours: one rule for every call, at every door.

    no room           DiskFull        what frees some goes on: reading, acking
    no more files     TooManyFiles    nothing is wrong with the disk
    anything else     SyncFailed      what it takes from now on cannot be relied on

A write that fails changes nothing. Whether anything is served after a SyncFailed is for the
caller to say: a handle in the same process ends (`platform/group_commit.py`), a node refuses
what failed.
"""

from __future__ import annotations

import errno

from headrace.core.errors import DiskFull, HeadraceError, SyncFailed, TooManyFiles
from headrace.log.checkpoint import FULL


def disk_error(error: OSError) -> HeadraceError:
    if error.errno in FULL:
        return DiskFull(f"the disk is full ({error.strerror}); reading and acking go on")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TooManyFiles(
            "the process has too many files open; raise its limit (ulimit -n), or use fewer "
            "topics and partitions"
        )
    return SyncFailed(
        f"the disk failed ({error}); check the disk, then open the directory or start the node "
        "again"
    )
