"""The SDK, connected to a node: `headrace.connect_async`."""

from __future__ import annotations

import headrace
from benchmarks.doors.clients import BODY, Client

GROUP = "bench"


class Sdk(Client):
    async def open(self, workers: int) -> None:
        self._handle = await headrace.connect_async(self.address)
        self._queues: dict[int, headrace.AsyncQueue] = {}

    async def make(self) -> None:
        await self._handle.create_topic(self.topic, 1)

    async def publish(self, worker: int, count: int) -> None:
        if count == 1:
            await self._handle.publish(self.topic, BODY)
        else:
            await self._handle.publish_many(self.topic, [BODY] * count)

    async def work(self, worker: int, count: int) -> int:
        queue = self._queues.get(worker)
        if queue is None:
            queue = self._queues[worker] = await self._handle.queue(self.topic, GROUP)
        leased = await queue.lease(count)
        if leased:
            await queue.ack(leased)
        return len(leased)

    async def close(self) -> None:
        for queue in self._queues.values():
            await queue.close()
        await self._handle.close()
