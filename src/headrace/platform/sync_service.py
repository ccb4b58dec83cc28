"""A thread that syncs files by the system's numbers, as they come out of a pipe.

    jobs       tag, number     tag, number     0, SYNC_STOP
    results    tag, errno      tag, errno

The compiled twin never asks for Python's lock: a thread that comes back from the disk
would wait for whatever Python runs elsewhere, and longer than the sync took.
"""

from __future__ import annotations

import os

from headrace.compiled import compiled
from headrace.core.ports import SYNC_PAIR, SYNC_STOP
from headrace.platform.descriptors import sync_descriptor


@compiled
def serve_syncs(jobs: int, results: int) -> None:
    """A thread's whole life: sync what comes, until it is told to stop."""
    while True:
        tag, number = SYNC_PAIR.unpack(os.read(jobs, SYNC_PAIR.size))
        if number == SYNC_STOP:
            return
        failure = 0
        try:
            sync_descriptor(number)
        except OSError as error:
            failure = error.errno or -1
        os.write(results, SYNC_PAIR.pack(tag, failure))
