"""The survey: one look over the node for everybody who watches, and what has changed since
the one before.

    look . look . look .          `engine/overview.py`, a slice of a millisecond at a time
             |
          Picture                 totals by name, and rates between looks

Whoever wants to know how the node is doing asks for the picture, which is at most a
second old. It is taken once for all who ask, so that ten thousand partitions and ten open
dashboards cost what one look costs, and no request feels it.

Rejected: asking each topic and each queue when a page is loaded. It is exact, and
with ten thousand partitions it stops the loop for everybody, once for each page.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import NamedTuple

from headrace.core.overview_rates import Rates, RateWindow
from headrace.core.overview_values import GroupTotals, Overview, TopicTotals
from headrace.engine.catalog import Catalog
from headrace.server.glance import Glance
from headrace.server.service import Service

# A picture that is not older than this is new enough for whoever asks.
FRESH_SECONDS = 1.0


class Picture(NamedTuple):
    overview: Overview
    topics: Mapping[str, TopicTotals]
    groups: Mapping[str, GroupTotals]
    topic_rates: Mapping[str, Rates]
    group_rates: Mapping[str, Rates]

    @property
    def at_ms(self) -> int:
        return self.overview.at_ms

    @property
    def own_topics(self) -> list[TopicTotals]:
        """Neither our notes, nor dead letters, which have a place of their own."""
        return [each for each in self.overview.topics if each.kind == "topic"]

    @property
    def letters(self) -> dict[str, int]:
        """Dead letters that nobody has redriven or purged, by the topic that they are of."""
        return {each.name: each.dead_letters for each in self.own_topics if each.dead_letters}


class Survey:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._glance = Glance(service)
        self._loop = service.loop
        self._rates = RateWindow()
        self._catalog: Catalog | None = None
        self._picture: Picture | None = None
        self._taken_at = 0.0
        self._looking: asyncio.Task[Picture] | None = None

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking

    async def look(self) -> Picture:
        """The picture, taken anew where topics or groups have come or gone since, or
        it is not fresh any more."""
        is_fresh = self._loop.time() - self._taken_at < FRESH_SECONDS
        same = self._catalog is self._service.broker.topics.catalog
        if self._picture is not None and is_fresh and same:
            return self._picture
        if self._looking is None or self._looking.done():
            self._looking = self._loop.create_task(self._take())
        # Who goes away must not take the others' look along.
        return await asyncio.shield(self._looking)

    async def _take(self) -> Picture:
        catalog = self._service.broker.topics.catalog
        overview = await self._glance.overview()
        self._rates.add(overview)
        self._picture = Picture(
            overview,
            {each.name: each for each in overview.topics},
            {each.name: each for each in overview.groups},
            self._rates.topics,
            self._rates.groups,
        )
        self._catalog = catalog
        self._taken_at = self._loop.time()
        return self._picture
