"""An app's workers in a test: on the real queue, in memory, with skipped time.

    with testing.open(auto_create=True) as handle:
        handle.publish("orders", {"id": 7})
        counts = testing.drain(app, handle)
        assert counts["bill"].done == 1

Everything that is ready is handled, one message after the other; then the clock
skips to whatever is due next, a retry or a delayed message, until nothing is left. A
function that takes long says so by skipping itself: `clock.skip(20)`. Its lease is
extended on the way, and its `timeout` ends it, as they would be while it slept.
"""

from __future__ import annotations

import asyncio

from headrace.client.app import App
from headrace.client.asynchronous import AsyncHeadrace
from headrace.client.crew import Crew
from headrace.client.handle import Headrace
from headrace.client.station import Counts
from headrace.client.waiting import SteeredClock
from headrace.core.errors import InvalidArgument

MESSAGES_MAX = 10_000


def drain(app: App, handle: Headrace, *, messages_max: int = MESSAGES_MAX) -> dict[str, Counts]:
    """Work until nothing is left to do; what each worker did, by its name."""

    async def work() -> dict[str, Counts]:
        borrowed = AsyncHeadrace(handle)
        try:
            return await drain_async(app, borrowed, messages_max=messages_max)
        finally:
            borrowed.detach()

    return asyncio.run(work())


async def drain_async(
    app: App, handle: AsyncHeadrace, *, messages_max: int = MESSAGES_MAX
) -> dict[str, Counts]:
    """As `drain`, where there is an event loop already."""
    clock = handle.clock
    if not isinstance(clock, SteeredClock):
        raise InvalidArgument("time can only be skipped on a manual clock: see testing.open")
    crew = Crew(app, handle)
    await crew.drain(clock.skip_to, messages_max)
    return crew.counts
