"""From a time to an offset: records are read for it, in a thread.

A log is looked through by its indexes, but the answer comes from the records of a batch,
and a batch may hold a million.
"""

from __future__ import annotations

from headrace.calls import Face
from headrace.server.loop_calls import Calls


async def offset_at(calls: Calls, topic: str, partition: int, timestamp_ms: int) -> int:
    """As `Face.offset_at`."""
    search = await calls.run(Face.time_search, topic, partition, timestamp_ms)
    found = await calls.service.loop.run_in_executor(None, search)
    return await calls.run(Face.offset_of, topic, partition, found)
