"""The node at a glance: one look for all who ask at the same time, in slices.

Whoever asks while somebody's look is under way gets that one's answer. So ten terminals
cost hardly more than one, and no request feels a look over ten thousand partitions.
"""

from __future__ import annotations

import asyncio

from headrace.core.overview_values import Overview
from headrace.engine.overview import overlook
from headrace.server.passing import pass_time
from headrace.server.service import Service
from headrace.server.slices import Slices, in_slices


class Glance:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._looking: asyncio.Task[Overview] | None = None

    async def overview(self) -> Overview:
        if self._looking is None or self._looking.done():
            self._looking = self._service.loop.create_task(self._look())
        # Who goes away must not take the others' look along.
        return await asyncio.shield(self._looking)

    async def _look(self) -> Overview:
        service = self._service
        now_ms = service.clock.now_ms()
        await pass_time(service, now_ms, Slices().rest)
        return await in_slices(
            overlook(
                service.broker,
                now_ms,
                patience=service.disk.without_waiting,
                members_of=service.members_at_doors,
                groups=service.groups_at_doors(),
            )
        )
