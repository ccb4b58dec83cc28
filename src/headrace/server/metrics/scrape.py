"""Scrapes: one at a time, and what was seen a moment ago is seen again.

    scrape --> as old as may be? --no--> gather --> write --> text
                     '------------yes-------------------------^

However many ask, a node looks at itself once in a while: whoever comes while others
are looked after waits for the same answer. What it needs is imported with the first
scrape, in a thread: a node that nobody watches does without.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.core.node_settings import NodeSettings
from headrace.server.service import Service

if TYPE_CHECKING:
    from headrace.server.metrics.families import Samples
    from headrace.server.metrics.gathering import Gathering


class Scrapes:
    def __init__(self, service: Service, settings: NodeSettings) -> None:
        self._service = service
        self._settings = settings
        self._turn = asyncio.Lock()
        self._gathering: Gathering | None = None
        self._samples: Samples = {}
        self._gathered_at = float("-inf")
        # By what was asked for: the text of these samples, and its type.
        self._texts: dict[bool, tuple[bytes, str]] = {}

    async def text(self, accept: str) -> tuple[bytes, str]:
        """In the form that is asked for, with its content type."""
        async with self._turn:
            await self._look()
            exposition = await self._imported("exposition")
            is_open = exposition.OPEN_METRICS in accept.lower()
            if is_open not in self._texts:
                self._texts[is_open] = await exposition.expose(self._samples, accept)
            return self._texts[is_open]

    async def samples(self) -> Samples:
        async with self._turn:
            await self._look()
            return self._samples

    async def _look(self) -> None:
        now = self._service.loop.time()
        if now - self._gathered_at < self._settings.metrics_cache_ms / 1000:
            return
        if self._gathering is None:
            module = await self._imported("gathering")
            self._gathering = module.Gathering(
                self._service,
                free_bytes_min=self._settings.free_bytes_min,
                by_partition=self._settings.metrics_partitions,
            )
        self._samples = await self._gathering.gather()
        self._texts = {}
        # From its end, or a look that takes longer than it is kept would never do.
        self._gathered_at = self._service.loop.time()

    async def _imported(self, name: str) -> Any:
        path = f"headrace.server.metrics.{name}"
        return await self._service.loop.run_in_executor(None, import_module, path)
