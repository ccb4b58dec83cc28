"""Before the first queue group reads a topic: a thread goes through what its log holds.

    loop      which? .                  . open the scanners . open the queue
    thread             read and scan

A topic that was only streamed may hold gigabytes, and batches of millions of records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headrace.calls import Face
from headrace.engine.prescan import Prescan
from headrace.server.loop_calls import Calls
from headrace.server.slices import Slices


async def scan_ahead(calls: Calls, topics: Sequence[str]) -> None:
    prescans = await calls.run(Face.prescans, topics)
    if not prescans:
        return
    scanning = calls.service.loop.run_in_executor(None, _run, prescans)
    try:
        await asyncio.shield(scanning)
    except asyncio.CancelledError:
        # Its files are closed when it is over.
        await asyncio.wait([scanning])
        raise
    slices = Slices()
    for each in prescans:
        each.keep()
        await slices.rest()


def _run(prescans: Sequence[Prescan]) -> None:
    for each in prescans:
        each.run()
