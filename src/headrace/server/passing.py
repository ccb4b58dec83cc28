"""Time passes for every queue of a node, before somebody looks at all of them.

What came due happens when somebody asks a queue for messages. Whoever counts them asks for
none, and would see retries that rest although their time is over. In slices, since there
may be ten thousand partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headrace.core.errors import HeadraceError
from headrace.core.event_log import log_event
from headrace.server.service import Service

logger = logging.getLogger("headrace")

# How long a look waits for the disk to make true what came due.
DUE_SECONDS = 1.0


async def pass_time(service: Service, now_ms: int, rest: Callable[[], Awaitable[None]]) -> None:
    """Leases, delays and lives that are over end now, as they would for whoever
    leases next. A disk that does not answer is no reason to say nothing."""
    broker = service.broker
    if service.commits.failed is not None:
        return
    commit = broker.commit()
    try:
        for partition in list(broker.topics):
            if partition.views and partition.is_leader and partition.stopped is None:
                broker.fates.tick([partition], now_ms, commit)
                await rest()
        commit.seal()
        if broker.moves or not commit.is_done():
            finishing = asyncio.ensure_future(service.finish(commit))
            finishing.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait([finishing], timeout=DUE_SECONDS)
    except (HeadraceError, OSError) as error:
        log_event(logger, logging.WARNING, "queues may show what is over", error=str(error))
