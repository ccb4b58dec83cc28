"""NATS JetStream through nats-py: a stream in files, one pull consumer for all workers.

The server answers a publish when its file has it, and syncs the file every two minutes
(2.9, which Debian has, cannot be told otherwise). Acks are confirmed (`ack_sync`), as
ours are. Publishing many is many publishes at once: there is no call for a batch.
"""

from __future__ import annotations

import asyncio

from benchmarks.doors.clients import BODY, Client

WAIT_SECONDS = 1.0


class Nats(Client):
    promise = "with the system"

    async def open(self, workers: int) -> None:
        import nats

        self._connection = await nats.connect(
            f"nats://{self.address}", pending_size=64 * 1024 * 1024
        )
        self._stream = self._connection.jetstream(publish_async_max_pending=10_000, timeout=60)
        self._subscriptions: dict[int, object] = {}

    async def make(self) -> None:
        from nats.js.api import StorageType, StreamConfig

        config = StreamConfig(
            name=self.topic, subjects=[f"{self.topic}.>"], storage=StorageType.FILE
        )
        await self._stream.add_stream(config)

    async def publish(self, worker: int, count: int) -> None:
        subject = f"{self.topic}.work"
        if count == 1:
            await self._stream.publish(subject, BODY)
            return
        pending = [await self._stream.publish_async(subject, BODY) for _ in range(count)]
        await asyncio.gather(*pending)

    async def work(self, worker: int, count: int) -> int:
        from nats.errors import TimeoutError as NothingThere

        subscription = self._subscriptions.get(worker)
        if subscription is None:
            subscription = await self._stream.pull_subscribe(f"{self.topic}.work", "bench")
            self._subscriptions[worker] = subscription
        try:
            found = await subscription.fetch(count, timeout=WAIT_SECONDS)
        except NothingThere:
            return 0
        await asyncio.gather(*(each.ack_sync(timeout=60) for each in found))
        return len(found)

    async def close(self) -> None:
        await self._connection.close()
