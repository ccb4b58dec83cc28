"""What the system's errors mean: the one place that judges the numbers of errno.

    full        ENOSPC EDQUOT      room comes back; reading and acking go on
    used up     EMFILE ENFILE      files are closed, or the limit is raised
    refused     EACCES EPERM       it is there, and not ours to use
    read-only   EROFS              the disk, or how it is mounted
    one file    EIO ENOENT ...     that file is not what it was; the others may be

Other modules ask by these names, and code that raises an OSError of its own names the
number itself. What a caller is told is one rule for every call, at every door (`disk_error`):

    full              DiskFull        what frees some goes on: reading, acking
    used up           TooManyFiles    nothing is wrong with the disk
    anything else     WriteFailed     what it takes from now on cannot be relied on

A write that fails changes nothing, so a node goes on and refuses what failed; a handle in the
same process ends (`platform/group_commit.py`). After a sync that failed nothing can be
promised: both end.

Rejected: a class of ours for each number, raised where the system is called. Most of
these errors pass through code that only cleans up, and Python has classes for half of
them already.
"""

from __future__ import annotations

import errno
from typing import Final

from headrace.core.errors import DiskFull, HeadraceError, SyncFailed, TooManyFiles

# What to do when a disk has failed: of a directory that a process has opened, of a node, and
# of either.
HANDLE_REMEDY: Final = "close this handle, check the disk and open the directory again"
NODE_REMEDY: Final = "check the disk and start the node again"
_REMEDY: Final = "check the disk, then open the directory or start the node again"


def _numbers(*names: str) -> frozenset[int]:
    """Of those that this system has."""
    return frozenset(getattr(errno, name) for name in names if hasattr(errno, name))


_FULL: Final = _numbers("ENOSPC", "EDQUOT")
_USED_UP: Final = _numbers("EMFILE", "ENFILE")
_REFUSED: Final = _numbers("EACCES", "EPERM")
_A_FILE: Final = _numbers("ENOTDIR", "EEXIST")
# EROFS is not among them, nor is what a process or a disk has run out of: files, memory,
# room. That is no partition's own, and stopping all of them one by one would hide it.
_OF_ONE_FILE: Final = _numbers(
    "EIO", "EACCES", "EPERM", "ENOENT", "ENOTDIR", "EISDIR", "ELOOP", "ENAMETOOLONG",
    "EBADMSG", "ENODATA", "ESTALE", "EUCLEAN",
)  # fmt: skip
# What a lock says that another process has, and not that there are no locks here.
_LOCKED: Final = _numbers("EWOULDBLOCK", "EAGAIN", "EACCES", "EDEADLK")
_UNSUPPORTED: Final = _numbers("EOPNOTSUPP", "EINVAL")
# A machine without IPv6, or without the address.
_NO_ADDRESS: Final = _numbers("EADDRNOTAVAIL", "EAFNOSUPPORT")


# The disk and its files.


def is_full(error: BaseException) -> bool:
    """Whether the disk has no room, in the system's words or in ours."""
    return isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno in _FULL)


def are_files_used_up(error: BaseException) -> bool:
    """Whether no more files can be open at once, in the system's words or in ours."""
    return isinstance(error, TooManyFiles) or (
        isinstance(error, OSError) and error.errno in _USED_UP
    )


def is_shortage(error: BaseException) -> bool:
    """Whether something ran out that comes back, so that trying again later helps."""
    return is_full(error) or are_files_used_up(error)


def is_refused(error: BaseException) -> bool:
    """Whether the system has it, and does not let us use it: nothing of it may be damaged."""
    return isinstance(error, OSError) and error.errno in _REFUSED


def is_read_only(error: OSError) -> bool:
    """Whether the disk takes no writes at all."""
    return error.errno == errno.EROFS


def is_file_in_the_way(error: OSError) -> bool:
    """Whether there is a file where a folder should be."""
    return error.errno in _A_FILE


def is_of_one_file(error: BaseException) -> bool:
    """Whether a file or folder is not what it was, or is not ours to use."""
    return isinstance(error, OSError) and error.errno in _OF_ONE_FILE


def is_locked(error: OSError) -> bool:
    """Whether another process has the lock that was asked for."""
    return error.errno in _LOCKED


def is_unsupported(error: OSError) -> bool:
    """Whether this file system does not know what it was asked for."""
    return error.errno in _UNSUPPORTED


# Sockets and pipes.


def is_address_taken(error: OSError) -> bool:
    return error.errno == errno.EADDRINUSE


def is_address_missing(error: OSError) -> bool:
    """Whether this machine has no such address, or none of that family."""
    return error.errno in _NO_ADDRESS


def is_pipe_broken(error: OSError) -> bool:
    return error.errno == errno.EPIPE


# What callers are told.


class WriteFailed(SyncFailed):
    """What failed was a write. To a client it is one with a failed sync."""


def disk_error(error: OSError, remedy: str = _REMEDY) -> HeadraceError:
    """What a caller is told whose call failed like this; `remedy` says what helps when it
    was the disk."""
    told: HeadraceError
    if is_full(error):
        told = DiskFull(f"the disk is full ({error.strerror}); reading and acking go on")
    elif are_files_used_up(error):
        told = TooManyFiles(
            "the process has too many files open; raise its limit (ulimit -n), or use fewer "
            "topics and partitions"
        )
    else:
        told = WriteFailed(f"the disk failed ({error}); {remedy}")
    told.__cause__ = error
    return told
